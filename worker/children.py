"""The worker's side of its measuring processes: spawn, ask, kill."""

import contextlib
import os
import queue
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lossbench.service.contract.errors import ChildDiedError, ChildTimeoutError, LotLostError
from lossbench.service.contract.ids import new_id

from .messages import LOCK_FD_VARIABLE, REPLY_FD_VARIABLE, Command, Reply
from .process_family import CHILD_VARIABLE, WORKER_VARIABLE, end_marked, life_of

LOG_BYTES = 256 * 1024
START_TIMEOUT_S = 180.0
POLL_S = 0.2
_SECRET = re.compile("PASSWORD|PASSWD|SECRET|TOKEN|CREDENTIAL|DATABASE_URL|API_KEY|PGPASS")
"""Names of variables that code of contenders must not see."""


class Spawner:
    """A thread that starts every child and lives as long as the worker.

    A child asks to die with its parent, and Linux means the *thread* that forked it: one started
    from a pool thread of the queue would be killed when that thread ends.
    """

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]
        self._requests = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._loop, daemon=True, name="spawner")
        self._thread.start()

    def _loop(self) -> None:
        while (request := self._requests.get()) is not None:
            call, future = request
            try:
                future.set_result(call())
            except BaseException as error:  # handed to the thread that asked
                future.set_exception(error)

    def run(self, call: Callable[[], Any]) -> Any:
        """Run `call` in the spawning thread and return what it returns.

        Raises LotLostError once the spawner is closed: nobody would answer.
        """
        future: Future[Any] = Future()
        with self._lock:
            if self._closed:
                raise LotLostError("the worker is stopping")
            self._requests.put((call, future))
        return future.result()

    def close(self) -> None:
        """End the thread, and with it every child that still lives."""
        with self._lock:
            self._closed = True
            self._requests.put(None)
        self._thread.join(timeout=5)


class Child:
    """One measuring process. Only one command is under way at a time."""

    def __init__(
        self,
        spawner: Spawner,
        environment: Mapping[str, str],
        lock_fd: int | None,
        still_wanted: Callable[[], None],
    ) -> None:
        """`still_wanted` is called while waiting and raises when the work is cancelled."""
        self._still_wanted = still_wanted
        reply_read, reply_write = os.pipe()
        fds = [reply_write] + ([lock_fd] if lock_fd is not None else [])
        self._mark = new_id("child")
        marks = {CHILD_VARIABLE: self._mark, WORKER_VARIABLE: life_of(os.getpid()) or ""}
        variables = {**environment, **marks, REPLY_FD_VARIABLE: str(reply_write)}
        if lock_fd is not None:
            variables[LOCK_FD_VARIABLE] = str(lock_fd)

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "lossbench.worker.child"],
                env=variables,
                pass_fds=fds,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

        self._process = spawner.run(start)
        os.close(reply_write)
        self._replies = reply_read
        self._pending = b""
        self._log: deque[bytes] = deque()
        self._log_bytes = 0
        self._reader = threading.Thread(target=self._read_log, daemon=True, name="child-log")
        self._reader.start()
        self._ready = False

    @property
    def pid(self) -> int:
        """Process id."""
        return int(self._process.pid)

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def _read_log(self) -> None:
        stream = self._process.stdout
        while stream is not None and (part := stream.read1(65536)):
            self._log.append(part)
            self._log_bytes += len(part)
            while self._log_bytes - len(self._log[0]) > LOG_BYTES:
                self._log_bytes -= len(self._log.popleft())

    def log(self) -> str:
        """The last 256 KiB that the process printed."""
        return b"".join(self._log)[-LOG_BYTES:].decode("utf-8", errors="replace")

    def wait_ready(self) -> None:
        """Wait until the process has imported torch. Raises ChildDiedError, ChildTimeoutError."""
        if not self._ready:
            self._read_line(time.monotonic() + START_TIMEOUT_S)
            self._ready = True

    def ask(self, command: Command, timeout_s: float) -> Reply:
        """Send a command and wait for its reply.

        Raises ChildTimeoutError (the process is killed), ChildDiedError, or what `still_wanted`
        raises.
        """
        self.wait_ready()
        try:
            self._process.stdin.write(command.model_dump_json().encode() + b"\n")
            self._process.stdin.flush()
        except (BrokenPipeError, OSError) as error:
            raise self._died() from error
        reply = Reply.model_validate_json(self._read_line(time.monotonic() + timeout_s))
        if reply.fatal:
            self.kill()
        return reply

    def _read_line(self, deadline: float) -> bytes:
        while b"\n" not in self._pending:
            readable, _, _ = select.select([self._replies], [], [], POLL_S)
            if readable:
                part = os.read(self._replies, 1 << 20)
                if not part:
                    raise self._died()
                self._pending += part
                continue
            if self._process.poll() is not None:
                # what it has forked may hold the pipe open, so no end of it was read
                raise self._died()
            self._still_wanted()
            if time.monotonic() > deadline:
                self.kill()
                raise ChildTimeoutError
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _died(self) -> ChildDiedError:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.kill()
            code = self._process.wait()
        self._reader.join(timeout=1)
        how = f"exit code {code}"
        if code < 0:
            how = f"signal {signal.Signals(-code).name}"
        last = next((line for line in reversed(self.log().splitlines()) if line.strip()), "")
        tail = f": {last[:300]}" if last else ""
        return ChildDiedError(f"the measuring process ended with {how}{tail}")

    def kill(self) -> None:
        """End the process and everything it started, now."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        # what it started may have left its group
        end_marked(self._mark)

    def close(self) -> None:
        """Kill and free the descriptors."""
        self.kill()
        self._reader.join(timeout=1)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        os.close(self._replies)


def child_variables(
    search_path: Path | None,
    interpreted: bool,
    more_paths: Sequence[Path] = (),
    own: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Environment of a child: a contender's folders first, its own variables, the interpreter."""
    inherited = {name: value for name, value in os.environ.items() if not _SECRET.search(name)}
    # a child reads the operator's file only where its own variables name it
    inherited.pop("LOSSBENCH_CONTENDERS_FILE", None)
    variables = {**inherited, **own}
    parts = [str(path) for path in (search_path, *more_paths) if path]
    parts += [part for part in variables.get("PYTHONPATH", "").split(os.pathsep) if part]
    if parts:
        variables["PYTHONPATH"] = os.pathsep.join(parts)
    variables["PYTHONSAFEPATH"] = "1"
    variables["PYTHONUNBUFFERED"] = "1"
    variables.pop("TRITON_INTERPRET", None)
    # threads that spin while they wait would take the cores from the child whose turn it is
    variables.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if interpreted:
        variables["TRITON_INTERPRET"] = "1"
    return variables
