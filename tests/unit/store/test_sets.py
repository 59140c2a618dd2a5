"""Results leave one database and arrive whole in another, once."""

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from lossbench.service.contract.check import CaseCheck, CheckRecord
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.errors import ConflictError, InvalidRequestError, NotFoundError
from lossbench.service.contract.result_set import ResultSet
from lossbench.service.contract.run import Measurement, RunRecord
from lossbench.service.store.checks import get_check, insert_check
from lossbench.service.store.database import Database
from lossbench.service.store.evidence_models import ComparisonRow
from lossbench.service.store.job_results import results_of_job
from lossbench.service.store.models import CellRow, JobRow, RunRow
from lossbench.service.store.results import (
    get_run,
    get_samples,
    insert_environment,
    insert_run,
    invalidate_run,
)
from lossbench.service.store.set_export import Wanted, collect_set
from lossbench.service.store.set_files import read_set, write_set
from lossbench.service.store.set_loading import Loaded, load_set
from lossbench.service.store.views import job_views, result_view

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
Make = Callable[..., RunRecord]


@pytest.fixture
def other(template: Path, tmp_path: Path) -> Iterator[Database]:
    """A second empty database."""
    shutil.copy(template, tmp_path / "other.db")
    database = Database(f"sqlite:///{tmp_path / 'other.db'}")
    yield database
    database.close()


def exported(database: Database, folder: Path, wanted: Wanted | None = None) -> ResultSet:
    """What a file holds of a database."""
    path = folder / "some.jsonl.gz"
    path.unlink(missing_ok=True)
    with database.reading() as session:
        write_set(path, *collect_set(session, wanted or Wanted()))
    return read_set(path)


def store(database: Database, *records: RunRecord) -> list[str]:
    with database.transaction() as session:
        return [insert_run(session, record) for record in records]


def store_job(database: Database, run_id: str, state: str = "done") -> None:
    """A job of two cells: one with a result, one refused."""
    common: dict[str, Any] = {"case_index": 0, "cell_key": "k", "case_text": "N8-H4-V16-bfloat16"}
    common |= {"job_id": "job-1", "pass_": "forward_backward", "state": "done"}
    with database.transaction() as session:
        session.add(
            JobRow(
                id="job-1",
                kind="benchmark",
                state=state,
                request={"contenders": ["flce"]},
                labels={"suite": "first"},
                accelerator="h200",
                priority=5,
                processes=3,
                timeout_s=600,
                cells_total=2,
                estimated_s=1.5,
                created_at=NOON,
                ended_at=NOON,
            )
        )
        session.flush()
        session.add(CellRow(position=0, contender="flce@1", outcome="ok", run_id=run_id, **common))
        refused = {"outcome": "unsupported", "reason": "no softcap"}
        session.add(CellRow(position=1, contender="cce", **refused, **common))


def check_record(make_environment: Callable[..., Any]) -> CheckRecord:
    case = CaseCheck.model_validate(
        {"case": "a/b", "group": "a", "what": "b", "dtype": "float32", "outcome": "ok"}
    )
    return CheckRecord(
        contender=Contender.parse("flce@1"),
        environment=make_environment("there"),
        details={"source_hash": "abc"},
        cases=(case,),
        started_at=NOON,
        ended_at=NOON,
    )


def test_run_loaded_elsewhere_is_the_same_with_its_samples(
    database: Database, other: Database, make_record: Make, tmp_path: Path
) -> None:
    (run_id,) = store(database, make_record(details={"source_hash": "abc"}))
    loaded = load_set(other, exported(database, tmp_path))
    assert loaded == Loaded("some", {"runs": 1}, {"runs": 0})
    with database.reading() as here, other.reading() as there:
        before, after = get_run(here, run_id), get_run(there, run_id)
        assert result_view(after) == result_view(before)
        assert get_samples(there, run_id) == get_samples(here, run_id) != []
        assert after.environment.facts == before.environment.facts
        assert after.record["details"] == {"set": "some", "source_hash": "abc"}
        assert {**after.record, "details": 0} == {**before.record, "details": 0}


def test_set_loaded_twice_or_where_it_was_made_changes_nothing(
    database: Database, other: Database, make_record: Make, tmp_path: Path
) -> None:
    (run_id,) = store(database, make_record())
    store_job(database, run_id)
    found = exported(database, tmp_path)
    assert load_set(other, found).new == {"runs": 1, "jobs": 1}
    nothing_new = Loaded("some", {"runs": 0, "jobs": 0}, {"runs": 1, "jobs": 1})
    assert load_set(other, found) == nothing_new
    assert load_set(database, found) == nothing_new
    for each in (database, other):
        with each.reading() as session:
            for table, count in ((RunRow, 1), (JobRow, 1), (CellRow, 2)):
                assert session.scalar(sa.select(sa.func.count()).select_from(table)) == count


def test_set_passed_on_names_the_first_one(
    database: Database, other: Database, make_record: Make, tmp_path: Path
) -> None:
    store(database, make_record())
    load_set(other, exported(database, tmp_path))
    again = exported(other, tmp_path)
    (line,) = [line for line in again.lines if line.kind == "run"]
    assert line.record["details"] == {"set": "some"}


