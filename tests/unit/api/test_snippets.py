"""The lines that a recommendation gives: they parse, and those that can run here give the loss."""

import ast
from typing import Any

import pytest
import torch

from lossbench.service.api.snippets import snippet
from lossbench.service.contract.case import CaseOptions
from lossbench.service.contract.catalogue import KernelRow, load_catalogue
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.words import Dtype

KERNELS = load_catalogue().kernels
HERE = ("torch-naive", "torch-upcast", "torch-native", "flce")
SOFTCAP = CaseOptions(softcap=2.0, bias=True, label_smoothing=0.1)


def lines(text: str, options: CaseOptions = CaseOptions(), dtype: Dtype = Dtype.FLOAT32) -> str:
    contender = Contender.parse(text)
    row = KERNELS[contender.kernel]
    versioned = contender.model_copy(update={"version": contender.version or row.latest})
    return snippet(row, versioned, options, dtype)


@pytest.mark.parametrize("name", KERNELS)
def test_snippet_of_every_kernel_is_python_that_makes_the_loss(name: str) -> None:
    for options in (CaseOptions(), SOFTCAP):
        tree = ast.parse(lines(name, options))
        (made,) = [node for node in tree.body if isinstance(node, ast.Assign)][-1].targets
        assert isinstance(made, ast.Name)
        assert made.id == "loss"


@pytest.mark.parametrize("name", HERE)
def test_plain_snippet_gives_the_loss_of_the_measured_call(name: str) -> None:
    found = _run(lines(name))
    expected = _run(lines(name, dtype=Dtype.FLOAT64), torch.float64)
    assert "build" not in lines(name)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["torch-naive", "flce", "flce[chunk_rows=4]"])
def test_snippet_with_options_passes_all_of_them(name: str) -> None:
    text = lines(name, SOFTCAP)
    for words in ("bias=bias", "softcap=2.0", "label_smoothing=0.1"):
        assert words in text
    plain = _run(lines("torch-naive"))
    assert not torch.allclose(_run(text), plain)
    torch.testing.assert_close(_run(text), _run(lines("torch-upcast", SOFTCAP)))


def _run(text: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    names: dict[str, Any] = {
        "input": random(16, 8).requires_grad_(),
        "weight": random(32, 8).requires_grad_(),
        "bias": random(32),
        "target": torch.randint(0, 32, (16,), generator=generator),
    }
    exec(text, names)
    loss: torch.Tensor = names["loss"]
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def test_snippet_of_an_older_built_in_version_names_it() -> None:
    row = KernelRow.model_validate({**KERNELS["flce"].model_dump(), "versions": ("1", "2")})
    older, newest = (
        snippet(row, Contender.parse(f"flce@{version}"), CaseOptions(), Dtype.BFLOAT16)
        for version in ("1", "2")
    )
    assert "build('flce', '1', {})" in older
    assert newest == row.usage


def test_snippet_pins_the_package_and_what_it_requires() -> None:
    assert lines("liger@0.6.5").splitlines()[0] == "# pip install liger-kernel==0.6.5"
    first = lines("quack").splitlines()[0]
    assert first.startswith("# pip install quack-kernels==0.6.5 nvidia-cutlass-dsl==")
    text = lines("liger@0.8.5[impl=cutedsl]")
    assert "# set LIGER_KERNEL_IMPL=cutedsl" in text
    assert "build('liger', '0.8.5', {'impl': 'cutedsl'})" in text
    assert "torch-compile-chunked" in lines("torch-compile-chunked")
    assert "not on an index" in lines("geiping")
