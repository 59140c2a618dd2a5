"""Which releases of a package run the same code: read from their wheels, nothing is imported."""

import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from lossbench.kernels.kernel_spec import KernelSpec
from lossbench.kernels.source_hash import code_hash, code_hash_of
from lossbench.service.contract.errors import InstallError, InvalidRequestError
from lossbench.service.contract.versions import first_of_its_code

from .install import Installer, exact_pin


class Release(NamedTuple):
    """One release: the hash of its code, the first release of that code, what the catalogue says.

    `twin` and `listed_twin` are None where the release is the first of its code.
    """

    version: str
    code_hash: str | None
    twin: str | None
    listed_twin: str | None
    fault: str | None

    @property
    def agrees(self) -> bool:
        """Whether the catalogue's table of twins says the same."""
        return self.fault is None and self.twin == self.listed_twin


def survey(
    spec: KernelSpec,
    versions: Sequence[str],
    installer: Installer,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[Release]:
    """Each release in turn, oldest first. Raises InvalidRequestError for what is no package."""
    if spec.package is None:
        raise InvalidRequestError(f"{spec.name} is no package: there are no releases to look at")
    if not spec.modules:
        raise InvalidRequestError(f"the catalogue names no modules of {spec.name} to look at")
    by_hash: dict[str, str] = {}
    by_table: dict[str, str] = {}
    for version in versions:
        say(f"{spec.name}@{version}")
        # the first of those looked at, as for the hashes
        listed = _earlier(by_table, first_of_its_code(version, spec.twins), version)
        try:
            found = _hash_of(spec, spec.package, version, installer)
        except (InstallError, ValueError, OSError, zipfile.BadZipFile) as error:
            yield Release(version, None, None, listed, str(error))
            continue
        yield Release(version, found, _earlier(by_hash, found, version), listed, None)


def _earlier(first: dict[str, str], code: str, version: str) -> str | None:
    """The first version that had this code; None where it is this one."""
    found = first.setdefault(code, version)
    return found if found != version else None


def _hash_of(spec: KernelSpec, package: str, version: str, installer: Installer) -> str:
    folder = installer.find(package, version)
    if folder is not None:
        return code_hash(folder, spec.modules)
    with tempfile.TemporaryDirectory() as scratch:
        pin = exact_pin(package, version)
        wheel = installer.download(Path(scratch), [pin])[pin]
        with zipfile.ZipFile(wheel) as archive:
            names = set(archive.namelist())

            def read(path: str) -> str | None:
                return archive.read(path).decode("utf-8") if path in names else None

            return code_hash_of(read, spec.modules)
