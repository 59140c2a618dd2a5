"""Plugins: what installed packages offer, and that a bad one costs nothing but itself."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lossbench.kernels.catalogue import CATALOGUE, register, rows, spec_of
from lossbench.kernels.errors import UnknownKernel
from lossbench.kernels.kernel_spec import (
    KernelSpec,
    Memory,
    Param,
    Setup,
    Term,
    is_at_least,
)
from lossbench.kernels.plugins import Plugins, discover, is_exact, spec_faults

GOOD = """
from lossbench.kernels.kernel_spec import KernelSpec

def spec(name):
    return KernelSpec(
        name=name, summary="made up", origin="built-in", build="own:build",
        options=frozenset({"bias"}), dtypes=frozenset({"float32"}), gradients_in_forward=False,
        products={"forward": 1, "backward": 2, "forward_backward": 3},
    )

ONE, TWO = spec("one"), (spec("two"), spec("three"))
CLASH, WRONG, TEXT = spec("liger"), spec("Wrong"), "no spec"
"""
Install = Callable[..., Plugins]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a distribution with these entry points on the path; gives what is discovered."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(code: str = GOOD, module: str = "own", **points: str) -> Plugins:
        (tmp_path / f"{module}.py").write_text(code)
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        lines = [f"{name} = {value}" for name, value in points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[lossbench.kernels]", *lines, ""]))
        return discover()

    yield make
    register(())


def names(plugins: Plugins) -> list[str]:
    return [spec.name for spec in plugins.specs]


def test_plugins_of_a_machine_without_any_are_none() -> None:
    assert discover() == Plugins()


def test_plugins_offer_one_spec_or_a_tuple_of_them(install: Install) -> None:
    found = install(a="own:TWO", b="own:ONE")
    assert (names(found), found.faults) == (["two", "three", "one"], ())
    register(found.specs)
    assert spec_of("three").summary == "made up"


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("own:CLASH", "there is a kernel 'liger' already; give it another name"),
        ("own:WRONG", "kernel 'Wrong': a name is a lower-case word"),
        ("own:TEXT", "a str is no KernelSpec"),
        ("own:NOTHING", "AttributeError when imported"),
        ("nowhere:ONE", "ModuleNotFoundError when imported: No module named 'nowhere'"),
    ],
)
def test_plugin_that_cannot_be_used_is_a_fault_beside_the_good_ones(
    install: Install, value: str, fault: str
) -> None:
    found = install(a=value, b="own:ONE")
    assert names(found) == ["one"]
    (line,) = found.faults
    assert line.startswith(f"plugin a ({value}): ")
    assert fault in line


@pytest.mark.parametrize(
    "code", ["raise RuntimeError('two\\nlines')", "raise SystemExit(3)", "1 +", "import torch.nope"]
)
def test_plugin_whose_import_fails_is_one_line(install: Install, code: str) -> None:
    found = install(code, "broken", a="broken:ONE")
    assert found.specs == ()
    (line,) = found.faults
    assert "when imported" in line
    assert "\n" not in line


def test_two_plugins_of_one_name_give_one_kernel_and_one_fault(install: Install) -> None:
    install(a="own:ONE")
    found = install(GOOD, "other", b="other:ONE")
    assert names(found) == ["one"]
    assert found.faults == (
        "plugin b (other:ONE): there is a kernel 'one' already; give it another name",
    )


def good(**changes: Any) -> KernelSpec:
    return replace(CATALOGUE["liger"], **{"name": "own", **changes})


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"name": "a" * 65}, "a name is a lower-case word"),
        ({"origin": "home"}, "origin 'home' is none of"),
        ({"build": "module"}, "build 'module' is not module:function"),
        ({"options": frozenset({"bais"})}, "options has 'bais'; known: bias"),
        ({"dtypes": frozenset({"int8"})}, "dtypes has 'int8'"),
        ({"products": {"forward": 1}}, "products lacks backward"),
        ({"products": {"both": 1}}, "products has 'both'"),
        ({"chunk_rule": "mine"}, "chunk_rule 'mine' is no rule"),
        ({"chunk_rule": "fixed:rows"}, "chunk_rule names 'rows', which is no param"),
        ({"package": None}, "origin package goes with the name of a package"),
        ({"versions": (), "twins": {}}, "a package needs its versions"),
        ({"versions": ("new",), "twins": {}}, "versions are as PEP 440 has them"),
        ({"versions": ("2", "1"), "twins": {}}, "listed once each, oldest first"),
        ({"versions": ("1", "1.0"), "twins": {}}, "listed once each, oldest first"),
        ({"twins": {"0.5.1": "9"}}, "twins names 9, which is no version"),
        ({"params": (Param("Rows", "int", 1),)}, "param 'Rows' is not a lower-case word"),
        ({"params": (Param("rows", "int", 1),) * 2}, "two params have one name"),
        ({"params": (Param("rows", "int", "x"),)}, "its default is not allowed: rows='x'"),
        ({"memory": Memory((Term("NVH", 1),))}, "a term has symbol 'NVH'"),
        ({"setups": (Setup(requires=("a>=1",)),)}, "a setup requires 'a>=1'; write name==version"),
        ({"setups": (Setup(paths=("../x",)),)}, "a setup's path '../x' leaves site-packages"),
        (
            {"origin": "built-in", "package": None, "setups": (Setup(requires=("a==1",)),)},
            "a setup with requires needs a folder of its own",
        ),
    ],
)
def test_spec_that_would_mislead_is_a_fault(changes: dict[str, Any], fault: str) -> None:
    assert [line for line in spec_faults(good(**changes)) if fault in line]


def test_shipped_kernels_keep_the_rules_for_plugins() -> None:
    faults = {spec.name: list(spec_faults(spec)) for spec in CATALOGUE.values()}
    assert not any(faults.values()), faults
    assert not list(spec_faults(good()))


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("a==1.0", True),
        ("nvidia-cutlass-dsl==4.3.0.dev1", True),
        ("a == 1", True),
        ("a", False),
        ("a>=1", False),
        ("a==1.*", False),
        ("a==1,<2", False),
        ("a[x]==1", False),
        ("a==1; python_version>'3'", False),
        ("a @ https://h/a.whl", False),
        ("--index-url=x", False),
    ],
)
def test_requirement_is_exact_only_as_name_and_version(text: str, exact: bool) -> None:
    assert is_exact(text) is exact


def test_registered_kernels_replace_those_registered_before() -> None:
    try:
        register([good()])
        assert spec_of("own").package == "liger-kernel"
        register([replace(good(), name="other")])
        with pytest.raises(UnknownKernel, match="flce, other"):
            spec_of("own")
        register([replace(CATALOGUE["flce"], summary="mine")])
        assert spec_of("flce").summary == "mine"
    finally:
        register(())
    assert spec_of("flce") is CATALOGUE["flce"]
    assert rows([good()])["own"]["package"] == "liger-kernel"


def test_what_is_no_release_counts_as_newer_than_all() -> None:
    assert is_at_least("git-0123456789ab", "0.5.0")
    assert is_at_least("0.5.0", "0.5.0")
    assert not is_at_least("0.4.9", "0.5.0")