def test_job_loaded_elsewhere_shows_its_cells_and_label(
    database: Database, other: Database, make_record: Make, tmp_path: Path
) -> None:
    (run_id,) = store(database, make_record())
    store_job(database, run_id)
    load_set(other, exported(database, tmp_path, Wanted(jobs=("job-1",))))
    with other.reading() as session:
        job = session.get_one(JobRow, "job-1")
        assert job.labels == {"set": "some", "suite": "first"}
        (view,) = job_views(session, [job])
        assert (view.state, view.cells_done, view.progress) == ("done", 2, 1.0)
        pairs = results_of_job(session, "job-1")
        assert [(c.outcome, run.id if run else None) for c, run in pairs] == [
            ("ok", run_id),
            ("unsupported", None),
        ]


def test_labels_and_devices_narrow_a_set(
    database: Database, make_record: Make, make_environment: Any, tmp_path: Path
) -> None:
    elsewhere = make_environment("there", "NVIDIA B200")
    first, second = store(database, make_record(), make_record(where=elsewhere))
    store_job(database, first)

    def ids(**wanted: Any) -> list[str]:
        found = exported(database, tmp_path, Wanted(**wanted))
        return [line.id for line in found.lines if line.kind == "run"]

    assert ids(labels=("suite=first",)) == [first]
    assert ids(labels=("suite=other",)) == []
    assert ids(devices=("NVIDIA B200",)) == [second]
    assert sorted(ids()) == sorted([first, second])


def test_job_unknown_or_running_cannot_be_exported(
    database: Database, make_record: Make, tmp_path: Path
) -> None:
    (run_id,) = store(database, make_record())
    store_job(database, run_id, state="running")
    with pytest.raises(ConflictError, match="job-1 has not ended"):
        exported(database, tmp_path, Wanted(jobs=("job-1",)))
    with pytest.raises(NotFoundError):
        exported(database, tmp_path, Wanted(jobs=("job-2",)))
    assert exported(database, tmp_path).header.jobs == ()


def test_result_out_of_use_stays_so(
    database: Database, other: Database, make_record: Make, tmp_path: Path
) -> None:
    (run_id,) = store(database, make_record())
    with database.transaction() as session:
        invalidate_run(session, run_id, "the fan was off")
    load_set(other, exported(database, tmp_path))
    with other.reading() as session:
        assert get_run(session, run_id).invalid_reason == "the fan was off"


def test_samples_that_two_results_share_are_kept_once(
    database: Database, make_record: Make, make_measurement: Any, tmp_path: Path
) -> None:
    timing: Measurement = make_measurement()
    store(database, make_record(), make_record("liger@0.8.5", measurement=timing))
    assert exported(database, tmp_path).header.counts == {"samples": 1, "run": 2}


def test_check_loaded_elsewhere_is_the_same(
    database: Database, other: Database, make_environment: Any, tmp_path: Path
) -> None:
    record = check_record(make_environment)
    with database.transaction() as session:
        check_id = insert_check(session, record)
    assert exported(database, tmp_path).lines == ()
    found = exported(database, tmp_path, Wanted(results=False, checks=True))
    assert load_set(other, found) == Loaded("some", {"checks": 1}, {"checks": 0})
    with other.reading() as session:
        got = get_check(session, check_id)
    details = {"set": "some", "source_hash": "abc"}
    assert got == record.model_copy(update={"details": details})


def test_comparison_loaded_elsewhere_refers_to_its_results(
    database: Database, other: Database, make_record: Make, tmp_path: Path
) -> None:
    record = make_record()
    base, candidate = store(database, record, make_record("flce@2"))
    with database.transaction() as session:
        session.add(
            ComparisonRow(
                id="cmp-1",
                base="flce@1",
                candidate="flce@2",
                case_text="N8-H4-V16-bfloat16",
                pass_="forward_backward",
                verdict="slower",
                ratio=1.1,
                processes=3,
                looks=1,
                log_ratios=[0.1, 0.09, 0.1],
                base_run_id=base,
                candidate_run_id=candidate,
                environment_id=insert_environment(session, record.environment),
                protocol_version=1,
                measured_at=NOON,
            )
        )
    loaded = load_set(other, exported(database, tmp_path))
    assert loaded.new == {"runs": 2, "comparisons": 1}
    with other.reading() as session:
        row = session.get_one(ComparisonRow, "cmp-1")
        assert (row.verdict, row.log_ratios) == ("slower", [0.1, 0.09, 0.1])
        assert (row.base_run_id, row.candidate_run_id) == (base, candidate)


def test_record_of_a_newer_lossbench_is_refused_and_nothing_is_stored(
    database: Database, other: Database, make_record: Make, tmp_path: Path
) -> None:
    store(database, make_record(), make_record("flce@2"))
    found = exported(database, tmp_path)
    samples, first, second = found.lines
    strange = second.model_copy(update={"record": {**second.record, "colour": "red"}})
    changed = ResultSet.model_construct(header=found.header, lines=(samples, first, strange))
    with pytest.raises(InvalidRequestError, match=r"colour.*made by lossbench"):
        load_set(other, changed)
    with other.reading() as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(RunRow)) == 0
