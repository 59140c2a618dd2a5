"""Names of one kernel over time."""

from lossbench.service.contract.catalogue import Catalogue
from lossbench.service.contract.lineage import current_name, names_of


def catalogue(**aliases: list[str]) -> Catalogue:
    rows = {
        name: {"name": name, "summary": "", "origin": "built-in", "aliases": known}
        for name, known in aliases.items()
    }
    return Catalogue.model_validate({"kernels": rows, "presets": {}})


def test_alias_of_a_renamed_kernel_leads_to_its_name_of_today() -> None:
    known = catalogue(new=["older", "old"], other=[])
    assert [current_name(name, known) for name in ("old", "older", "new", "other")] == [
        "new", "new", "new", "other",
    ]  # fmt: skip
    assert names_of("old", known) == names_of("new", known) == ("new", "older", "old")


def test_alias_that_a_kernel_carries_again_is_its_own_name() -> None:
    known = catalogue(new=["old"], old=[])
    assert current_name("old", known) == "old"
    assert (names_of("new", known), names_of("old", known)) == (("new",), ("old",))


def test_name_that_nobody_knows_stays() -> None:
    assert current_name("gone", catalogue(new=[])) == "gone"
    assert names_of("gone", catalogue(new=[])) == ("gone",)


def test_operator_s_files_take_no_history_of_the_kernel_they_stand_for() -> None:
    rows = {
        "mine": {"name": "mine", "summary": "", "origin": "checkout", "aliases": ["old"]},
        "zeta": {"name": "zeta", "summary": "", "origin": "package", "aliases": ["old"]},
    }
    known = Catalogue.model_validate({"kernels": rows, "presets": {}})
    assert current_name("old", known) == "zeta"
    assert names_of("mine", known) == ("mine",)
