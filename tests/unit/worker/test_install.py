"""Installing a contender's package from a folder of wheels made by hand; no network."""

import base64
import hashlib
import json
import shutil
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from lossbench.service.contract.errors import InstallError
from lossbench.worker import install
from lossbench.worker.install import Installed, Installer


def make_wheel(
    folder: Path,
    version: str = "1.0",
    text: str = "x = 1\n",
    module: str = "",
    package: str = "tiny_loss",
) -> Path:
    """A wheel of the package `tiny-loss`, or another, with one module."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{package}-{version}.dist-info"
    name = package.replace("_", "-")
    files = {
        module or f"{package}.py": text,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\n"
        "Root-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = [f"{name},{_record_hash(body)},{len(body)}" for name, body in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""])
    path = folder / f"{package}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, body in files.items():
            archive.writestr(zipfile.ZipInfo(name), body)
    return path


def _record_hash(body: str) -> str:
    digest = hashlib.sha256(body.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class Shelf:
    """A data directory and a folder of wheels."""

    def __init__(self, folder: Path) -> None:
        self.wheels, self.data = folder / "wheels", folder / "data"
        self.wheels.mkdir()
        self.installer = Installer(self.data, self.wheels)

    def install(self, version: str = "1.0") -> Installed:
        return self.installer.install("tiny-loss", version)

    def leftovers(self) -> set[str]:
        """What lies in the contenders' folder beside locks."""
        root = self.data / "contenders"
        return {path.name for path in root.iterdir() if path.suffix != ".lock"}


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """With the real pip."""
    return Shelf(tmp_path)


def quick_pip(action: str, *arguments: str) -> None:
    """What pip does with good wheels, without starting it."""
    asked = arguments[arguments.index("--") + 1 :]
    if action == "download":
        source, target = Path(arguments[3]), Path(arguments[5])
        target.mkdir()
        for name, _, version in (pin.partition("==") for pin in asked):
            for wheel in source.glob(f"{name.replace('-', '_')}-{version}-*.whl"):
                shutil.copy(wheel, target)
        return
    for wheel in asked:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(arguments[arguments.index("--target") + 1])


