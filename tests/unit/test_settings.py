"""Settings from the environment and from files."""

from pathlib import Path

import pytest

from lossbench.service.contract.errors import SetupError
from lossbench.service.settings import Settings


def test_secrets_come_from_files_as_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "url").write_text("postgresql://lossbench:x@db/lossbench\n")
    (tmp_path / "token").write_text("lb_secret\n")
    monkeypatch.setenv("LOSSBENCH_DATABASE_URL_FILE", str(tmp_path / "url"))
    monkeypatch.setenv("LOSSBENCH_TOKEN_FILE", str(tmp_path / "token"))
    settings = Settings()
    assert settings.resolved_database_url == "postgresql+psycopg://lossbench:x@db/lossbench"
    assert settings.token == "lb_secret"


def test_empty_file_setting_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOSSBENCH_TOKEN_FILE", "")
    assert Settings().token is None


def test_secret_given_twice_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("lb_secret")
    monkeypatch.setenv("LOSSBENCH_TOKEN", "lb_other")
    monkeypatch.setenv("LOSSBENCH_TOKEN_FILE", str(tmp_path / "token"))
    with pytest.raises(SetupError, match="LOSSBENCH_TOKEN and LOSSBENCH_TOKEN_FILE are both set"):
        Settings()


def test_secret_file_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOSSBENCH_DATABASE_URL_FILE", "/nowhere/url")
    with pytest.raises(SetupError, match="LOSSBENCH_DATABASE_URL_FILE names /nowhere/url"):
        Settings()
