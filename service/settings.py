"""Settings: environment variables `LOSSBENCH_<NAME>`; docs/reference/settings.md lists them."""

import os
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from .contract.errors import DataDirectoryError, SetupError


def _default_data_dir() -> Path:
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "lossbench"


class Settings(BaseSettings):
    """How this process of lossbench runs. Field descriptions are the documentation's source."""

    model_config = SettingsConfigDict(env_prefix="LOSSBENCH_", frozen=True, extra="ignore")

    data_dir: Annotated[
        Path, Field(description="Database, contender packages, logs and locks live here.")
    ] = Field(default_factory=_default_data_dir)
    database_url: Annotated[
        str | None,
        Field(
            description="SQLAlchemy URL; empty means SQLite, lossbench.db in the data directory."
        ),
    ] = None
    database_url_file: Annotated[
        Path | None,
        Field(description="File that holds the database URL, as a secret is mounted."),
    ] = None
    host: Annotated[str, Field(description="Address the service listens on.")] = "127.0.0.1"
    port: Annotated[int, Field(description="Port of the service; 0 picks a free one.", ge=0)] = 8765
    url: Annotated[
        str | None, Field(description="Address of the service for the command line.")
    ] = None
    token: Annotated[str | None, Field(description="Token the command line sends.")] = None
    token_file: Annotated[
        Path | None, Field(description="File that holds the token of the command line.")
    ] = None
    open_reading: Annotated[
        bool, Field(description="Whether reading (docs and metrics too) needs no token.")
    ] = True
    max_cells: Annotated[int, Field(description="Most cells of one job.", ge=1)] = 20_000
    max_gpu_minutes_per_job: Annotated[
        float, Field(description="Most device minutes that one job may be estimated at.", gt=0)
    ] = 2880.0
    max_gpu_minutes_per_token: Annotated[
        float,
        Field(description="Most such minutes of all jobs of one token within 24 hours.", gt=0),
    ] = 5760.0
    max_body_bytes: Annotated[int, Field(description="Largest request body.", ge=1024)] = 2**20
    writes_per_minute: Annotated[
        int, Field(description="Most writing requests a minute for one token or address.", ge=1)
    ] = 120
    max_streams: Annotated[int, Field(description="Most open event streams.", ge=1)] = 200
    heartbeat_s: Annotated[float, Field(description="Seconds between heartbeats.", gt=0)] = 1.0
    stale_after_s: Annotated[
        float, Field(description="A worker silent for this long counts as dead.", gt=0)
    ] = 10.0
    max_attempts: Annotated[
        int, Field(description="Times a case may see its worker die before it fails.", ge=1)
    ] = 3
    max_children: Annotated[
        int, Field(description="Resident measuring processes of one worker.", ge=2)
    ] = 16
    wheel_dir: Annotated[
        Path | None, Field(description="Folder of wheels for contenders; no index is asked then.")
    ] = None
    contenders_file: Annotated[
        Path | None,
        Field(description="YAML file of contenders that run from a folder or a git commit."),
    ] = None
    confirm_alerts: Annotated[
        bool,
        Field(description="Whether the service has new alerts measured again by itself."),
    ] = False
    webhook_url: Annotated[
        str | None, Field(description="Address that alerts are sent to as JSON, by POST.")
    ] = None
    webhook_url_file: Annotated[
        Path | None, Field(description="File that holds the address of the webhook.")
    ] = None
    log_level: Annotated[str, Field(description="debug, info, warning or error.")] = "info"

    @field_validator(
        "database_url",
        "database_url_file",
        "url",
        "token",
        "token_file",
        "webhook_url",
        "webhook_url_file",
        "wheel_dir",
        "contenders_file",
        mode="before",
    )
    @classmethod
    def _empty_is_unset(cls, value: object) -> object:
        return None if value == "" else value

    @model_validator(mode="before")
    @classmethod
    def _read_secrets(cls, given: dict[str, object]) -> dict[str, object]:
        """Take secrets from their files. Raises SetupError for a file that cannot be read, and
        where both are given.
        """
        found = dict(given)
        for name in ("database_url", "token", "webhook_url"):
            file = found.get(f"{name}_file")
            if not file:
                continue
            variable = f"LOSSBENCH_{name.upper()}"
            if found.get(name):
                raise SetupError(f"{variable} and {variable}_FILE are both set; keep one")
            try:
                found[name] = Path(str(file)).read_text(encoding="utf-8").strip()
            except OSError as error:
                raise SetupError(
                    f"{variable}_FILE names {file}, which cannot be read ({error.strerror})"
                ) from error
        return found

    @property
    def resolved_database_url(self) -> str:
        """The SQLAlchemy URL in use."""
        if self.database_url:
            return self.database_url.replace("postgresql://", "postgresql+psycopg://", 1)
        return f"sqlite:///{self.data_dir / 'lossbench.db'}"

    def prepared_data_dir(self) -> Path:
        """The data directory, made if missing. Raises DataDirectoryError."""
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            probe = self.data_dir / f".write-test-{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise DataDirectoryError(
                f"data directory {self.data_dir} cannot be written ({error.strerror}); "
                "set LOSSBENCH_DATA_DIR to one that can"
            ) from error
        return self.data_dir
