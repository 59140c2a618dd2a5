"""A changed copy of a record with a cached text form has a text form of its own."""

from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender


def test_contender_copy_after_its_text_was_read_has_its_own_text() -> None:
    contender = Contender.parse("flce[chunk_rows=4]")
    assert (contender.text, contender.params_text) == ("flce[chunk_rows=4]", "chunk_rows=4")
    changed = contender.model_copy(update={"version": "1", "params": {}})
    assert (changed.text, changed.params_text) == ("flce@1", "")
    assert contender.text == "flce[chunk_rows=4]"


def test_case_copy_after_its_text_was_read_has_its_own_text() -> None:
    case = Case(tokens=8, hidden=4, vocab=16)
    assert case.text == "N8-H4-V16-bfloat16"
    assert case.model_copy(update={"tokens": 9}).text == "N9-H4-V16-bfloat16"
