"""What a proving process is asked, and how it is started; needs no torch on this side."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.errors import SetupError
from lossbench.service.contract.run import Record

from .children import child_variables
from .measure import VISITS

PLANTED = {"A+1%": 0.01, "A+2%": 0.02, "A+5%": 0.05}
"""Arms with extra work, and the share of a call that it takes."""
ARMS = ("A", "A'", *PLANTED)


class ProofTask(Record):
    """Shapes that one process times. `quick`: visits of 0.08 s in place of 0.4."""

    process: int
    cases: tuple[Case, ...]
    contender: Contender
    visits: int = VISITS
    seed: int = 0
    quick: bool = False


class ProofProcess:
    """A proving process: it imports torch at once, and measures when it gets its task."""

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "lossbench.worker.proof"],
            env=child_variables(None, False, own=variables or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def lines(self, task: ProofTask) -> Iterator[dict[str, Any]]:
        """What each shape gave, as it is measured. Raises SetupError if the process is lost."""
        process = self._process
        if process.stdin is None or process.stdout is None:
            raise SetupError("the proving process has no pipes")
        try:
            process.stdin.write(task.model_dump_json() + "\n")
            process.stdin.close()
        except BrokenPipeError:
            raise SetupError("the proving process ended before it got its task") from None
        for line in process.stdout:
            if line.startswith("{") and "ready" not in (found := json.loads(line)):
                yield found
        if process.wait() != 0:
            raise SetupError(f"the proving process ended with exit code {process.returncode}")

    def close(self) -> None:
        """End it now."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None and not stream.closed:
                stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
