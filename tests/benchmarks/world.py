"""Made-up history of a benchmark service: machines, contenders, versions, cases, jobs, results.

Every number is invented and drawn from a seed. What is realistic is the shape of the data: months
of nightly jobs on several GPUs, each with twenty contenders on a part of the case grid; outcomes
other than `ok`; steps in time when a version changes; compare jobs over the whole grid; and one
sweep over many cases.
"""

import sys
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parent))

from world_facts import (
    ENTRANTS,
    MACHINES,
    PASSES,
    TORCH,
    Case,
    Entrant,
    Machine,
    Place,
    grid,
    sweep,
)

CELLS_PER_NIGHT = 400
BEGIN = datetime(2025, 6, 1, tzinfo=UTC)
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_EPOCH = datetime(2020, 1, 1, tzinfo=UTC)

Row = dict[str, Any]
Tables = dict[str, list[Row]]


def _software(torch: str) -> str:
    # without a dash: an environment's id is its two fingerprints with one between them
    return f"torch{torch.replace('.', '')}"


def _digits(number: int, length: int) -> str:
    text = ""
    for _ in range(length):
        number, digit = divmod(number, 32)
        text = _ALPHABET[digit] + text
    return text


def id_at(prefix: str, moment: datetime, number: int) -> str:
    """An id as the store makes them, sorted by time; `number` tells equal times apart."""
    milliseconds = int((moment - _EPOCH).total_seconds() * 1000)
    return f"{prefix}-{_digits(milliseconds, 8)}{_digits(number, 8)}"


