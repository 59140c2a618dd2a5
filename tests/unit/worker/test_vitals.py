"""Flags from what the device said of itself while it was timed."""

import pytest

from lossbench.service.contract.words import Flag
from lossbench.worker.vitals import VitalSigns


@pytest.mark.parametrize(
    ("reasons", "flags"),
    [
        ([], []),
        ([0, 0, 0], []),
        ([0x1, 0x1], []),  # idle
        ([0x2], []),  # application clocks
        ([0x8], ["throttled"]),  # hardware slowdown
        ([0x20], ["throttled"]),  # software thermal
        ([0x40], ["throttled"]),  # hardware thermal
        ([0x80], ["throttled"]),  # power brake
        ([0] * 99 + [0x20], ["throttled"]),
        ([0x4] * 2 + [0] * 8, []),  # a fifth of the time is not more than a fifth
        ([0x4] * 3 + [0] * 7, ["power_capped"]),
        ([0x4 | 0x40] * 10, ["throttled", "power_capped"]),
    ],
)
def test_flags_of_clock_event_reasons(reasons: list[int], flags: list[str]) -> None:
    assert VitalSigns(reasons=reasons).flags() == flags


def test_flags_of_a_foreign_process() -> None:
    assert VitalSigns(foreign_pids=1).flags() == ["foreign_process"]


def test_flags_are_words_of_the_contract() -> None:
    signs = VitalSigns(reasons=[0x4 | 0x8], foreign_pids=1)
    assert [Flag(word).value for word in signs.flags()] == signs.flags()
