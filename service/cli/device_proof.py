"""`lossbench doctor --measure`: how small a difference this device can see, found and stored."""

from collections.abc import Iterator, Mapping
from typing import Any

from ..contract.run import Environment
from ..settings import Settings
from ..store.database import Database, upgrade_schema
from ..store.proofs import ProofKind, insert_proof
from .output import console, errors, print_json, print_table

COLUMNS = ("shape", "a call", "deviation", "P=3", "P=8", "P=16", "P=24", "same code")
STEPS = ("shape", "added", "really", "read", "verdict", "remark")


def prove_here(settings: Settings, quick: bool, as_json: bool) -> int:
    """Measure, store, print; 1 where the same code was called different, else 0."""
    from lossbench.worker.proof_runner import prove_device

    with errors.status("looking at the device") as status:

        def say(line: str) -> None:
            status.update(f"measuring: {line}")

        environment, found = prove_device(settings, quick, say)
    proof_id = _stored(settings, environment, found)
    if as_json:
        print_json({"id": proof_id, "device_name": environment.device_name, **found})
    else:
        print_proof(environment.device_name, found)
    return 0 if found["passed"] else 1


def _stored(settings: Settings, environment: Environment, found: Mapping[str, Any]) -> str:
    database = Database.from_settings(settings)
    upgrade_schema(database)
    with database.transaction() as session:
        proof_id = insert_proof(
            session, ProofKind.DOCTOR, environment, bool(found["passed"]), found
        )
    database.close()
    return proof_id


def print_proof(device_name: str, found: Mapping[str, Any]) -> None:
    """Two tables: what can be seen, and what became of slowdowns that were really added."""
    title = f"Smallest slowdown that P processes find on {device_name} (9 of 10 times)"
    print_table(title, COLUMNS, _classes(found))
    print_table("Slowdowns that were added", STEPS, _steps(found))
    for line in found["failed"]:
        console.print(f"{line['case']}: {line['failed']}")


def _classes(found: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for made in found["classes"]:
        seen = [_percent(made["detectable"][str(p)]) for p in (3, 8, 16, 24)]
        yield (
            made["case"],
            f"{made['call_ms']:.3g} ms",
            _percent(made["deviation"]),
            *seen,
            made["same_code"]["verdict"],
        )


def _steps(found: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for made in found["classes"]:
        for arm, step in made["slowdowns"].items():
            remark = f"after {step['at_processes']} processes"
            yield (
                made["case"],
                arm.removeprefix("A"),
                f"+{step['planted']:.1%}",
                f"{step['read']:+.1%}",
                step["verdict"],
                remark,
            )


def _percent(value: float | None) -> str:
    if value is None:
        return "–"
    # beyond a doubling the number says only that nothing can be seen
    return f"{value:.2%}" if value < 1.0 else "> 100 %"
