"""Numbers as text, and the report as Markdown."""

from collections.abc import Callable

import pytest

from lossbench.service.contract.result import CellView, JobView, Result
from lossbench.service.plots import text
from lossbench.service.plots.markdown import job_markdown
from lossbench.service.plots.report import report_tables


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (41.6, "41.6"), (151.98, "152"), (0.94, "0.940"), (1234.5, "1,230"), (9.999, "10.0"),
        (0.0, "0"), (1.67e-3, "1.67e-3"), (-2.5, "-2.50"), (None, "–"), (float("nan"), "–"),
        (0.0123, "0.0123"), (2_000_000.0, "2,000,000"),
    ],
)  # fmt: skip
def test_digits_keep_three_significant(value: float | None, shown: str) -> None:
    assert text.digits(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (2048, "2.00 KiB"), (1181116006, "1.10 GiB"), (None, "–")],
)
def test_bytes_are_binary_units(value: int | None, shown: str) -> None:
    assert text.in_bytes(value) == shown


def test_interval_gains_a_digit_where_its_ends_look_alike() -> None:
    assert text.interval(0.9412, 0.9414) == "0.9412 – 0.9414"
    assert text.interval(1.0, None) == "–"


def test_duration_reads_as_people_say_it() -> None:
    assert [text.duration(s) for s in (8, 250, 7500)] == ["8 s", "4 min 10 s", "2 h 05 min"]


def test_coarse_result_is_never_marked_faster(
    make_result: Callable[..., Result], make_cell: Callable[..., CellView]
) -> None:
    coarse = make_result("liger", version="0.8.5", grade="coarse")
    table = report_tables([(make_cell("liger@0.8.5"), coarse)])[0]
    assert table.rows[0].trend == ""
    assert table.best is None


def test_markdown_table_is_what_a_pull_request_shows(
    make_result: Callable[..., Result], make_cell: Callable[..., CellView]
) -> None:
    pairs = [
        (make_cell("torch-naive", 0), make_result("torch-naive", version="2.11.0",
                                                  latency_ms=42.0, ratio_to_baseline=1.0)),
        (make_cell("flce", 1), make_result("flce", flags=["power_capped"])),
        (make_cell("cce@25.1", 2, outcome="unsupported", reason="no option bias",
                   result_id=None), None),
    ]  # fmt: skip
    written = job_markdown(_job(), report_tables(pairs), "lossbench submit job.yaml")
    assert written == (
        "**`N8192-H4096-V128256-bfloat16`, forward + backward on NVIDIA H200**\n\n"
        "| contender | outcome | time, ms (quartiles) | vs baseline (95 %) | vs floor | workspace "
        "| dW error (vs torch) | dx error (vs torch) | grade | flags |\n"
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |\n"
        "| `flce@1` | ok | 40.0 (39.5 – 41.0) | 0.952× (0.948 – 0.956) | 1.08× | 3.00 GiB "
        "| 1.12e-3 (1.00×) | 1.67e-3 (1.00×) | exact | power_capped |\n"
        "| `torch-naive@2.11.0` | ok | 42.0 (39.5 – 41.0) | baseline | 1.08× | 3.00 GiB "
        "| 1.12e-3 (1.00×) | 1.67e-3 (1.00×) | exact |  |\n"
        "| `cce@25.1` | unsupported: no option bias | – | – | – | – | – | – |  |  |\n\n"
        "Ratios: time over `torch-naive`'s in the same process, with its 95 % interval, and over "
        "the floor (the bare matrix products); below 1 is better. Errors: relative L2 against "
        "float64; in brackets over torch's own in the same dtype. lossbench job `job-1`.\n\n"
        "```sh\nlossbench submit job.yaml\n```\n"
    )


def _job() -> JobView:
    return JobView.model_validate(
        {
            "id": "job-1", "kind": "benchmark", "state": "done", "reason": None,
            "request": {"baseline": {"kernel": "torch-naive"}}, "labels": {},
            "accelerator": "any", "priority": 5, "cells_total": 3, "cells_queued": 0,
            "cells_running": 0, "cells_done": 3, "progress": 1.0,
            "outcomes": {"ok": 2, "unsupported": 1},
            "queue_position": 0, "estimated_s": 1.0, "remaining_s": 0.0,
            "created_at": "2026-11-30T12:00:00Z", "started_at": None, "ended_at": None,
        }
    )  # fmt: skip