class World:
    """Makes jobs with all their rows, one job at a time, so that memory stays small."""

    def __init__(self, results: int, seed: int = 0, visits: int = 12, fails: bool = True) -> None:
        """`results` >= 10,000: the compare jobs and the sweep alone are about that many.

        `visits`: samples of each of the 3 processes of a result. `fails`: outcomes beside `ok`.
        """
        self._random = np.random.default_rng(seed)
        self._number = 0
        self._visits, self._fails = visits, fails
        special = 2 * len(grid()) * len(MACHINES) + 2 * len(sweep())
        self.nights = max(1, -(-(results - special) // (CELLS_PER_NIGHT * len(MACHINES))))
        self.end = BEGIN + timedelta(days=self.nights)

    def environments(self) -> list[Row]:
        """Each machine with each torch, as software changed over the months."""
        return [
            {
                "id": self._environment(machine, torch),
                "device_type": "cuda",
                "device_name": machine.device,
                "hardware_fingerprint": machine.hardware,
                "software_fingerprint": _software(torch),
                "memory_bytes": machine.gib * 2**30,
                "facts": {"torch": torch, "triton": "3.6.0", "gemm_tflops": machine.tflops},
                "first_seen_at": BEGIN,
            }
            for machine in MACHINES
            for torch in TORCH
        ]

    def jobs(self) -> Iterator[Tables]:
        """Every job with its cells, runs, errors, samples and comparisons, oldest first."""
        places = grid()
        for night in range(self.nights):
            # a twentieth of the grid each night, so that all of it is measured in twenty
            part = places[night % 20 :: 20]
            for index, machine in enumerate(MACHINES):
                moment = BEGIN + timedelta(days=night, hours=index)
                yield self._job("benchmark", machine, moment, list(ENTRANTS), part)
        pair = [ENTRANTS[13], ENTRANTS[9]]
        for index, machine in enumerate(MACHINES):
            yield self._job("compare", machine, self.end + timedelta(hours=index), pair, places)
        moment = self.end + timedelta(hours=len(MACHINES))
        yield self._job("benchmark", MACHINES[0], moment, [ENTRANTS[0], ENTRANTS[9]], sweep())

    def orders(self, number: int) -> Iterator[Tables]:
        """A job of 400 cells a day for each of two machines; every day a new version of liger."""
        self.end = BEGIN + timedelta(days=number)
        versions = tuple(f"0.1.{day}" for day in range(number))
        entrant = Entrant("liger", "", 2.0, versions, True)
        for day in range(number):
            for index, machine in enumerate(MACHINES[:2]):
                moment = BEGIN + timedelta(days=day, hours=index)
                yield self._job("benchmark", machine, moment, [entrant], grid())

    def _environment(self, machine: Machine, torch: str) -> str:
        return f"{machine.hardware}-{_software(torch)}"

    def _version(self, entrant: Entrant, moment: datetime) -> tuple[str, int]:
        share = (moment - BEGIN + timedelta(seconds=1)) / max(self.end - BEGIN, timedelta(days=1))
        place = min(int(share * len(entrant.versions)), len(entrant.versions) - 1)
        return entrant.versions[place], place

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _job(
        self,
        kind: str,
        machine: Machine,
        begin: datetime,
        entrants: list[Entrant],
        places: list[Place],
    ) -> Tables:
        job_id = id_at("job", begin, self._next())
        names = [entrant.text(self._version(entrant, begin)[0]) for entrant in entrants]
        tables: Tables = {
            name: [] for name in ("runs", "output_errors", "samples", "job_cells", "comparisons")
        }
        for case_index, (case, pass_) in enumerate(places):
            moment = begin + timedelta(seconds=20 * case_index)
            runs = [
                self._run(tables, machine, entrant, (case, pass_), moment) for entrant in entrants
            ]
            for index, run in enumerate(runs):
                position = case_index * len(entrants) + index
                tables["job_cells"].append(_cell(job_id, position, case_index, run))
            if kind == "compare":
                cmp_id = id_at("cmp", moment, self._next())
                tables["comparisons"].append(_comparison(cmp_id, job_id, *runs))
        tables["jobs"] = [_job_row(job_id, kind, begin, names, places)]
        return tables

    def _run(
        self, tables: Tables, machine: Machine, entrant: Entrant, place: Place, moment: datetime
    ) -> Row:
        version, step = self._version(entrant, moment)
        torch = self._version(ENTRANTS[0], moment)[0]
        row = _sizes(entrant, version, place)
        row["id"] = id_at("run", moment, self._next())
        row["environment_id"] = self._environment(machine, torch)
        row["worker_id"] = f"worker-{machine.hardware}"
        row["started_at"], row["ended_at"] = moment, moment + timedelta(seconds=18)
        outcome, reason = self._outcome(machine, entrant, place[0])
        row["outcome"], row["reason"] = outcome, reason
        if outcome in ("ok", "wrong"):
            row.update(self._numbers(machine, entrant, place, step))
            tables["output_errors"].extend(self._errors(row, entrant))
            tables["samples"].extend(self._samples(row))
        row["flags"] = ["noisy"] if self._random.random() < 0.03 else []
        row["record"] = _record(row)
        if self._random.random() < 0.001:
            row["invalidated_at"], row["invalid_reason"] = row["ended_at"], "the GPU was shared"
        tables["runs"].append(row)
        return row

    def _outcome(self, machine: Machine, entrant: Entrant, case: Case) -> tuple[str, str | None]:
        if not self._fails:
            return "ok", None
        logits = 4 * case.tokens * case.vocab * (2 if entrant.factor > 2.3 else 0.1)
        if logits > machine.gib * 2**30:
            return "out_of_memory", "CUDA out of memory"
        chance = self._random.random()
        if chance < 0.003:
            return "failed", "the measuring process ended with signal 11"
        if chance < 0.005:
            return "wrong", "dx: relative error 0.3"
        if chance < 0.008:
            return "unsupported", "no kernel for this device"
        return "ok", None

    def _numbers(self, machine: Machine, entrant: Entrant, place: Place, step: int) -> Row:
        case, pass_ = place
        work = 2.0 * case.tokens * case.hidden * case.vocab * (1 if pass_ == "forward" else 3)
        floor = work / machine.tflops / 1e9
        noise = self._random.standard_normal(4) * 0.01
        # a version makes a step of some per cent, up or down
        stepped = entrant.factor * (1 + 0.05 * ((step * 7) % 3 - 1))
        latency = floor * stepped * (1 + noise[0])
        baseline = floor * ENTRANTS[0].factor * (1 + noise[1])
        ratio = latency / baseline
        logits = 2 * case.tokens * case.vocab
        share = 1.0 if entrant.factor > 2.3 else 0.12
        return {
            "latency_ms": latency,
            "latency_low_ms": latency * 0.99,
            "latency_high_ms": latency * 1.01,
            "samples": 3 * self._visits,
            "baseline_ms": baseline,
            "floor_ms": floor,
            "ratio_to_baseline": ratio,
            "ratio_low": ratio * 0.985,
            "ratio_high": ratio * 1.015,
            "floor_ratio": latency / floor,
            "tokens_per_s": case.tokens / latency * 1000,
            "compile_s": 1.5 + abs(noise[2]) * 100,
            "peak_forward_bytes": int(logits * share * 2),
            "held_bytes": int(logits * share),
            "peak_backward_bytes": int(logits * share * 3),
            "outputs_bytes": 2 * (case.tokens + case.vocab) * case.hidden,
            "workspace_bytes": int(logits * share * 2.5),
            "grade": "fair" if noise[3] < 0.02 else "coarse",
        }

    def _errors(self, row: Row, entrant: Entrant) -> Iterator[Row]:
        outputs = ("loss",) if row["pass"] == "forward" else ("loss", "dx", "dw")
        for output in outputs:
            error = float(2e-3 * (1 + 0.1 * self._random.standard_normal()))
            yield {
                "run_id": row["id"],
                "output": output,
                "relative_l2": error,
                "ratio": error / 1.8e-3,
                "max_abs": error * 5,
                "detail": {"yardstick_relative_l2": 1.8e-3, "cosine_distance": 1e-6, "bias": 1e-7},
            }

    def _samples(self, row: Row) -> Iterator[Row]:
        noise = 1 + 0.01 * self._random.standard_normal((3, self._visits))
        blocks = (row["latency_ms"] * noise).astype("<f4")
        for process in range(3):
            yield {
                "run_id": row["id"],
                "arm": "contender",
                "process": process,
                "n": self._visits,
                "visit_sizes": [1] * self._visits,
                "latency_ms": zlib.compress(blocks[process].tobytes(), 1),
            }


def _sizes(entrant: Entrant, version: str, place: Place) -> Row:
    case, pass_ = place
    text = entrant.text(version)
    return {
        "cell_key": f"{text} | {case.text} | {pass_}",
        "contender": text,
        "kernel": entrant.kernel,
        "version": version,
        "params": entrant.params,
        "case_text": case.text,
        "tokens": case.tokens,
        "hidden": case.hidden,
        "vocab": case.vocab,
        "dtype": case.dtype,
        "recipe": "normal",
        "pass": pass_,
        "baseline": "torch-naive",
        "processes": 3,
        "seed": 0,
        "protocol_version": 2,
        "imported": False,
    }


def _record(row: Row) -> Row:
    """About a kilobyte, as much of a whole record as the size of the test data allows."""
    median = row.get("latency_ms")
    names = ("median", "mean", "minimum", "q1", "q3", "p95", "mad")
    summary = {f"{name}_ms": median for name in names} | {"n": 36, "outliers": 0}
    return {
        "version": row["version"],
        "outcome": row["outcome"],
        "reason": row["reason"],
        "baseline": {"kernel": "torch-naive", "version": None, "params": {}},
        "processes": 3,
        "seed": 0,
        "measurement": {"latency": summary} if median else None,
        "details": {"source_hash": "0123456789abcdef" * 4, "profile": ["kernel_a", "kernel_b"]},
    }


def _cell(job_id: str, position: int, case_index: int, run: Row) -> Row:
    return {
        "job_id": job_id,
        "position": position,
        "case_index": case_index,
        "contender": run["contender"],
        "case_text": run["case_text"],
        "pass": run["pass"],
        "cell_key": run["cell_key"],
        "state": "done",
        "attempt": 1,
        "deaths": 0,
        "visits_done": 9,
        "visits_total": 9,
        "outcome": run["outcome"],
        "reason": run["reason"],
        "reused": False,
        "run_id": run["id"],
        "started_at": run["started_at"],
        "ended_at": run["ended_at"],
    }


def _comparison(cmp_id: str, job_id: str, base: Row, candidate: Row) -> Row:
    times = (base.get("latency_ms"), candidate.get("latency_ms"))
    ratio = times[1] / times[0] if times[0] and times[1] else None
    verdict = "inconclusive" if ratio is None else "faster" if ratio < 0.98 else "no_difference"
    return {
        "id": cmp_id,
        "job_id": job_id,
        "base": base["contender"],
        "candidate": candidate["contender"],
        "case_text": base["case_text"],
        "pass": base["pass"],
        "verdict": verdict,
        "reason": None if ratio else "a side has no time",
        "ratio": ratio,
        "ratio_low": ratio and ratio * 0.99,
        "ratio_high": ratio and ratio * 1.01,
        "detectable_effect": 0.02,
        "processes": 6,
        "looks": 2,
        "log_ratios": [0.01, -0.01, 0.0, 0.02, -0.02, 0.0],
        "base_run_id": base["id"],
        "candidate_run_id": candidate["id"],
        "environment_id": base["environment_id"],
        "protocol_version": 2,
        "measured_at": base["ended_at"],
    }


def _job_row(job_id: str, kind: str, begin: datetime, names: list[str], places: list[Place]) -> Row:
    cases = [place[0] for place in places]
    widths = dict.fromkeys((case.hidden, case.vocab) for case in cases)
    request = {
        "kind": kind,
        "contenders": names,
        "shapes": [
            {"tokens": cases[0].tokens, "hidden": hidden, "vocab": vocab}
            for hidden, vocab in widths
        ],
        "sweep": {"tokens": sorted({case.tokens for case in cases})},
        "dtypes": sorted({case.dtype for case in cases}),
        "passes": list(PASSES),
        "labels": {"branch": "main"},
    }
    return {
        "id": job_id,
        "kind": kind,
        "state": "done",
        "request": request,
        "labels": {"branch": "main"},
        "accelerator": "any",
        "priority": 5,
        "processes": 3,
        "timeout_s": 600.0,
        "cells_total": len(names) * len(places),
        "estimated_s": 20.0 * len(places),
        "created_at": begin,
        "started_at": begin,
        "ended_at": begin + timedelta(seconds=20 * len(places)),
    }
