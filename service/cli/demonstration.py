"""`lossbench demo`: the seed question as a real job on this device, from nothing to its page."""

import os
import sys
import time
import webbrowser
from typing import Annotated, Any

import typer

from ..contract.errors import PortInUseError, SetupError
from ..settings import Settings
from .output import console, errors
from .serving import bound_socket

WORKER_TIMEOUT_S = 180.0
GPU_CONTENDERS = [
    "torch-upcast",
    "torch-naive",
    "torch-compile-chunked[chunk_rows=256]",
    "torch-compile-chunked[chunk_rows=1024]",
    "liger@0.4.2",
    "liger@0.5.0",
    "liger",
    "flce",
]
GPU_SHAPES = ((8192, 4096, 128256), (32768, 2048, 128000))
CPU_SHAPES = ((256, 256, 8192), (512, 128, 8000))
CPU_CHUNKS = {"chunk_rows=256": "chunk_rows=64", "chunk_rows=1024": "chunk_rows=256"}
ROOMY_BYTES = 80 * 2**30


def demo_job(device_type: str, memory_bytes: int) -> dict[str, Any]:
    """The seed threads' question, sized to a device.

    On a GPU in bfloat16, tokens scaled down where memory is short; on a CPU in float32 (all that
    Triton's interpreter checks) and small enough for two cores.
    """
    if device_type == "cuda":
        scale = 1 if memory_bytes >= ROOMY_BYTES else 4 if memory_bytes >= ROOMY_BYTES / 4 else 16
        shapes = [(n // scale, h, v) for n, h, v in GPU_SHAPES]
        contenders, dtype, processes = GPU_CONTENDERS, "bfloat16", 3
    else:
        shapes, dtype, processes = list(CPU_SHAPES), "float32", 1
        contenders = list(GPU_CONTENDERS)
        for old, new in CPU_CHUNKS.items():
            contenders = [contender.replace(old, new) for contender in contenders]
    return {
        "contenders": contenders,
        "shapes": [{"tokens": n, "hidden": h, "vocab": v} for n, h, v in shapes],
        "dtypes": [dtype],
        "options": {"bias": True},
        "processes": processes,
        "reuse": False,
        "labels": {"made-by": "lossbench demo"},
    }


def demo(
    leave: Annotated[bool, typer.Option("--exit", help="End when the job is done.")] = False,
    port: Annotated[int | None, typer.Option(help="Port; a free one when taken.", min=0)] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    processes: Annotated[
        int | None,
        typer.Option(help="Processes: 3 on a GPU, 1 on a CPU.", min=1, max=24),
    ] = None,
    shipped: Annotated[
        bool, typer.Option(help="Load the H200 results that the package ships.")
    ] = True,
) -> None:
    """Measure real kernels on this machine and show the comparison.

    Starts the service and one worker on an SQLite database, loads the shipped results, sends a real
    job, follows it, prints the page's address. Ctrl-C stops all of it.

    Example: `lossbench demo --exit`
    """
    from .processes import Service, WorkerProcess

    settings = Settings()
    settings.prepared_data_dir()
    listener = _listener(settings, port)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    service = Service(settings, listener, open_mode=True)
    worker: WorkerProcess | None = None
    try:
        if shipped:
            _load_shipped(settings)
        service.start()
        console.print(f"service: {address}")
        worker = WorkerProcess(settings)
        code = _measure(address, worker, browser and not leave, processes)
        if leave:
            sys.exit(code)
        console.print("Ctrl-C stops the service and the worker.")
        while worker.exit_code is None:
            time.sleep(0.5)
        raise SetupError(f"the worker ended with exit code {worker.exit_code}")
    except KeyboardInterrupt:
        console.print("stopping")
    finally:
        if worker is not None:
            worker.stop()
        service.stop()


def _load_shipped(settings: Settings) -> None:
    from ..store.database import Database
    from ..store.set_loading import load_shipped, summary
    from ..store.shipped_tables import import_shipped, table_lines

    database = Database.from_settings(settings)
    for line in (*summary(load_shipped(database)), *table_lines(import_shipped(database))):
        console.print(line)
    database.close()


def _listener(settings: Settings, port: int | None) -> Any:
    try:
        return bound_socket("127.0.0.1", settings.port if port is None else port)
    except PortInUseError:
        if port is not None:
            raise
        return bound_socket("127.0.0.1", 0)


def _measure(address: str, worker: Any, browser: bool, processes: int | None) -> int:
    """Send the job, follow it; 0 only if every cell ended and the page answered."""
    from ..client import LossbenchClient
    from .following import follow_events, job_report
    from .reports import print_report

    with LossbenchClient(address) as client:
        machine = _wait_for_worker(client, worker)
        body = demo_job(str(machine.device_type), machine.memory_bytes or 0)
        if processes is not None:
            body["processes"] = processes
        job = client.submit(body)
        page = f"{address}/jobs/{job.id}"
        minutes = job.estimated_s / 60
        console.print(
            f"{job.id}: {job.cells_total} cells on {machine.device_name}, about {minutes:.0f} min"
        )
        console.print(f"page: {page}")
        if browser and (sys.platform == "darwin" or os.environ.get("DISPLAY")):
            webbrowser.open(page)
        follow_events(client, job)
        ended, pairs = job_report(client, job.id)
        print_report(pairs)
        answered = client.page_answers(f"/jobs/{job.id}")
        console.print(f"{ended.id} {ended.state}: {page}")
    every_cell = all(cell.outcome is not None for cell, _ in pairs)
    if not every_cell:
        errors.print("some cells have no outcome", style="red")
    if not answered:
        errors.print("the page did not answer", style="red")
    return 0 if every_cell and answered else 1


def _wait_for_worker(client: Any, worker: Any) -> Any:
    """The worker's machine, once it takes lots. Raises SetupError."""
    deadline = time.monotonic() + WORKER_TIMEOUT_S
    with errors.status("starting the worker: it looks at the device first"):
        while time.monotonic() < deadline:
            ready = [m for m in client.machines() if m.state in ("idle", "busy")]
            if ready:
                return ready[0]
            if worker.exit_code is not None:
                raise SetupError("the worker could not start; `lossbench doctor` says why")
            time.sleep(0.2)
    raise SetupError(f"no worker within {WORKER_TIMEOUT_S:g} s; `lossbench doctor` says why")
