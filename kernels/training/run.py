"""One training run: one contender's loss, one seed; it can stop anywhere and go on bit for bit.

A step cuts the graph at the hidden states: the loss runs forward and backward on them, then the
rest of the model runs backward. So the loss's share of a step is measured and not guessed.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..problem import DTYPES
from ..protocol import LossFunction
from .model import make_model
from .record import RunRecord, StepRecord, TrainingSettings
from .text import Corpus, batch_of, validation_batches

BETAS = (0.9, 0.95)
WEIGHT_DECAY = 0.1
MOST_GRADIENT_NORM = 1.0
LAST_RATE = 0.1
"""The cosine ends at this share of the learning rate."""
VALIDATION_ROWS = 1024
"""Rows of float32 logits at a time."""


@dataclass(frozen=True)
class Arm:
    """What is trained with: a loss under a name.

    `reordered` hands it the tokens of a step in reverse order: the same mean and the same gradients
    but for the order of sums, so a control that shows what rounding alone does to a curve.
    """

    name: str
    loss: LossFunction
    reordered: bool = False


def learning_rate(settings: TrainingSettings, step: int) -> float:
    """Rate of step 1, 2, ...: linear for a tenth of the steps (at most 100), then a cosine."""
    warm = max(1, min(100, settings.steps // 10))
    if step <= warm:
        return settings.learning_rate * step / warm
    done = (step - warm) / max(1, settings.steps - warm)
    share = LAST_RATE + (1 - LAST_RATE) * 0.5 * (1 + math.cos(math.pi * done))
    return settings.learning_rate * share


class Clock:
    """Marks in time: CUDA events on a GPU, so that nothing waits; else the processor's clock."""

    def __init__(self, device: str) -> None:
        self._on_gpu = device == "cuda"

    def mark(self) -> Any:
        """A mark, now."""
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def between_ms(self, first: Any, second: Any) -> float:
        """Milliseconds from mark to mark; on a GPU only after it has been waited for."""
        if self._on_gpu:
            return float(first.elapsed_time(second))
        return float(second - first) * 1e3


class MemoryWatch:
    """Peaks of CUDA memory; None elsewhere."""

    def __init__(self, device: str) -> None:
        self._on_gpu = device == "cuda"
        self.peak: int | None = 0 if self._on_gpu else None
        self.workspace: int | None = 0 if self._on_gpu else None
        self._start = 0

    def before_loss(self) -> None:
        """The loss comes next."""
        if self.peak is not None:
            self.peak = max(self.peak, torch.cuda.max_memory_allocated())
            torch.cuda.reset_peak_memory_stats()
            self._start = torch.cuda.memory_allocated()

    def after_loss(self) -> None:
        """The loss has run forward and backward."""
        if self.peak is not None and self.workspace is not None:
            most = torch.cuda.max_memory_allocated()
            stays = max(self._start, torch.cuda.memory_allocated())
            self.peak = max(self.peak, most)
            self.workspace = max(self.workspace, most - stays)


