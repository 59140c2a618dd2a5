"""A measuring process that ends while something it forked lives on and holds its pipes."""

import time
from pathlib import Path

import pytest

from lossbench.service.contract.errors import ChildDiedError
from lossbench.worker.children import Child, Spawner, child_variables

FORKS = """
import os, time
if os.fork() == 0:
    os.setsid()
    with open({marker!r}, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(60)
    os._exit(0)
while not os.path.exists({marker!r}):
    time.sleep(0.01)
os._exit(7)
"""
SOON_S = 8.0


def test_child_whose_fork_holds_its_pipes_is_seen_to_end_and_the_fork_ends_too(
    tmp_path: Path,
) -> None:
    marker = tmp_path / "forked"
    # Python imports this module by itself, before anything of ours runs
    (tmp_path / "sitecustomize.py").write_text(FORKS.format(marker=str(marker)))
    spawner = Spawner()
    child = Child(spawner, child_variables(tmp_path, False), None, lambda: None)
    began = time.monotonic()
    with pytest.raises(ChildDiedError, match="exit code 7"):
        child.wait_ready()
    assert time.monotonic() - began < SOON_S
    forked = int(marker.read_text())
    child.close()
    spawner.close()
    assert not Path(f"/proc/{forked}").exists() or " Z " in Path(f"/proc/{forked}/stat").read_text()
