"""The service in this process, a worker in a child process, and how both end together."""

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import uvicorn

from ..contract.errors import SetupError
from ..settings import Settings

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0


def make_application(settings: Settings, open_mode: bool) -> tuple[Any, Any]:
    """The ASGI application with API and pages, and its context. Migrates the database."""
    from lossbench.web.app import create_app

    from ..api.context import ServiceContext
    from ..api.security import AuthMode

    mode = AuthMode.OPEN if open_mode else AuthMode.TOKENS
    context = ServiceContext.create(settings, mode)
    return create_app(context), context


class Service:
    """uvicorn on a given socket, in a thread of this process."""

    def __init__(self, settings: Settings, listener: socket.socket, open_mode: bool) -> None:
        app, self._context = make_application(settings, open_mode)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=3,
            ws="none",
        )
        self._server = uvicorn.Server(config)
        self._listener = listener
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="service")

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._listener])
        except BaseException as error:  # shown by the main thread
            self._failure = error

    def start(self) -> None:
        """Begin to serve; returns when requests are answered. Raises SetupError."""
        self._context.start()
        self._thread.start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._server.started:
            if self._failure is not None or not self._thread.is_alive():
                raise SetupError(f"the service did not start: {self._failure}")
            if time.monotonic() > deadline:
                raise SetupError(f"the service did not start within {START_TIMEOUT_S:g} s")
            time.sleep(0.02)

    def stop(self) -> None:
        """Finish open requests, then close the database."""
        # open event streams end first: the server would wait for them
        self._context.hub.stop()
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(timeout=STOP_TIMEOUT_S)
        self._context.close()


def serve_until_stopped(
    settings: Settings, listener: socket.socket, open_mode: bool, ready: Callable[[], None]
) -> None:
    """Serve until SIGINT or SIGTERM; `ready` is called when requests are answered."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    service = Service(settings, listener, open_mode)
    try:
        service.start()
        # what is there now stays: a collection that looks through it stops every request for 0.1 s
        gc.collect()
        gc.freeze()
        # an answer makes tens of thousands of objects and drops them: looked at less often
        gc.set_threshold(20_000, 20, 20)
        ready()
        while not stopped.wait(0.5):
            pass
    finally:
        service.stop()


class WorkerProcess:
    """A worker beside the service, in a process of its own."""

    def __init__(self, settings: Settings) -> None:
        variables = dict(
            os.environ,
            LOSSBENCH_DATA_DIR=str(settings.data_dir),
            LOSSBENCH_DATABASE_URL=settings.database_url or "",
            PYTHONSAFEPATH="1",
        )
        # it is in the URL by now
        variables.pop("LOSSBENCH_DATABASE_URL_FILE", None)
        command = [sys.executable, "-P", "-m", "lossbench.service.cli.main", "worker"]
        # a session of its own: Ctrl-C reaches the service first, which then ends the worker
        self._process = subprocess.Popen(
            command, env=variables, start_new_session=True, stdout=subprocess.DEVNULL
        )

    @property
    def exit_code(self) -> int | None:
        """Exit code, or None while it runs."""
        return self._process.poll()

    def stop(self) -> None:
        """Ask it to end; kill it when it does not."""
        self._process.terminate()
        try:
            self._process.wait(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
