"""Where the wall time of a case went, with a clock that is moved by hand."""

import pytest

from lossbench.worker.wall_time import PARTS, WallTime, added, wall_line


class Clock:
    """Shows what it is set to."""

    def __init__(self) -> None:
        self.now = 10.0

    def __call__(self) -> float:
        return self.now


def test_every_second_is_in_one_part() -> None:
    clock = Clock()
    wall = WallTime(clock)
    for command, seconds in (("arm", 2.0), ("floor", 1.0), ("visit", 4.0), ("vitals", 0.5)):
        with wall.part(wall.command(command)):
            clock.now += seconds
    wall.timed([1000.0, 2000.0])
    clock.now += 0.25
    found = wall.so_far()
    assert found["total"] == 7.75
    assert (found["compile"], found["visits"], found["housekeeping"]) == (3.0, 4.0, 0.5)
    assert (found["idle"], found["timed"]) == (0.25, 3.0)
    assert sum(found[name] for name in PARTS) == found["total"]


def test_time_of_what_fails_is_charged_too() -> None:
    clock = Clock()
    wall = WallTime(clock)

    def check() -> None:
        with wall.part("checks"):
            clock.now += 1.0
            raise ValueError("broke")

    with pytest.raises(ValueError, match="broke"):
        check()
    assert wall.so_far()["checks"] == 1.0


def test_line_for_people_names_the_parts_largest_first() -> None:
    walls = [{"total": 10.0, "timed": 5.0, "visits": 6.0, "child_start": 4.0}] * 2
    line = "20.0 s, 50% of it timed calls: visits 12.0 s, child start 8.0 s"
    assert wall_line(added(walls)) == line
    assert wall_line({}) == "no wall time"
