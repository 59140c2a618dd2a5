"""Whose process is it: real processes, and what a driver would list."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from lossbench.worker import process_family
from lossbench.worker.process_family import count_foreign, family_of, holders_of_gpu, parent_of

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]
SHELL = ["sh", "-c", "sleep 60 & echo $!; wait"]


@pytest.fixture
def parent_and_child() -> Iterator[tuple[int, int]]:
    """Ids of a process and of one that it started."""
    with subprocess.Popen(SHELL, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        yield parent.pid, child
        os.kill(child, 9)


def test_family_has_children_of_children(parent_and_child: tuple[int, int]) -> None:
    parent, child = parent_and_child
    assert parent_of(child) == parent
    assert {parent, child} <= family_of(os.getpid())
    assert family_of(child) == {child}


def test_process_that_is_gone_has_no_parent() -> None:
    done = subprocess.Popen(["true"])
    done.wait()
    assert parent_of(done.pid) is None


def test_process_of_somebody_else_is_foreign(parent_and_child: tuple[int, int]) -> None:
    parent, child = parent_and_child
    # the worker is `child`; its parent stands for a program of somebody else
    assert count_foreign([child, parent], own_pid=child, worker_pid=child) == 1
    assert count_foreign([child, parent], own_pid=child, worker_pid=parent) == 0
    assert count_foreign([], own_pid=child, worker_pid=child) == 0


def test_list_of_another_numbering_counts_users_of_the_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A container: the driver lists numbers of the host, so this process is not among them."""
    own = os.getpid()
    strangers = [2**22 + 1, 2**22 + 2]
    assert count_foreign(strangers[:1], own, own) == 0
    assert count_foreign(strangers, own, own) == 1
    with open("/dev/zero", "rb"):
        monkeypatch.setattr(process_family, "NVIDIA_FILES", "/dev/zero")
        with subprocess.Popen(SLEEPER, stdin=open("/dev/zero", "rb")) as sibling:
            deadline = time.monotonic() + 5
            while len(holders_of_gpu({own, sibling.pid})) < 2 and time.monotonic() < deadline:
                time.sleep(0.01)
            assert count_foreign(strangers, own, own) == 0
            sibling.kill()
