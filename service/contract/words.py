"""The closed word lists of lossbench: every enumeration that is stored, sent or drawn."""

from enum import StrEnum


class Pass(StrEnum):
    """Which part of the loss is timed."""

    FORWARD = "forward"
    BACKWARD = "backward"
    FORWARD_BACKWARD = "forward_backward"


class Dtype(StrEnum):
    """Element type of input and weight, in torch's spelling."""

    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"

    @property
    def bytes(self) -> int:
        """Size of one element in bytes."""
        return {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}[self.value]


class Recipe(StrEnum):
    """How the inputs of a case are made."""

    NORMAL = "normal"
    UNIT_NORMAL = "unit_normal"
    TRAINED = "trained"
    ZIPF_LABELS = "zipf_labels"
    LARGE_LOGITS = "large_logits"


class Outcome(StrEnum):
    """How a cell ended; always stored with a reason unless `ok`."""

    OK = "ok"
    OUT_OF_MEMORY = "out_of_memory"
    WRONG = "wrong"
    UNSUPPORTED = "unsupported"
    TIMED_OUT = "timed_out"
    FAILED = "failed"
    CANCELLED = "cancelled"


RETRIED = frozenset({Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CANCELLED})
"""Outcomes that say nothing about the contender: `retry` runs them again, reuse skips them."""

FAILURES = RETRIED | {Outcome.WRONG}
"""Outcomes that make a command exit with 1. `out_of_memory` and `unsupported` are answers."""


class Grade(StrEnum):
    """Error of an `ok` cell relative to the yardstick, torch's own error in the same dtype."""

    EXACT = "exact"
    FAIR = "fair"
    COARSE = "coarse"
    POOR = "poor"


class Verdict(StrEnum):
    """What a comparison says about the candidate's time against the base's."""

    SLOWER = "slower"
    FASTER = "faster"
    NO_DIFFERENCE = "no_difference"
    INCONCLUSIVE = "inconclusive"


class JobState(StrEnum):
    """Life of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """True when nothing more will happen to the job."""
        return self in {JobState.DONE, JobState.FAILED, JobState.CANCELLED}


class CellState(StrEnum):
    """Life of one cell inside a job."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"


class LotState(StrEnum):
    """Life of a lot, the part of a job that one worker takes at a time."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"


class Flag(StrEnum):
    """What a reader must know about how a result was measured."""

    THROTTLED = "throttled"
    POWER_CAPPED = "power_capped"
    NOISY = "noisy"
    DRIFT = "drift"
    NOT_STEADY = "not_steady"
    LOW_N = "low_n"
    LAUNCH_BOUND = "launch_bound"
    COMPILE_IN_TIMING = "compile_in_timing"
    ALLOC_RETRY = "alloc_retry"
    FOREIGN_PROCESS = "foreign_process"
    MULTI_MODAL = "multi_modal"
    SUSPECT = "suspect"
    MEMORY_NONDETERMINISTIC = "memory_nondeterministic"
    GRADIENTS_IN_FORWARD = "gradients_in_forward"
    INTERPRETED = "interpreted"
    CPU = "cpu"


class Arm(StrEnum):
    """What a stored block of samples timed."""

    CONTENDER = "contender"
    BASELINE = "baseline"
    FLOOR = "floor"


class JobKind(StrEnum):
    """What a job asks for."""

    BENCHMARK = "benchmark"
    COMPARE = "compare"
    TRAIN = "train"


class Scope(StrEnum):
    """What a token may do."""

    READ = "read"
    SUBMIT = "submit"
    ADMIN = "admin"
