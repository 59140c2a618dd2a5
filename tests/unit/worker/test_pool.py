"""The pool's end, seen from the thread that works with a child and from another."""

from typing import Any

import pytest

from lossbench.service.contract.errors import LotLostError
from lossbench.worker import pool as pool_module
from lossbench.worker.environments import ContenderEnvironment
from lossbench.worker.pool import ChildPool

BUILT_IN = ContenderEnvironment("built-in")


class FakeChild:
    """Counts how it is ended."""

    def __init__(self, *_: Any) -> None:
        self.killed = self.closed = 0

    def kill(self) -> None:
        self.killed += 1

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> ChildPool:
    monkeypatch.setattr(pool_module, "Child", FakeChild)
    return ChildPool(None, None, most=16)  # type: ignore[arg-type]


def test_pool_aborted_kills_children_but_leaves_their_descriptors_open(pool: ChildPool) -> None:
    child: Any = pool.child(BUILT_IN, 0)
    pool.abort()
    assert (child.killed, child.closed) == (1, 0)
    with pytest.raises(LotLostError):
        pool.child(BUILT_IN, 0)


def test_pool_closed_frees_children_and_starts_no_more(pool: ChildPool) -> None:
    child: Any = pool.child(BUILT_IN, 0)
    pool.close()
    assert child.closed == 1
    with pytest.raises(LotLostError):
        pool.child(BUILT_IN, 1)
