"""Which process a contender runs in, what that process may see, and who holds the device."""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, create_autospec

import pytest

from lossbench.kernels.catalogue import register, spec_of
from lossbench.kernels.errors import UnsupportedHere
from lossbench.kernels.kernel_spec import KernelSpec, Setup
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.errors import InstallError, SetupError
from lossbench.worker.children import child_variables
from lossbench.worker.environments import Environments
from lossbench.worker.install import Installed, Installer
from lossbench.worker.known_contenders import KnownContenders, read_contenders_file
from lossbench.worker.locks import take_device_lock


@pytest.fixture
def installer() -> MagicMock:
    made: MagicMock = create_autospec(Installer, instance=True)
    made.root = Path("/contenders")
    made.install.side_effect = lambda package, version, requires: Installed(
        Path(f"/{version}"), "abc", dict.fromkeys(requires, "def")
    )
    made.install_requires.side_effect = lambda requires: Installed(
        Path("/requires"), None, dict.fromkeys(requires, "def")
    )
    return made


@pytest.fixture
def offer() -> Iterator[Callable[..., KernelSpec]]:
    """Registers a kernel made from another for the length of a test; fields by keyword."""
    made: dict[str, KernelSpec] = {}

    def use(base: str = "liger", **changes: Any) -> KernelSpec:
        spec = replace(spec_of(base), **changes)
        made[spec.name] = spec
        register(made.values())
        return spec

    yield use
    register(())


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
        (("liger-kernel", "0.8.4", ()),),
        (("liger-kernel", "0.8.5", ()),),
    ]


SETUPS = (
    Setup(requires=("helper-a==1.0",), paths=("helper/python",)),
    Setup(when={"chunk_mem_const": 2}, requires=("helper-b==2.0",), variables={"B": "1", "A": "0"}),
    Setup(when={"chunk_mem_const": 3}, variables={"B": "2"}),
)


def test_environment_with_setups_has_what_its_params_ask_for(
    installer: MagicMock, offer: Callable[..., KernelSpec]
) -> None:
    offer(name="setup", setups=SETUPS)
    environments = Environments(installer, "cuda")
    plain = environments.of(Contender.parse("setup@0.8.5"))
    assert re.fullmatch(r"setup@0\.8\.5\+[0-9a-f]{8}", plain.key)
    assert (plain.more_paths, plain.variables) == ((Path("/0.8.5/helper/python"),), {})
    both = environments.of(Contender.parse("setup@0.8.5[chunk_mem_const=2]"))
    assert re.fullmatch(r"setup@0\.8\.5\+[0-9a-f]{8} A=0 B=1", both.key)
    assert both.variables == {"A": "0", "B": "1"}
    assert both.provenance["requires_sha256"] == {"helper-a==1.0": "def", "helper-b==2.0": "def"}
    assert installer.install.call_args_list[1] == (
        ("liger-kernel", "0.8.5", ("helper-a==1.0", "helper-b==2.0")),
    )
    other = environments.of(Contender.parse("setup@0.8.5[chunk_mem_const=3]"))
    assert other.key == f"{plain.key} B=2"
    assert both.key.partition(" ")[0] != plain.key
    assert environments.of(Contender.parse("setup@0.8.5[chunk_mem_const=2]")) is both


def test_environment_of_a_built_in_kernel_with_variables_is_its_own(
    installer: MagicMock, offer: Callable[..., KernelSpec]
) -> None:
    offer("torch-naive", name="fast-naive", setups=(Setup(variables={"NAIVE": "fast"}),))
    environments = Environments(installer, "cuda")
    found = environments.of(Contender.parse("fast-naive"))
    assert (found.key, found.variables) == ("built-in NAIVE=fast", {"NAIVE": "fast"})
    assert environments.of(Contender.parse("torch-naive")).key == "built-in"


def test_environment_of_a_kernel_nobody_offers_here_names_kernel_and_worker(
    installer: MagicMock, offer: Callable[..., KernelSpec]
) -> None:
    offer(name="elsewhere", origin="checkout", package=None, versions=())
    environments = Environments(installer, "cuda", worker="worker box-1 (wrk-1)")
    for text, reason in (
        ("tiny@1.0", "worker box-1 (wrk-1) has no kernel 'tiny'"),
        ("liger@9.9.9", "worker box-1 (wrk-1) has no liger@9.9.9; its newest is liger@0.8."),
        ("elsewhere", "worker box-1 (wrk-1) has no files of elsewhere"),
        ("flce@1[rows=2]", "flce has no param 'rows'"),
    ):
        with pytest.raises(UnsupportedHere) as caught:
            environments.of(Contender.parse(text))
        assert reason in caught.value.reason
    installer.install.assert_not_called()


def test_environment_of_a_checkout_puts_its_files_first(
    installer: MagicMock, offer: Callable[..., KernelSpec], tmp_path: Path
) -> None:
    file = tmp_path / "contenders.yaml"
    for name in ("plain", "with-src/src"):
        (tmp_path / name / "own_loss").mkdir(parents=True)
        (tmp_path / name / "own_loss" / "__init__.py").write_text("x = 1\n")
    file.write_text("mine: {kernel: base, path: plain}\nother: {kernel: base, path: with-src}\n")
    base = offer(name="base", setups=SETUPS[:1], modules=("own_loss",))
    checkouts = read_contenders_file(file, {"base": base})
    register([checkout.spec for checkout in checkouts.values()])
    known = KnownContenders((), checkouts, file=file)
    environments = Environments(installer, "cuda", known)
    mine, other = (
        environments.of(Contender(kernel=name, version=checkouts[name].version))
        for name in ("mine", "other")
    )
    assert (mine.search_path, other.search_path) == (tmp_path / "plain", tmp_path / "with-src/src")
    assert mine.more_paths == (Path("/requires"), Path("/requires/helper/python"))
    assert mine.variables == {"LOSSBENCH_CONTENDERS_FILE": str(file)}
    assert mine.key != other.key
    with pytest.raises(UnsupportedHere, match=r"has no mine; its newest is mine@path-"):
        environments.of(Contender(kernel="mine"))
    assert set(mine.provenance) == {"requires_sha256", "source_hash"}
    assert mine.provenance["source_hash"] == other.provenance["source_hash"]
    (tmp_path / "plain" / "own_loss" / "__init__.py").write_text("x = 2\n")
    with pytest.raises(InstallError, match=r"has changed since this worker began .*start it again"):
        environments.of(Contender(kernel="mine", version=checkouts["mine"].version))


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


def test_child_variables_add_the_contender_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its paths behind its folder; its variables as they are, but none that breaks a child."""
    monkeypatch.setenv("PYTHONPATH", "/a")
    monkeypatch.setenv("LOSSBENCH_CONTENDERS_FILE", "/not/of/this/child.yaml")
    own = {"TOKENIZERS_PARALLELISM": "0", "TRITON_INTERPRET": "1", "PYTHONSAFEPATH": ""}
    found = child_variables(Path("/own"), False, [Path("/own/deep"), Path("/b")], own)
    assert found["PYTHONPATH"] == os.pathsep.join(["/own", "/own/deep", "/b", "/a"])
    assert (found["TOKENIZERS_PARALLELISM"], found["PYTHONSAFEPATH"]) == ("0", "1")
    assert not {"TRITON_INTERPRET", "LOSSBENCH_CONTENDERS_FILE"} & set(found)
    file = {"LOSSBENCH_CONTENDERS_FILE": "/its.yaml"}
    assert child_variables(None, False, (), file)["LOSSBENCH_CONTENDERS_FILE"] == "/its.yaml"


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
