"""Which releases run the same code, read from wheels; for liger, all of them against its table."""

import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lossbench.kernels.catalogue import CATALOGUE
from lossbench.kernels.kernel_spec import KernelSpec
from lossbench.service.contract.errors import InstallError, InvalidRequestError
from lossbench.worker.install import Installer
from lossbench.worker.releases import Release, survey

CODES = {"1.0": "x = 1\n", "1.1": "x = 1  # the same\n", "2.0": "x = 2\n", "2.1": "x = 1\n"}


@pytest.fixture
def spec() -> KernelSpec:
    """A package of four releases; its table misses one twin and has one that is none."""
    return replace(
        CATALOGUE["liger"],
        name="tiny",
        package="tiny-loss",
        versions=tuple(CODES),
        twins={"1.1": "1.0", "2.0": "1.0"},
        modules=("tiny_loss",),
    )


class Shelf(Installer):
    """Every release is a zip file that holds one module."""

    def download(self, target: Path, pins: Sequence[str]) -> dict[str, Path]:
        """As the index would give it; only the releases of `CODES` are there."""
        (pin,) = pins
        version = pin.removeprefix("tiny-loss==")
        if version not in CODES:
            raise InstallError(f"pip download {pin}: no matching distribution")
        with zipfile.ZipFile(target / "wheel.whl", "w") as archive:
            archive.writestr("tiny_loss.py", CODES[version])
        return {pin: target / "wheel.whl"}


@pytest.fixture
def installer(tmp_path: Path) -> Installer:
    """A shelf of releases, of which one is installed."""
    made = Shelf(tmp_path)
    folder = made.root / "tiny-loss-1.1"
    (folder / "site-packages").mkdir(parents=True)
    (folder / "site-packages" / "tiny_loss.py").write_text(CODES["1.1"])
    (folder / "installed.json").write_text("{}")
    return made


def test_survey_names_twins_and_where_the_table_is_wrong(
    spec: KernelSpec, installer: Installer
) -> None:
    said: list[str] = []
    found = {each.version: each for each in survey(spec, spec.versions, installer, said.append)}
    assert said == [f"tiny@{version}" for version in CODES]
    assert {each.twin for each in found.values()} == {None, "1.0"}
    assert {version: each.agrees for version, each in found.items()} == {
        "1.0": True,
        "1.1": True,
        "2.0": False,  # listed as a twin, and is none
        "2.1": False,  # a twin that is not listed
    }
    assert found["2.1"][1:] == (found["1.0"].code_hash, "1.0", None, None)


def test_survey_of_a_range_names_twins_inside_it(spec: KernelSpec, installer: Installer) -> None:
    table = replace(spec, twins={"1.1": "1.0", "2.1": "1.0"})
    found = list(survey(table, ("1.1", "2.0", "2.1"), installer))
    assert [each.twin for each in found] == [None, None, "1.1"]
    assert all(each.agrees for each in found)


def test_survey_of_a_release_that_is_not_there_goes_on(
    spec: KernelSpec, installer: Installer
) -> None:
    lost = replace(spec, versions=("0.9", "1.0"), twins={})
    first, second = survey(lost, lost.versions, installer)
    assert (first.code_hash, first.agrees) == (None, False)
    assert first.fault is not None
    assert "tiny-loss==0.9" in first.fault
    assert isinstance(second, Release)
    assert second.agrees


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"package": None}, "tiny is no package"), ({"modules": ()}, "names no modules of tiny")],
)
def test_survey_of_what_has_no_releases_to_read_is_refused(
    spec: KernelSpec, installer: Installer, changes: dict[str, object], why: str
) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        list(survey(replace(spec, **changes), ("1.0",), installer))  # type: ignore[arg-type]


@pytest.mark.slow
def test_survey_of_all_releases_of_liger_agrees_with_its_table(tmp_path: Path) -> None:
    spec = CATALOGUE["liger"]
    found = list(survey(spec, spec.versions, Installer(tmp_path)))
    assert [each.fault for each in found if each.fault] == []
    assert len(found) == 35
    assert len({each.code_hash for each in found}) == 20
    assert {each.version: each.twin for each in found if each.twin} == dict(spec.twins)
    assert all(each.agrees for each in found)
