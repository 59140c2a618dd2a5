"""`lossbench train`: what is asked for, and one clear line for what cannot be."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lossbench.service.cli import training
from lossbench.service.cli.main import app
from lossbench.service.contract.catalogue import load_catalogue
from lossbench.service.contract.errors import InvalidRequestError
from lossbench.worker.training_summary import ArmSummary


def arms(*contenders: str, control: bool = True) -> list[str]:
    asked = training._Asked(list(contenders), control, 3, True, None, Path())
    return [arm.name for arm in training._arms(asked, load_catalogue())]


def test_reference_comes_first_and_its_control_second() -> None:
    assert arms("torch-naive", "flce") == ["torch-naive", "torch-naive (rows reordered)", "flce@1"]
    assert arms("flce@latest", "torch-naive", control=False) == ["flce@1", "torch-naive"]


@pytest.mark.parametrize(
    ("contenders", "words"),
    [
        (["torch-nave"], "no kernel 'torch-nave'"),
        (["flce@7"], "no version '7'"),
        (["flce@all"], "several releases"),
        (["flce[chunk_rows=0]"], "chunk_rows"),
        (["flce", "flce@1"], "given twice"),
        (["fl ce"], "fl ce"),
    ],
)
def test_contender_that_cannot_be_is_named(contenders: list[str], words: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        arms(*contenders)
    assert words in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--size", "2m"], "size='2m'"),
        (["--vocab", "many"], "--vocab 'many'"),
        (["--vocab", "300"], "vocab=300"),
        (["--text", "no/such.txt"], "--text no/such.txt"),
        (["--dtype", "fp8"], "dtype='fp8'"),
        (["--cast", "both"], "cast='both'"),
        (["--learning-rate", "nan"], "learning_rate=nan"),
    ],
)
def test_flag_that_makes_no_sense_is_refused_before_anything_is_written(
    flags: list[str], words: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["train", "-c", "torch-naive", "--out", str(out), *flags])
    assert isinstance(result.exception, InvalidRequestError)
    assert words in result.exception.message
    assert not out.exists()


def row(**fields: Any) -> ArmSummary:
    empty = dict.fromkeys(ArmSummary.__dataclass_fields__)
    return ArmSummary(**{**empty, "name": "x", "role": "", "seeds": 2, "diverged": 0, **fields})


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([row(role="reference")], 0),
        ([row(role="reference"), row(lost="unsupported: no GPU")], 1),
    ],
)
def test_exit_code_is_1_where_a_contender_was_not_trained(
    rows: list[ArmSummary], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "_measure", lambda *_: (rows, "# Training runs\n"))
    flags = ["train", "-c", "torch-naive", "--out", str(tmp_path), "--markdown"]
    result = CliRunner().invoke(app, flags)
    assert (result.exit_code, result.stdout) == (code, "# Training runs\n")
