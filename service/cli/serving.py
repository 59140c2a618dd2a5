"""`lossbench serve`, `worker`, `doctor`: processes that stay, and what this machine can do."""

import os
import signal
import socket
import sys
from types import FrameType
from typing import Annotated

import typer
from rich.text import Text

from ..contract.errors import InvalidRequestError, PortInUseError, SetupError
from ..settings import Settings
from .log_lines import configure_logging
from .output import console, errors, print_json, print_table

Port = Annotated[int | None, typer.Option(help="Port; 0 picks a free one.", min=0, max=65535)]


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(serve)
    app.command()(worker)
    app.command()(doctor)
    from . import demonstration

    app.command()(demonstration.demo)


def bound_socket(host: str, port: int) -> socket.socket:
    """A listening socket. Raises PortInUseError, SetupError for an address that is not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's delay, 40 ms an answer, off only for a socket that says it is TCP
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except PermissionError as error:
        raise SetupError(
            f"port {port} may not be opened by this user; choose one above 1023"
        ) from error
    except OSError as error:
        if error.errno in (98, 48):
            raise PortInUseError(f"port {port} is in use; choose another with --port") from error
        raise SetupError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return listener


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Port = None,
    with_worker: Annotated[
        bool, typer.Option("--with-worker", help="Start one worker beside the service.")
    ] = False,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="No tokens; this machine's browser only.")
    ] = False,
) -> None:
    """Serve the API and the pages.

    Example: `lossbench serve --with-worker --no-auth`
    """
    from .processes import WorkerProcess, serve_until_stopped

    settings = _with(Settings(), host, port)
    # a service says who wrote what; other commands keep to warnings unless told
    configure_logging(settings.log_level)
    if no_auth and settings.host not in ("localhost", "127.0.0.1", "::1"):
        raise SetupError("--no-auth serves this machine only: leave --host at 127.0.0.1")
    listener = bound_socket(settings.host, settings.port)
    address = f"http://{settings.host}:{listener.getsockname()[1]}"
    started: list[WorkerProcess] = []

    def ready() -> None:
        console.print(f"lossbench serves {address}")
        if with_worker:
            started.append(WorkerProcess(settings))

    try:
        serve_until_stopped(settings, listener, open_mode=no_auth, ready=ready)
    finally:
        for process in started:
            process.stop()


def _with(settings: Settings, host: str | None, port: int | None) -> Settings:
    changes: dict[str, object] = {}
    if host is not None:
        changes["host"] = host
    if port is not None:
        changes["port"] = port
    return settings.model_copy(update=changes)


def worker(
    gpu: Annotated[int | None, typer.Option(help="Index of the GPU to measure on.", min=0)] = None,
    queue: Annotated[
        list[str] | None, typer.Option(help="Queue to take lots from; may be repeated.")
    ] = None,
    drain: Annotated[bool, typer.Option("--drain", help="End when the queue is empty.")] = False,
) -> None:
    """Measure jobs on this machine until stopped.

    Example: `lossbench worker --gpu 0`
    """
    from lossbench.worker.main import Worker, WorkerOptions

    process = Worker(Settings(), WorkerOptions(gpu=gpu, queues=tuple(queue or ()), drain=drain))

    def stop(_signal: int, _frame: FrameType | None) -> None:
        process.request_stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    with errors.status("looking at the device"):
        process.start()
    if process.fault is not None:
        errors.print(f"worker {process.id} takes no lots: {process.fault}", style="red")
    else:
        console.print(f"worker {process.id} takes lots from: {', '.join(process.queues)}")
    try:
        process.wait()
    finally:
        process.stop()
    sys.stdout.flush()
    # a step of the lot may still wait, for pip say; the interpreter would wait for its thread
    os._exit(0)


def doctor(
    measure: Annotated[
        bool, typer.Option("--measure", help="Find out how small a difference it can see.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="With --measure: three short processes.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what this machine can measure, and what is missing.

    With --measure it times the same code twice, and slowdowns of 1, 2 and 5 % that it plants.
    Exit 1 where something is missing, or the same code was called different.

    Example: `lossbench doctor --measure --quick`
    """
    from .diagnosis import diagnose

    if quick and not measure:
        raise InvalidRequestError(
            "--quick belongs to --measure: lossbench doctor --measure --quick"
        )
    if measure:
        from .device_proof import prove_here

        sys.exit(prove_here(Settings(), quick, as_json))
    with errors.status("looking at the device"):
        findings = diagnose(Settings())
    if as_json:
        print_json([finding._asdict() for finding in findings])
    else:
        marks = {
            True: Text("ok", style="green"),
            False: Text("missing", style="red"),
            None: Text("note", style="yellow"),
        }
        rows = ((marks[f.good], f.subject, f.text) for f in findings)
        print_table("This machine", ("", "what", "finding"), rows)
    if any(finding.good is False for finding in findings):
        sys.exit(1)