class TrainingRun:
    """A model, its optimiser and where it stands; `advance` trains it."""

    def __init__(
        self, settings: TrainingSettings, corpus: Corpus, arm: Arm, seed: int, device: str
    ) -> None:
        """Device "cpu" or "cuda". Raises: ValueError for an unknown size."""
        self.settings, self.corpus, self.arm = settings, corpus, arm
        self.seed, self.device = seed, device
        self.step = 0
        self.diverged = False
        self.model = make_model(
            settings.size, settings.vocab, settings.sequence, settings.tied, seed
        ).to(device)
        self.parameters = list(self.model.parameters())
        groups: list[dict[str, Any]] = [
            {"params": [p for p in self.parameters if p.dim() >= 2]},
            {"params": [p for p in self.parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(
            groups,
            lr=settings.learning_rate,
            betas=BETAS,
            weight_decay=WEIGHT_DECAY,
        )
        self._clock, self.memory = Clock(device), MemoryWatch(device)

    @property
    def ended(self) -> bool:
        """Whether no step is left."""
        return self.diverged or self.step >= self.settings.steps

    def advance(self, to: int) -> list[StepRecord]:
        """Train up to and including step `to`; the steps made.

        A loss that is not finite ends the run with that step.
        """
        made = []
        while self.step < min(to, self.settings.steps) and not self.diverged:
            self.step += 1
            made.append((self.step, *self._one_step()))
        if self.device == "cuda":
            torch.cuda.synchronize()
        records = []
        for step, loss, norms, marks in made:
            value = float(loss)
            records.append(
                StepRecord(
                    step,
                    value,
                    float(torch.linalg.vector_norm(norms)),
                    int((~torch.isfinite(norms)).sum()),
                    self._clock.between_ms(marks[0], marks[3]),
                    self._clock.between_ms(marks[1], marks[2]),
                )
            )
            if not math.isfinite(value):
                self.diverged, self.step = True, step
                break
        return records

    def _autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(
            self.device, torch.bfloat16, enabled=self.settings.dtype == "bfloat16"
        )

    def _one_step(self) -> tuple[Tensor, Tensor, list[Any]]:
        """Loss before the update, gradient norms by parameter, and four marks in time."""
        marks = [self._clock.mark()]
        inputs, target = batch_of(self.corpus.training, self.settings, self.seed, self.step)
        inputs, target = inputs.to(self.device), target.to(self.device)
        rate = learning_rate(self.settings, self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with self._autocast():
            hidden: Tensor = self.model(inputs)
        leaf = hidden.detach().requires_grad_()
        self.memory.before_loss()
        marks.append(self._clock.mark())
        loss = self._loss(leaf, target)
        loss.backward()  # type: ignore[no-untyped-call]
        marks.append(self._clock.mark())
        self.memory.after_loss()
        hidden.backward(leaf.grad)  # type: ignore[no-untyped-call]
        norms = self._clip()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        marks.append(self._clock.mark())
        return loss.detach(), norms, marks

    def _loss(self, hidden: Tensor, target: Tensor) -> Tensor:
        """The contender's mean loss, called as a training script calls it."""
        weight = self.model.head
        if self.settings.cast == "outside":
            dtype = DTYPES[self.settings.dtype]
            hidden, weight = hidden.to(dtype), weight.to(dtype)
        if self.arm.reordered:
            hidden, target = hidden.flip(0), target.flip(0)
        with self._autocast():
            return self.arm.loss(hidden, weight, target)

    def _clip(self) -> Tensor:
        """Scale gradients to a norm of at most 1; L2 norm of each before, float32."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norms = torch.stack([torch.linalg.vector_norm(g) for g in gradients])
        scale = (MOST_GRADIENT_NORM / (torch.linalg.vector_norm(norms) + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(scale)
        return norms

    @torch.no_grad()
    def validation_loss(self) -> float:
        """Nats a token on the validation part, by torch's own loss in float32."""
        total, count = 0.0, 0
        for inputs, target in validation_batches(self.corpus.validation, self.settings):
            hidden = self.model(inputs.to(self.device))
            for start in range(0, len(target), VALIDATION_ROWS):
                part = slice(start, start + VALIDATION_ROWS)
                logits = F.linear(hidden[part], self.model.head)
                wanted = target[part].to(self.device)
                total += float(F.cross_entropy(logits, wanted, reduction="sum"))
            count += len(target)
        return total / count

    def save(self, path: Path) -> None:
        """Write a checkpoint; a kill leaves the one before it whole."""
        beside = path.with_suffix(".part")
        state = {
            "step": self.step,
            "diverged": self.diverged,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "memory": (self.memory.peak, self.memory.workspace),
        }
        with beside.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)

    def load(self, path: Path) -> None:
        """Go on from a checkpoint of a run of the same settings, contender and seed."""
        state = torch.load(path, map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.diverged = state["step"], state["diverged"]
        self.memory.peak, self.memory.workspace = state["memory"]

    def finish(self, steps: Sequence[StepRecord], resumed: int = 0) -> RunRecord:
        """The record of an ended run, from all its steps. Validates it, unless it diverged."""
        counted = steps[self.settings.warm_up_steps :]
        validation = None if self.diverged else self.validation_loss()
        return RunRecord(
            arm=self.arm.name,
            seed=self.seed,
            outcome="diverged" if self.diverged else "ok",
            steps=self.step,
            parameters=sum(p.numel() for p in self.parameters),
            tokens_per_s=_rate(counted, self.settings.tokens_per_step),
            loss_share=_median([each.loss_ms / each.step_ms for each in counted]),
            peak_bytes=self.memory.peak,
            workspace_bytes=self.memory.workspace,
            nonfinite_steps=sum(1 for each in steps if each.nonfinite),
            validation_loss=validation,
            perplexity=None if validation is None else math.exp(min(validation, 700.0)),
            final_loss=steps[-1].loss if steps else None,
            resumed=resumed,
        )


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _rate(steps: Sequence[StepRecord], tokens: int) -> float | None:
    """Tokens a second of the median step; None without a step after warm-up."""
    middle = _median([each.step_ms for each in steps])
    return None if middle is None else tokens * 1e3 / middle
