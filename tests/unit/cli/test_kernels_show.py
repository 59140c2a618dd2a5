"""`lossbench kernels show NAME@VERSION`: what one version has."""

import json

import pytest
from typer.testing import CliRunner

from lossbench.service.cli.main import app
from lossbench.service.contract.errors import InvalidRequestError, UnknownNameError


def show(name: str, *flags: str) -> str:
    done = CliRunner().invoke(app, ["kernels", "show", name, *flags], env={"COLUMNS": "200"})
    if done.exception is not None:
        raise done.exception
    return done.output


def test_show_of_a_version_has_its_options_params_and_twin() -> None:
    old = json.loads(show("liger@0.5.7", "--json"))
    assert (old["version"], old["twin_of"]) == ("0.5.7", "0.5.6")
    assert "softcap" in old["options"]
    # both came later
    assert "reduction_none" not in old["options"]
    assert old["params"] == []
    new = json.loads(show("liger@latest", "--json"))
    assert {"reduction_none", "softcap"} <= set(new["options"])
    assert [param["name"] for param in new["params"]] == ["accum_dtype", "chunk_mem_const", "impl"]


def test_show_of_a_version_prints_the_lines_that_call_it() -> None:
    text = show("cce@25.1.1")
    assert "# pip install cut-cross-entropy==25.1.1" in text
    assert "from cut_cross_entropy import linear_cross_entropy" in text
    assert "same code as liger@0.5.6" in show("liger@0.5.7")


def test_show_of_a_version_that_is_not_there_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="no version '9'"):
        show("liger@9")
    with pytest.raises(InvalidRequestError, match="several releases"):
        show("liger@all")
    with pytest.raises(UnknownNameError, match="did you mean 'liger'"):
        show("lige@0.8.5")
