"""A training process: it holds one run at a time, and obeys its parent segment by segment.

Run as `python -P -m lossbench.worker.training_child`; orders come on standard input, answers leave
on the file descriptor named by LOSSBENCH_REPLY_FD, both a line of JSON each. A run's folder holds
`steps.jsonl`, `checkpoint.pt` until the run has ended, and `result.json` from then on.
"""

import gc
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

from lossbench.kernels.catalogue import build, spec_of, why_unsupported
from lossbench.kernels.errors import UnsupportedHere
from lossbench.kernels.problem import Problem
from lossbench.kernels.protocol import LossFunction
from lossbench.kernels.training.record import StepRecord, TrainingSettings
from lossbench.kernels.training.run import Arm, TrainingRun
from lossbench.kernels.training.sizes import shape_of
from lossbench.kernels.training.text import BadText, Corpus, load_corpus
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.words import Outcome
from lossbench.service.settings import Settings

from .bench import need_here
from .child import die_first, die_with_parent
from .known_contenders import register_known
from .messages import REPLY_FD_VARIABLE
from .training_files import BAD_TEXT, CHECKPOINT, RESULT, STEPS, read_steps, step_lines, write_whole


class Trainer:
    """State of the process: the text, and the run that is open."""

    def __init__(self) -> None:
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.set_float32_matmul_precision("highest")
        self._corpus: tuple[TrainingSettings, Corpus] | None = None
        self._run: TrainingRun | None = None
        self._folder = Path()
        self._resumed = 0

    @property
    def run(self) -> TrainingRun:
        """The open run. Raises RuntimeError where none is."""
        if self._run is None:
            raise RuntimeError("no run is open")
        return self._run

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carry out `open`, `advance` or `finish`; the answer's facts."""
        match order["do"]:
            case "open":
                return self._open(order)
            case "advance":
                return self._advance(int(order["to"]))
            case "finish":
                return self._finish()
        raise ValueError(f"no order {order['do']!r}")

    def _open(self, order: dict[str, Any]) -> dict[str, Any]:
        """Begin a run, or go on where its folder's checkpoint stands."""
        settings = TrainingSettings.from_json(order["settings"])
        torch.set_num_threads(settings.threads)
        self._run = None
        _free(self.device)
        corpus = self._text(settings)
        contender = Contender.parse(order["contender"])
        loss = loss_of(contender, settings, self.device)
        arm = Arm(order["arm"], loss, order["reordered"])
        self._run = TrainingRun(settings, corpus, arm, int(order["seed"]), self.device)
        self._folder = Path(order["folder"])
        self._folder.mkdir(parents=True, exist_ok=True)
        checkpoint = self._folder / CHECKPOINT
        self._resumed = 0
        if checkpoint.exists():
            self._run.load(checkpoint)
            self._resumed = self._run.step
        kept = [each for each in read_steps(self._folder) if each.step <= self._run.step]
        write_whole(self._folder / STEPS, step_lines(kept))
        return {
            "step": self._run.step,
            "ended": self._run.ended,
            "text_sha256": corpus.sha256,
            "text_files": corpus.files,
            "text_bytes": corpus.size_bytes,
            "training_tokens": len(corpus.training),
            "validation_tokens": len(corpus.validation),
        }

    def _text(self, settings: TrainingSettings) -> Corpus:
        if self._corpus is None or self._corpus[0] != settings:
            self._corpus = settings, load_corpus(settings)
        return self._corpus[1]

    def _advance(self, to: int) -> dict[str, Any]:
        """Train to a step; its lines are on the disk before a checkpoint that includes them."""
        run, every = self.run, self.run.settings.checkpoint_every
        made: list[StepRecord] = []
        told: list[StepRecord] = []
        while run.step < to and not run.ended:
            stop = min(to, (run.step // every + 1) * every)
            made = run.advance(stop)
            told += made
            with (self._folder / STEPS).open("a", encoding="utf-8") as file:
                file.write(step_lines(made))
                file.flush()
                os.fsync(file.fileno())
            if run.step % every == 0 or run.ended:
                run.save(self._folder / CHECKPOINT)
        last = made[-1].as_json() if made else {}
        steps = [each.as_json() for each in told]
        return {"step": run.step, "ended": run.ended, "last": last, "steps": steps}

    def _finish(self) -> dict[str, Any]:
        """Validate, write the result, drop the checkpoint."""
        record = self.run.finish(read_steps(self._folder), self._resumed).as_json()
        write_whole(self._folder / RESULT, json.dumps(record) + "\n")
        (self._folder / CHECKPOINT).unlink(missing_ok=True)
        return {"record": record}

    def answer(self, order: dict[str, Any]) -> dict[str, Any]:
        """The answer to an order; every exception becomes an outcome with a one-line reason."""
        try:
            return {"ok": True, **self.obey(order)}
        except BadText as error:
            return {"ok": False, "outcome": BAD_TEXT, "reason": str(error)}
        except UnsupportedHere as error:
            return {"ok": False, "outcome": Outcome.UNSUPPORTED.value, "reason": error.reason}
        except torch.OutOfMemoryError as error:
            reason = str(error).splitlines()[0]
        except Exception as error:  # whatever a contender raises is this run's result
            traceback.print_exc()
            text = next(iter(str(error).splitlines()), "")
            reason = f"{type(error).__name__}: {text}"[:500]
            return {"ok": False, "outcome": Outcome.FAILED.value, "reason": reason}
        # outside the except block: the traceback holds the tensors that did not fit
        self._run = None
        _free(self.device)
        return {"ok": False, "outcome": Outcome.OUT_OF_MEMORY.value, "reason": reason}


def loss_of(contender: Contender, settings: TrainingSettings, device: str) -> LossFunction:
    """The contender's call. Raises UnsupportedHere where it cannot run this training here."""
    spec = spec_of(contender.kernel)
    problem = Problem(
        settings.tokens_per_step, shape_of(settings.size).hidden, settings.vocab, settings.dtype
    )
    version = contender.version if spec.versions else torch.__version__.split("+")[0]
    need = need_here(problem, device, interpreted=False)
    reason = why_unsupported(spec, version, contender.params, need)
    if reason is not None:
        raise UnsupportedHere(reason)
    return build(contender.kernel, version, contender.params)


def _free(device: str) -> None:
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def main() -> None:
    """Serve orders until standard input closes."""
    die_with_parent()
    die_first()
    replies = os.fdopen(int(os.environ.pop(REPLY_FD_VARIABLE)), "w", buffering=1)
    register_known(Settings())
    trainer = Trainer()
    for line in sys.stdin:
        answer = trainer.answer(json.loads(line))
        sys.stdout.flush()
        replies.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
