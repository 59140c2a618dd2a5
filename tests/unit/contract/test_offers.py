"""The catalogue that a service plans with: the shipped one and what live workers offer."""

from typing import Any

from lossbench.service.contract.catalogue import Catalogue, load_catalogue, with_offers

SHIPPED = Catalogue.model_validate(
    {
        "kernels": {
            row["name"]: {"summary": "shipped", "dtypes": ["float32"], **row}
            for row in (
                {"name": "torch-naive", "origin": "built-in"},
                {"name": "bare", "origin": "checkout"},
            )
        },
        "presets": {},
    }
)


def row(name: str, *versions: str, **changes: Any) -> dict[str, dict[str, Any]]:
    facts = {"summary": "offered", "origin": "built-in", "versions": versions, **changes}
    return {name: {"name": name, **facts}}


def test_catalogue_without_offers_is_the_shipped_one() -> None:
    assert with_offers(SHIPPED, []) is SHIPPED
    assert with_offers(load_catalogue(), [{}]) == load_catalogue()


def test_catalogue_with_offers_is_the_union() -> None:
    found = with_offers(SHIPPED, [row("one", "1"), {**row("two", "1"), **row("three")}])
    assert set(found.kernels) == {"torch-naive", "bare", "one", "two", "three"}
    assert found.kernels["three"].latest is None
    assert set(SHIPPED.kernels) == {"torch-naive", "bare"}


def test_catalogue_keeps_shipped_rows_but_those_of_checkouts() -> None:
    offer = {**row("torch-naive", "9"), **row("bare", "path-0", origin="checkout")}
    found = with_offers(SHIPPED, [offer])
    assert found.kernels["torch-naive"].summary == "shipped"
    assert (found.kernels["bare"].summary, found.kernels["bare"].latest) == ("offered", "path-0")


def test_catalogue_of_two_offers_of_one_kernel_has_the_versions_of_both() -> None:
    releases = [row("one", "1.0", "1.10", twins={"1.10": "1.0"}), row("one", "1.9", summary="new")]
    found = with_offers(SHIPPED, releases).kernels["one"]
    assert (found.versions, found.summary) == (("1.0", "1.9", "1.10"), "new")
    assert found.twins == {"1.10": "1.0"}
    folders = [row("mine", "path-b"), row("mine", "path-a"), row("mine", "path-b")]
    assert with_offers(SHIPPED, folders[:2]).kernels["mine"].versions == ("path-b", "path-a")
    assert with_offers(SHIPPED, folders).kernels["mine"].latest == "path-b"


def test_catalogue_skips_an_offer_that_is_no_row() -> None:
    bad = {"one": {"name": "one"}, "two": row("other")["other"], "three": None}
    assert set(with_offers(SHIPPED, [bad, row("four")]).kernels) == {"torch-naive", "bare", "four"}
