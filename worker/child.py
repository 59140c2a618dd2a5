"""A measuring process: obeys the worker's commands, one at a time, and dies with it.

Run as `python -P -m lossbench.worker.child`; commands come on standard input, replies leave on the
file descriptor named by LOSSBENCH_REPLY_FD. What kernels print goes to standard output: the log.
"""

import contextlib
import ctypes
import gc
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from lossbench.service.contract.words import Outcome
from lossbench.service.settings import Settings

from .known_contenders import register_known
from .messages import (
    LOCK_FD_VARIABLE,
    REPLY_FD_VARIABLE,
    AddArm,
    AddFloor,
    Check,
    CheckGridCase,
    Command,
    MakeVisit,
    Prepare,
    ReadVitals,
    Release,
    Reply,
    Warm,
)

PR_SET_PDEATHSIG = 1
FATAL_WORDS = (
    "CUDA error",
    "cuDNN error",
    "CUBLAS_STATUS",
    "device-side assert",
    "unspecified launch",
)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the worker's spawning thread ends."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def die_first() -> None:
    """Where memory runs out, Linux shall end this process and not the worker."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


class Child:
    """State of the process: the prepared case and the vitals sampler."""

    def __init__(self) -> None:
        import torch

        from .bench import CaseBench
        from .disturbances import CompileWatch, RetryWatch
        from .vitals import VitalsSampler

        self._torch, self._bench_class = torch, CaseBench
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.interpreted = os.environ.get("TRITON_INTERPRET") == "1"
        self.vitals = VitalsSampler()
        self._bench: Any = None
        self._checker: Any = None
        self._compiled, self._retries = CompileWatch(), RetryWatch()
        torch.set_float32_matmul_precision("highest")

    @property
    def bench(self) -> Any:
        """The prepared case. Raises RuntimeError where none is."""
        if self._bench is None:
            raise RuntimeError("no case is prepared")
        return self._bench

    def obey(self, command: Command) -> dict[str, Any]:
        """Carry out one command; returns the reply's data."""
        from .timing import make_visit, warm_up

        match command:
            case Prepare():
                self._release()
                self._bench = self._bench_class(
                    command.case, command.seed, self.device, self.interpreted
                )
                return {}
            case AddArm():
                return dict(self.bench.add_contender(command.arm, command.contender, command.pass_))
            case AddFloor():
                self.bench.add_floor(command.arm, command.pass_)
                return {}
            case Warm():
                arm = self.bench.arms[command.arm]
                self.vitals.start()
                settled = self.vitals.is_steady
                steady = warm_up(arm, self.bench.stopwatch, command.least_s, settled=settled)
                return {"steady": steady}
            case MakeVisit():
                self.vitals.start()
                began_s = time.monotonic()
                # what happened before, in other arms or between visits, is in no time of this one
                self._compiled.since_last()
                self._retries.since_last()
                visit = make_visit(self.bench.arms[command.arm], self.bench.stopwatch)
                return {
                    "compiled": self._compiled.since_last(),
                    "alloc_retries": self._retries.since_last(),
                    "latency_ms": visit.latency_ms,
                    "host_ms": visit.host_ms,
                    "clock_mhz": self.vitals.clock_since(began_s),
                }
            case Check():
                return dict(self.bench.check(command.arm, command.only_bits))
            case CheckGridCase():
                return self._grid(command)
            case ReadVitals():
                return self._read_vitals()
            case Release():
                self._release()
                return {}

    def _grid(self, command: CheckGridCase) -> dict[str, Any]:
        """The verdict of one case of the correctness grid."""
        from lossbench.kernels.checks.grid import BY_ID

        from .checks import GridChecker

        key = command.contender.text
        if self._checker is None or self._checker[0] != key:
            checker = GridChecker(command.contender, self.device, self.interpreted)
            self._checker = (key, checker)
        found = self._checker[1].check(BY_ID[command.grid_case])
        if BY_ID[command.grid_case].large:
            self._release()
        return dict(found.model_dump(mode="json"))

    def _read_vitals(self) -> dict[str, Any]:
        """What the device did since the last reading, and what the autotuner chose."""
        from .disturbances import autotune_choices

        signs = self.vitals.stop()
        return {
            **vars(signs),
            "flags": signs.flags(),
            "throttle_s": signs.throttle_s(),
            "autotune": autotune_choices(),
        }

    def _release(self) -> None:
        self._bench = None
        gc.collect()
        if self.device == "cuda":
            self._torch.cuda.empty_cache()

    def answer(self, command: Command) -> Reply:
        """Reply to a command; every exception becomes an outcome with a one-line reason."""
        from lossbench.kernels.errors import UnsupportedHere

        from .memory import memory_ran_out

        try:
            return Reply(ok=True, data=_plain(self.obey(command)))
        except UnsupportedHere as unsupported:
            return Reply(ok=False, outcome=Outcome.UNSUPPORTED, reason=unsupported.reason)
        except self._torch.OutOfMemoryError as error:
            reason = str(error).splitlines()[0]
        except MemoryError as error:
            return _host_memory_gone(error)
        except Exception as error:  # whatever a contender raises is this cell's result
            if memory_ran_out(error):
                return _host_memory_gone(error)
            traceback.print_exc()
            text = next(iter(str(error).splitlines()), "")
            reason = f"{type(error).__name__}: {text}"[:500]
            fatal = any(word in str(error) for word in FATAL_WORDS)
            return Reply(ok=False, outcome=Outcome.FAILED, reason=reason, fatal=fatal)
        # outside the except block: the traceback holds the tensors that did not fit
        gc.collect()
        if self.device == "cuda":
            self._torch.cuda.empty_cache()
        return Reply(ok=False, outcome=Outcome.OUT_OF_MEMORY, reason=reason)


def _host_memory_gone(error: BaseException) -> Reply:
    """The answer of a process that has eaten the machine's memory: it is ended, which frees it."""
    text = next(iter(str(error).splitlines()), "") or type(error).__name__
    reason = f"the machine's memory ran out: {text}"[:500]
    return Reply(ok=False, outcome=Outcome.OUT_OF_MEMORY, reason=reason, fatal=True)


def _plain(value: Any) -> Any:
    """Infinity and NaN as null: the reply is JSON."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return None
    return value


def main() -> None:
    """Serve commands until standard input closes or a fatal error."""
    die_with_parent()
    die_first()
    os.environ.pop(LOCK_FD_VARIABLE, None)
    replies = os.fdopen(int(os.environ.pop(REPLY_FD_VARIABLE)), "w", buffering=1)
    commands: TypeAdapter[Command] = TypeAdapter(Command)
    # plugins, and the operator's contenders where this process is one of theirs
    register_known(Settings())
    child = Child()
    replies.write(json.dumps({"ready": True, "pid": os.getpid()}) + "\n")
    for line in sys.stdin:
        reply = child.answer(commands.validate_json(line))
        sys.stdout.flush()
        replies.write(reply.model_dump_json() + "\n")
        if reply.fatal:
            sys.exit(1)


if __name__ == "__main__":
    main()
