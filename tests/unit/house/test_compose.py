"""docker-compose.yml and the Dockerfiles: safe defaults, real commands, the project's versions."""

import fcntl
import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from lossbench.service.store.roles import SERVICE_ROLE, WORKER_ROLE

Facts = dict[str, Any]
OURS = ("migrate", "service", "worker", "worker-cpu")
ROLES = {
    "migrate": "lossbench",
    "service": "lossbench_service",
    "worker": "lossbench_worker",
    "worker-cpu": "lossbench_worker",
}


def compose_faults(compose: dict[str, Any], version: str) -> list[str]:
    """What is unsafe or unreal in a compose file."""
    faults = []
    services, volumes = compose["services"], compose["volumes"]
    for name, service in services.items():
        faults += _password_faults(name, service)
        mounted = [mount.split(":")[0] for mount in service.get("volumes", [])]
        faults += [f"{name}: {m} is no named volume" for m in mounted if m not in volumes]
        if name not in OURS:
            continue
        if not service["image"].endswith(f":{version}"):
            faults.append(f"{name}: image {service['image']} is not {version}")
        if "user" in service or service.get("privileged"):
            faults.append(f"{name}: runs with other rights than its image gives")
        if service.get("cap_drop") != ["ALL"] or not service.get("read_only"):
            faults.append(f"{name}: keeps capabilities or a writable root")
    return faults + [f"{name}: no health check" for name in ("postgres", "service")
                     if "healthcheck" not in services[name]]  # fmt: skip


def _password_faults(name: str, service: dict[str, Any]) -> list[str]:
    texts = [str(value) for value in service.get("environment", {}).values()]
    used = [text for text in texts if "PASSWORD" in text or "postgresql://" in text]
    return [f"{name}: a password with a default" for text in used
            if not re.search(r"\$\{[A-Z_]+_PASSWORD:\?", text)]  # fmt: skip


def dockerfile_faults(name: str, text: str, project: dict[str, Any]) -> list[str]:
    """What a Dockerfile lacks."""
    faults = []
    if f'image.version="{project["version"]}"' not in text:
        faults.append(f"{name}: its label is not {project['version']}")
    users = re.findall(r"^USER (\w+)", text, re.MULTILINE)
    if users[-1:] in ([], ["root"]):
        faults.append(f"{name}: runs as root")
    if "HEALTHCHECK" not in text:
        faults.append(f"{name}: no health check")
    least = _numbers(project["requires-python"])
    for python in re.findall(r"PYTHON=(\S+)", text):
        if _numbers(python) < least:
            faults.append(f"{name}: Python {python} is too old")
    return faults


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


@pytest.fixture(scope="module")
def project(root: Path) -> dict[str, Any]:
    """The table [project] of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    return table


@pytest.fixture(scope="module")
def compose(root: Path) -> dict[str, Any]:
    """docker-compose.yml as data."""
    data: dict[str, Any] = yaml.safe_load((root / "docker-compose.yml").read_text("utf-8"))
    return data


def test_compose_file_is_safe_and_of_this_version(compose: Facts, project: Facts) -> None:
    assert set(compose["services"]) == {"postgres", *OURS}
    assert not compose_faults(compose, project["version"])
    assert compose["services"]["worker-cpu"]["profiles"] == ["cpu"]


def test_compose_gives_each_container_its_own_database_role(compose: Facts, root: Path) -> None:
    for name, role in ROLES.items():
        url = compose["services"][name]["environment"]["LOSSBENCH_DATABASE_URL"]
        assert url.startswith(f"postgresql://{role}:${{"), name
    made = (root / "docker" / "make_roles.sh").read_text("utf-8")
    assert set(re.findall(r"CREATE ROLE (\w+)", made)) == {SERVICE_ROLE, WORKER_ROLE}
    assert set(ROLES.values()) == {"lossbench", SERVICE_ROLE, WORKER_ROLE}


def test_compose_commands_are_real(compose: Facts, generate: ModuleType) -> None:
    commands = dict(generate.commands())
    for name in OURS:
        words = compose["services"][name]["command"]
        words = [word for word in words if word != "db"]
        in_db = len(words) < len(compose["services"][name]["command"])
        command = commands[f"lossbench {'db ' * in_db}{words[0]}"]
        flags = {flag for parameter in command.params for flag in parameter.opts}
        assert not {word for word in words if word.startswith("--")} - flags


def test_compose_builds_from_dockerfiles_that_exist(compose: Facts, root: Path) -> None:
    for name in OURS:
        assert (root / compose["services"][name]["build"]["dockerfile"]).is_file()


@pytest.mark.parametrize("name", ["service.Dockerfile", "worker.Dockerfile"])
def test_dockerfile_is_safe_and_of_this_version(root: Path, project: Facts, name: str) -> None:
    assert not dockerfile_faults(name, (root / "docker" / name).read_text("utf-8"), project)


def test_service_image_has_no_torch(root: Path) -> None:
    text = (root / "docker" / "service.Dockerfile").read_text("utf-8")
    assert "[worker]" not in text
    assert "[all]" not in text


def test_version_of_the_api_is_the_projects(project: Facts) -> None:
    from importlib.metadata import version

    assert version("lossbench") == project["version"]


def test_worker_health_follows_the_device_lock(root: Path, tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("health", root / "docker" / "worker_health.py")
    assert spec is not None
    assert spec.loader is not None
    health = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(health)
    lock = tmp_path / "locks" / "device-abc.lock"
    lock.parent.mkdir()
    with lock.open("w") as handle:
        assert not health.holds_device(tmp_path)
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert health.holds_device(tmp_path)


def test_default_password_is_found(compose: Facts) -> None:
    unsafe = yaml.safe_load(yaml.safe_dump(compose).replace("PASSWORD:?", "PASSWORD:-"))
    assert compose_faults(unsafe, "0.1.0")


def test_other_version_and_host_folder_are_found(compose: Facts) -> None:
    changed = yaml.safe_load(yaml.safe_dump(compose))
    changed["services"]["service"]["volumes"] = ["./data:/data"]
    assert any("no named volume" in fault for fault in compose_faults(changed, "0.1.0"))
    assert any("is not 9.9.9" in fault for fault in compose_faults(compose, "9.9.9"))


def test_dockerfile_that_runs_as_root_is_found(project: Facts) -> None:
    faults = dockerfile_faults("x", "ARG PYTHON=3.9\nUSER root\n", project)
    assert [fault.split(": ")[1].split()[0] for fault in faults] == ["its", "runs", "no", "Python"]
