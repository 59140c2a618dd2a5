"""A training that was stored and not run: for suites that ask the whole API. Not a test."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from lossbench.service.store.models import EnvironmentRow, JobRow
from lossbench.service.store.training_models import TrainingRunRow
from lossbench.service.store.training_runs import put_block

STEPS = 40
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def store_training(session: Session, job_id: str = "job-stored-training") -> str:
    """A job with one run of 40 steps by a reference and a contender; returns the job's id."""
    request: dict[str, Any] = {"kind": "train", "contenders": ["torch-naive", "flce@1"]}
    session.add(
        JobRow(
            id=job_id, kind="train", state="done", labels={}, accelerator="cpu", request=request,
            priority=5, processes=3, timeout_s=600.0, cells_total=2, estimated_s=1.0,
            created_at=MOMENT, started_at=MOMENT, ended_at=MOMENT,
        )
    )  # fmt: skip
    session.add(
        EnvironmentRow(
            id=f"env-{job_id}", device_type="cpu", device_name="cpu", hardware_fingerprint="h",
            software_fingerprint="s", memory_bytes=1, facts={}, first_seen_at=MOMENT,
        )
    )  # fmt: skip
    session.flush()
    for position, contender in enumerate(("torch-naive", "flce@1")):
        run_id = f"trn-{job_id}-{position}"
        session.add(
            TrainingRunRow(
                id=run_id, job_id=job_id, position=position, contender=contender,
                kernel=contender.partition("@")[0], reordered=False, seed=0, state="done",
                outcome="ok", steps_done=STEPS, steps_total=STEPS, resumed=0, settings={},
                environment_id=f"env-{job_id}", worker_id="w", started_at=MOMENT,
                updated_at=MOMENT, ended_at=MOMENT, parameters=1_000_000,
                tokens_per_s=5000.0 + 250.0 * position, loss_share=0.3, peak_bytes=2**28,
                workspace_bytes=2**26 >> position, nonfinite_steps=0,
                validation_loss=3.0 + 0.0001 * position, perplexity=20.0855, final_loss=3.0,
                windows=[3.2 - 0.01 * place + 0.001 * position for place in range(20)],
            )
        )  # fmt: skip
        session.flush()
        rows = np.random.default_rng(position).normal(3.0, 0.2, (STEPS, 5)).astype(np.float32)
        put_block(session, run_id, 0, rows)
    return job_id
