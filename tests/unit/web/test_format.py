"""Facts of a run as the pages write them."""

from types import SimpleNamespace

from lossbench.web.format import facts, facts_in_common


def test_facts_of_what_ran_are_readable() -> None:
    named = {"source_hash": "ab", "requires_sha256": {"a==1": "f0", "b==2": "f1"}, "used_bytes": 0}
    assert facts(named) == [
        ("source hash", "ab"),
        ("requires sha256", "a==1: f0, b==2: f1"),
        ("used", "0 B"),
    ]


def test_units_move_to_the_value_and_floats_are_short() -> None:
    named = {"copy_gb_per_s": 4257.78, "timer_overhead_us": 2.912, "power_limit_w": 700.0}
    assert facts(named) == [
        ("copy", "4,258 GB/s"), ("timer overhead", "2.912 µs"), ("power limit", "700 W"),
    ]  # fmt: skip


def test_facts_of_environments_are_said_once_and_differences_are_marked() -> None:
    one, other = (
        SimpleNamespace(device_name="H200", facts={"torch": torch, "cuda": "13.0"})
        for torch in ("2.11", "2.13")
    )
    assert facts_in_common([one, other]) == [
        ("", "H200", False), ("CUDA", "13.0", False), ("torch", "2.11 / 2.13", True),
    ]  # fmt: skip
    assert facts_in_common([]) == []
