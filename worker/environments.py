"""Which environment a contender runs in: the built-in one, or a package's own folder."""

from dataclasses import dataclass
from pathlib import Path

from lossbench.kernels.catalogue import spec_of
from lossbench.service.contract.contender import Contender

from .install import Installer
from .order import Say, silence

BUILT_IN = "built-in"


@dataclass(frozen=True)
class ContenderEnvironment:
    """One child environment: contenders with the same key share a process."""

    key: str
    search_path: Path | None = None
    wheel_sha256: str | None = None
    interpreted: bool = False


class Environments:
    """Finds the environment of a contender on this machine, installing packages on demand."""

    def __init__(self, installer: Installer, device_type: str) -> None:
        self._installer = installer
        self.device_type = device_type
        self._known: dict[str, ContenderEnvironment] = {}

    def of(self, contender: Contender, say: Say = silence) -> ContenderEnvironment:
        """The environment. Raises InstallError when its package cannot be installed."""
        spec = spec_of(contender.kernel)
        interpreted = spec.uses_triton and self.device_type == "cpu"
        name = BUILT_IN
        if spec.package is not None:
            name = f"{contender.kernel}@{contender.version}"
        key = f"{name} interpreted" if interpreted else name
        if key not in self._known:
            if spec.package is not None:
                say(f"installing {contender} unless it is here already")
            self._known[key] = self._make(key, spec.package, contender.version, interpreted)
        return self._known[key]

    def _make(
        self, key: str, package: str | None, version: str | None, interpreted: bool
    ) -> ContenderEnvironment:
        if package is None:
            return ContenderEnvironment(key, interpreted=interpreted)
        installed = self._installer.install(package, version or "")
        return ContenderEnvironment(key, installed.search_path, installed.wheel_sha256, interpreted)
