"""Whose process is it: real processes, and what a driver would list."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from lossbench.worker import process_family
from lossbench.worker.process_family import (
    CHILD_VARIABLE,
    WORKER_VARIABLE,
    count_foreign,
    end_marked,
    end_orphans,
    family_of,
    holders_of_gpu,
    life_of,
    parent_of,
)

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


# leaves its group, changes its parent, and says which process is the last of them
FORKS = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        time.sleep(60)
    os._exit(0)
time.sleep(60)
"""


def start_forking(**marks: str) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(
        [sys.executable, "-c", FORKS],
        env={**os.environ, **marks},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def is_gone(pid: int) -> bool:
    """Whether it has ended; one that nobody has waited for yet counts."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat") as stat:
                if stat.read().rpartition(") ")[2].startswith("Z"):
                    return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


def test_marked_processes_end_wherever_they_went() -> None:
    process, runaway = start_forking(**{CHILD_VARIABLE: "child-1"})
    other, spared = start_forking(**{CHILD_VARIABLE: "child-12"})
    assert end_marked("child-1") >= 2
    assert process.wait(timeout=5) == -9
    assert is_gone(runaway)
    assert other.poll() is None
    assert end_marked("child-12") >= 2
    assert other.wait(timeout=5) == -9
    assert is_gone(spared)
    assert end_marked("child-1") == 0


def test_orphans_end_and_children_of_a_living_worker_stay() -> None:
    worker = subprocess.Popen(SLEEPER)
    life = life_of(worker.pid)
    assert life is not None
    process, runaway = start_forking(**{WORKER_VARIABLE: life})
    elsewhere, foreign = start_forking(**{WORKER_VARIABLE: "pid:[1]:7:12345"})
    end_orphans()
    assert (process.poll(), elsewhere.poll()) == (None, None)
    worker.kill()
    worker.wait()
    assert end_orphans() >= 2
    assert process.wait(timeout=5) == -9
    assert is_gone(runaway)
    assert elsewhere.poll() is None, "the numbers of another container say nothing here"
    for pid in (elsewhere.pid, foreign):
        os.kill(pid, 9)
    elsewhere.wait()


def test_life_of_a_process_is_no_other_s() -> None:
    one, two = subprocess.Popen(SLEEPER), subprocess.Popen(SLEEPER)
    assert life_of(one.pid) == life_of(one.pid) != life_of(two.pid)
    for process in (one, two):
        process.kill()
        process.wait()
    assert life_of(one.pid) is None
