"""The resident children of one lot: one per contender environment and process index."""

from collections.abc import Callable

from lossbench.service.contract.errors import LotLostError

from .children import Child, Spawner, child_variables
from .environments import ContenderEnvironment

Key = tuple[str, int]


class ChildPool:
    """Starts children when first asked for and keeps them until the lot ends."""

    def __init__(
        self,
        spawner: Spawner,
        lock_fd: int | None,
        most: int,
        still_wanted: Callable[[], None] = lambda: None,
    ) -> None:
        self._spawner, self._lock_fd, self._most = spawner, lock_fd, most
        self._still_wanted = still_wanted
        self._children: dict[Key, Child] = {}
        self._closed = False

    def child(self, environment: ContenderEnvironment, process: int) -> Child:
        """The child of this environment and process index, started if there is none.

        Raises LotLostError once the pool is closed, as when the worker stops.
        """
        key = (environment.key, process)
        if self._closed:
            raise LotLostError("the lot's measuring processes were ended")
        if key not in self._children:
            variables = child_variables(
                environment.search_path,
                environment.interpreted,
                environment.more_paths,
                environment.variables,
            )
            self._children[key] = Child(self._spawner, variables, self._lock_fd, self._still_wanted)
        return self._children[key]

    def log(self, environment: ContenderEnvironment, process: int) -> str:
        """What the child printed last; empty where there is no child."""
        child = self._children.get((environment.key, process))
        return child.log() if child is not None else ""

    def discard(self, environment: ContenderEnvironment, process: int) -> None:
        """Kill a child; the next `child` starts a fresh one."""
        child = self._children.pop((environment.key, process), None)
        if child is not None:
            child.close()

    def end_of_process(self, process: int) -> None:
        """Above the limit, children of one process index end before the next index starts."""
        if 2 * len([key for key in self._children if key[1] == process]) <= self._most and (
            len(self._children) < self._most
        ):
            return
        for key in [key for key in self._children if key[1] == process]:
            self._children.pop(key).close()

    def abort(self) -> None:
        """Kill all children from another thread than the one that works with them.

        Their descriptors stay open: that thread may be waiting on one this very moment. It finds
        its child dead and the pool closed, and ends with LotLostError.
        """
        self._closed = True
        for child in list(self._children.values()):
            child.kill()

    def close(self) -> None:
        """Kill all children and free their descriptors; no more are started."""
        self._closed = True
        while self._children:
            self._children.popitem()[1].close()
