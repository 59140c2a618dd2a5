"""Which process a contender runs in, what that process may see, and who holds the device."""

import os
from pathlib import Path
from unittest.mock import MagicMock, create_autospec

import pytest

from lossbench.service.contract.contender import Contender
from lossbench.service.contract.errors import InstallError, SetupError
from lossbench.worker.children import child_variables
from lossbench.worker.environments import Environments
from lossbench.worker.install import Installed, Installer
from lossbench.worker.locks import take_device_lock


@pytest.fixture
def installer() -> MagicMock:
    made: MagicMock = create_autospec(Installer, instance=True)
    made.install.side_effect = lambda package, version: Installed(Path(f"/{version}"), "abc")
    return made


def test_environment_of_built_in_kernels_is_shared(installer: MagicMock) -> None:
    environments = Environments(installer, "cuda")
    names = ("torch-naive", "torch-upcast", "flce@1", "torch-compile-chunked[chunk_rows=64]")
    found = [environments.of(Contender.parse(name)) for name in names]
    assert {each.key for each in found} == {"built-in"}
    assert {(each.search_path, each.interpreted) for each in found} == {(None, False)}
    installer.install.assert_not_called()


def test_environment_of_each_release_is_its_own(installer: MagicMock) -> None:
    environments = Environments(installer, "cuda")
    texts = ("liger@0.8.4", "liger@0.8.5", "liger@0.8.5[chunk_mem_const=2]")
    found = [environments.of(Contender.parse(text)) for text in texts]
    assert [each.key for each in found] == ["liger@0.8.4", "liger@0.8.5", "liger@0.8.5"]
    assert (found[1].search_path, found[1].wheel_sha256) == (Path("/0.8.5"), "abc")
    assert installer.install.call_args_list == [
        (("liger-kernel", "0.8.4"),),
        (("liger-kernel", "0.8.5"),),
    ]


def test_environment_on_a_cpu_interprets_triton_apart(installer: MagicMock) -> None:
    environments = Environments(installer, "cpu")
    flce = environments.of(Contender.parse("flce@1"))
    assert (flce.key, flce.interpreted) == ("built-in interpreted", True)
    assert environments.of(Contender.parse("torch-naive")).interpreted is False
    liger = environments.of(Contender.parse("liger@0.8.5"))
    assert (liger.key, liger.interpreted) == ("liger@0.8.5 interpreted", True)


def test_environment_that_cannot_be_installed_is_tried_again(installer: MagicMock) -> None:
    installer.install.side_effect = InstallError("no such wheel")
    environments = Environments(installer, "cuda")
    for _ in range(2):
        with pytest.raises(InstallError, match="no such wheel"):
            environments.of(Contender.parse("liger@0.8.5"))
    assert installer.install.call_count == 2


def test_child_variables_hide_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOSSBENCH_TOKEN", "lb_hidden")
    monkeypatch.setenv("LOSSBENCH_DATABASE_URL", "postgresql://u:hidden@h/n")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    found = child_variables(None, interpreted=False)
    assert "hidden@" not in " ".join(found.values())
    assert "lb_hidden" not in found.values()
    assert found["CUDA_VISIBLE_DEVICES"] == "1"
    assert found["PYTHONSAFEPATH"] == "1"


def test_child_variables_put_the_contender_first_on_the_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/a", "", "/b"]))
    assert child_variables(Path("/own"), False)["PYTHONPATH"] == os.pathsep.join(
        ["/own", "/a", "/b"]
    )
    monkeypatch.delenv("PYTHONPATH")
    assert "PYTHONPATH" not in child_variables(None, False)


def test_child_variables_switch_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert "TRITON_INTERPRET" not in child_variables(None, interpreted=False)
    assert child_variables(None, interpreted=True)["TRITON_INTERPRET"] == "1"


def test_device_lock_refuses_a_second_taker(tmp_path: Path) -> None:
    held = take_device_lock(tmp_path, "gpu0")
    with pytest.raises(SetupError, match="another worker measures on this device"):
        take_device_lock(tmp_path, "gpu0")
    os.close(take_device_lock(tmp_path, "gpu1"))
    os.close(held)
    os.close(take_device_lock(tmp_path, "gpu0"))


def test_device_lock_is_held_by_every_copy_of_the_descriptor(tmp_path: Path) -> None:
    """A measuring process that outlives its worker keeps the device."""
    held = take_device_lock(tmp_path, "gpu0")
    inherited = os.dup(held)
    os.close(held)
    with pytest.raises(SetupError):
        take_device_lock(tmp_path, "gpu0")
    os.close(inherited)
    os.close(take_device_lock(tmp_path, "gpu0"))