@pytest.fixture
def quick_shelf(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    """With a stand-in for pip, which takes a third of a second to start."""
    monkeypatch.setattr(install, "run_pip", quick_pip)
    return shelf


def test_install_puts_the_package_into_its_own_site_packages(shelf: Shelf) -> None:
    wheel = make_wheel(shelf.wheels)
    installed = shelf.install()
    assert installed.search_path == shelf.data / "contenders" / "tiny-loss-1.0" / "site-packages"
    assert (installed.search_path / "tiny_loss.py").read_text() == "x = 1\n"
    assert installed.wheel_sha256 == hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert shelf.leftovers() == {"tiny-loss-1.0", "hashes.json"}


def test_install_of_an_installed_version_asks_pip_nothing(
    quick_shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(quick_shelf.wheels)
    first = quick_shelf.install()
    monkeypatch.setattr(install, "run_pip", lambda *_: pytest.fail("pip was asked again"))
    assert quick_shelf.install("1.0") == first


def test_install_two_versions_lie_side_by_side(quick_shelf: Shelf) -> None:
    make_wheel(quick_shelf.wheels, "1.0", "x = 1\n")
    make_wheel(quick_shelf.wheels, "2.0", "x = 2\n")
    one, two = quick_shelf.install("1.0"), quick_shelf.install("2.0")
    assert (one.search_path / "tiny_loss.py").read_text() == "x = 1\n"
    assert (two.search_path / "tiny_loss.py").read_text() == "x = 2\n"


def test_install_with_another_wheel_than_the_first_time_is_refused(quick_shelf: Shelf) -> None:
    make_wheel(quick_shelf.wheels)
    folder = quick_shelf.install().search_path.parent
    (folder / "installed.json").unlink()
    make_wheel(quick_shelf.wheels, text="x = 'another'\n")
    with pytest.raises(InstallError, match="SHA-256") as caught:
        quick_shelf.install()
    assert "\n" not in caught.value.message
    assert not (folder / "installed.json").exists()


def test_install_with_the_same_wheel_mends_a_broken_folder(quick_shelf: Shelf) -> None:
    make_wheel(quick_shelf.wheels)
    folder = quick_shelf.install().search_path.parent
    (folder / "installed.json").unlink()
    (folder / "site-packages" / "tiny_loss.py").write_text("broken")
    assert (quick_shelf.install().search_path / "tiny_loss.py").read_text() == "x = 1\n"


@pytest.mark.parametrize("broken", ["no zip", "escapes"])
def test_install_of_a_broken_wheel_leaves_nothing_behind(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """Neither a folder nor a hash: the mended wheel installs."""
    path = make_wheel(shelf.wheels, module="../../../evil.py")
    if broken == "no zip":
        path.write_bytes(b"this is no zip file")
    with pytest.raises(InstallError) as caught:
        shelf.install()
    assert "\n" not in caught.value.message
    assert shelf.leftovers() <= {"hashes.json"}
    monkeypatch.setattr(install, "run_pip", quick_pip)
    make_wheel(shelf.wheels)
    assert (shelf.install().search_path / "tiny_loss.py").exists()


def test_install_of_a_version_that_is_not_there_says_so_in_one_line(shelf: Shelf) -> None:
    make_wheel(shelf.wheels, "1.0")
    with pytest.raises(InstallError, match=r"tiny-loss==3\.0") as caught:
        shelf.install("3.0")
    assert "\n" not in caught.value.message
    assert shelf.leftovers() == set()


@pytest.mark.parametrize("version", ["", "latest", "1.0; rm -rf /", "../1.0", "--pre"])
def test_install_of_what_is_no_version_never_reaches_pip(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(install, "run_pip", lambda *_: pytest.fail("pip was asked"))
    with pytest.raises(InstallError, match="is not a version"):
        shelf.install(version)


def test_install_by_two_threads_happens_once(
    quick_shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(quick_shelf.wheels)
    asked: list[str] = []
    pip, both = install.run_pip, threading.Barrier(2)

    def counting(action: str, *arguments: str) -> None:
        asked.append(action)
        pip(action, *arguments)

    monkeypatch.setattr(install, "run_pip", counting)
    found: list[Installed] = []

    def work() -> None:
        both.wait()
        found.append(Installer(quick_shelf.data, quick_shelf.wheels).install("tiny-loss", "1.0"))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asked == ["download", "install"]
    assert found[0] == found[1]


def test_install_writes_down_what_it_installed(quick_shelf: Shelf) -> None:
    make_wheel(quick_shelf.wheels)
    installed = quick_shelf.install()
    facts = json.loads((installed.search_path.parent / "installed.json").read_text())
    assert facts == {"wheels": {"tiny-loss==1.0": installed.wheel_sha256}}


REQUIRES = ("helper-a==1.0", "helper-b==2.1")


@pytest.fixture
def stocked(quick_shelf: Shelf) -> Shelf:
    """With a package and two more that it may require."""
    make_wheel(quick_shelf.wheels)
    make_wheel(quick_shelf.wheels, "1.0", "a = 1\n", package="helper_a")
    make_wheel(quick_shelf.wheels, "2.1", "b = 1\n", package="helper_b")
    return quick_shelf


def test_install_with_requires_puts_all_wheels_into_one_folder(
    shelf: Shelf, stocked: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the real pip
    installed = stocked.installer.install("tiny-loss", "1.0", REQUIRES)
    files = {path.name for path in installed.search_path.glob("*.py")}
    assert files == {"tiny_loss.py", "helper_a.py", "helper_b.py"}
    assert installed.search_path.name == "site-packages"
    assert set(installed.requires_sha256) == set(REQUIRES)
    assert len({installed.wheel_sha256, *installed.requires_sha256.values()}) == 3
    hashes = json.loads((stocked.data / "contenders" / "hashes.json").read_text())
    assert set(hashes) == {"tiny-loss-1.0", "helper-a-1.0", "helper-b-2.1"}


def test_install_with_other_requires_has_a_folder_of_its_own(stocked: Shelf) -> None:
    made = [
        stocked.installer.install("tiny-loss", "1.0", requires).search_path
        for requires in ((), REQUIRES[:1], REQUIRES, REQUIRES[::-1])
    ]
    assert len(set(made)) == 3
    assert made[2] == made[3]
    assert not (made[0] / "helper_a.py").exists()
    assert stocked.installer.find("tiny-loss", "1.0") == made[0]
    assert stocked.installer.find("tiny-loss", "2.0") is None


def test_install_of_requires_alone_has_no_wheel_of_its_own(stocked: Shelf) -> None:
    made = stocked.installer.install_requires(REQUIRES)
    assert (made.wheel_sha256, set(made.requires_sha256)) == (None, set(REQUIRES))
    assert {path.name for path in made.search_path.glob("*.py")} == {"helper_a.py", "helper_b.py"}


def test_install_when_a_required_wheel_is_missing_leaves_nothing_behind(stocked: Shelf) -> None:
    with pytest.raises(InstallError, match=r"helper-c==1\.0"):
        stocked.installer.install("tiny-loss", "1.0", ("helper-c==1.0",))
    assert stocked.leftovers() == set()


def test_install_when_a_required_wheel_is_another_than_before_is_refused(stocked: Shelf) -> None:
    stocked.installer.install_requires(REQUIRES)
    make_wheel(stocked.wheels, "1.0", "a = 2\n", package="helper_a")
    before = stocked.leftovers()
    with pytest.raises(InstallError, match=r"helper-a-1\.0: the wheel's SHA-256"):
        stocked.installer.install("tiny-loss", "1.0", REQUIRES)
    assert stocked.leftovers() == before


@pytest.mark.parametrize("pin", ["helper-a", "helper-a>=1", "helper-a==1.*", "x @ file:///x.whl"])
def test_install_of_a_requirement_that_is_no_pin_never_reaches_pip(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, pin: str
) -> None:
    monkeypatch.setattr(install, "run_pip", lambda *_: pytest.fail("pip was asked"))
    with pytest.raises(InstallError, match="is not name==version"):
        shelf.installer.install("tiny-loss", "1.0", (pin,))


TWO_INSTALLERS = """
import sys, time
from pathlib import Path
from lossbench.worker import install
data, wheels, begin = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
asked, pip = [], install.run_pip
install.run_pip = lambda action, *rest: (asked.append(action), pip(action, *rest))
sys.stdout.write("ready\\n"), sys.stdout.flush()
while not begin.exists():
    time.sleep(0.002)
made = install.Installer(data, wheels).install("tiny-loss", "1.0", ("helper-a==1.0",))
print(" ".join(asked), (made.search_path / "tiny_loss.py").exists())
"""


def test_install_by_two_processes_happens_once(tmp_path: Path) -> None:
    """With the real pip: one downloads and installs, the other waits and finds it there."""
    wheels, begin = tmp_path / "wheels", tmp_path / "begin"
    make_wheel(wheels)
    make_wheel(wheels, "1.0", "a = 1\n", package="helper_a")
    command = [sys.executable, "-P", "-c", TWO_INSTALLERS]
    places = [str(tmp_path / "data"), str(wheels), str(begin)]
    workers = [
        subprocess.Popen([*command, *places], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    begin.touch()
    said = sorted(worker.communicate(timeout=60)[0].strip() for worker in workers)
    assert [worker.returncode for worker in workers] == [0, 0]
    assert said == ["True", "download install True"]
