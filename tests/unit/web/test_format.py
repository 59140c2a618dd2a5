"""Facts of a run as the pages write them."""

from lossbench.web.format import facts


def test_facts_of_what_ran_are_readable() -> None:
    named = {"source_hash": "ab", "requires_sha256": {"a==1": "f0", "b==2": "f1"}, "used_bytes": 0}
    assert facts(named) == [
        ("source hash", "ab"),
        ("requires sha256", "a==1: f0, b==2: f1"),
        ("used", "0 B"),
    ]
