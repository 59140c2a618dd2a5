"""Measure without a server: the same children and protocol, nothing stored."""

from collections.abc import Iterator
from datetime import UTC, datetime

from lossbench.service.contract.comparison import ComparisonRecord
from lossbench.service.contract.plan import Plan, PlannedCell
from lossbench.service.contract.run import Cell
from lossbench.service.settings import Settings

from .assemble import Occasion
from .children import Spawner
from .compare import conclude, versus
from .device import probe_device
from .environments import Environments
from .install import Installer
from .known_contenders import KnownContenders, register_known
from .locks import take_device_lock
from .measure import CaseMeasurer
from .order import CaseOrder, CellOrder, CellResult, Progress, Say, silence
from .pool import ChildPool


class LocalRunner:
    """Runs planned jobs in this process's own children; use as a context manager.

    `comparisons` has what comparisons found, in the order measured.
    """

    def __init__(
        self, settings: Settings, gpu: int | None = None, known: KnownContenders | None = None
    ) -> None:
        """`known`: what is registered in this process already; found and registered if None."""
        self.comparisons: list[ComparisonRecord] = []
        known = register_known(settings) if known is None else known
        data_dir = settings.prepared_data_dir()
        self.environment, self.device_fault = probe_device(gpu)
        self._lock_fd = take_device_lock(data_dir, self.environment.device_uuid_hash)
        self._spawner = Spawner()
        self._pool = ChildPool(self._spawner, self._lock_fd, settings.max_children)
        installer = Installer(data_dir, settings.wheel_dir)
        self._environments = Environments(installer, self.environment.device_type, known)

    def __enter__(self) -> "LocalRunner":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()
        self._spawner.close()

    def run(
        self, plan: Plan, progress: Progress = lambda _: None, say: Say = silence
    ) -> Iterator[tuple[PlannedCell, CellResult]]:
        """Measure case by case; yields every cell with its result, refused cells first."""
        for number, planned in enumerate(plan.cells):
            if planned.outcome is not None:
                yield planned, CellResult(number, planned.outcome, planned.reason, None, "")
        for lot in plan.lots:
            for case_index in range(len(lot.cases)):
                chosen = [
                    (number, planned)
                    for number, planned in enumerate(plan.cells)
                    if (planned.lot, planned.case_index) == (lot.index, case_index)
                    and planned.outcome is None
                ]
                if chosen:
                    yield from self._run_case(plan, chosen, (progress, say))

    def _run_case(
        self, plan: Plan, chosen: list[tuple[int, PlannedCell]], told: tuple[Progress, Say]
    ) -> Iterator[tuple[PlannedCell, CellResult]]:
        request = plan.request
        cells = [(number, planned.cell) for number, planned in chosen]
        measured_cells = [(number, cell) for number, cell in cells if isinstance(cell, Cell)]
        order = CaseOrder(
            case=measured_cells[0][1].case,
            cells=tuple(CellOrder(n, c.contender, c.pass_) for n, c in measured_cells),
            baseline=request.baseline,
            processes=request.least_processes,
            timeout_s=request.timeout_s,
            versus=versus(request, request.contenders) if request.is_comparison else None,
        )
        started = datetime.now(UTC)
        measurer = CaseMeasurer(self._environments, self._pool, *told)
        findings, endings = measurer.measure(order)
        occasion = Occasion(self.environment, "local", started, datetime.now(UTC))
        measured = conclude(order, findings, endings, occasion)
        self.comparisons += measured.comparisons
        for (_, planned), result in zip(chosen, measured.results, strict=True):
            yield planned, result
