"""Set files: write and read them. Damage and foreign versions are one clear error."""

import base64
import gzip
import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from ..contract.errors import ConflictError, InvalidRequestError
from ..contract.result_set import (
    FORMAT_VERSION,
    READ_LINE,
    SUFFIX,
    ResultSet,
    SetHeader,
    SetJob,
    SetLine,
)
from ..contract.run import Environment

SHIPPED = Path(__file__).with_name("sets")


def shipped_sets() -> list[Path]:
    """Files of the sets that the package ships, by name."""
    return sorted(SHIPPED.glob(f"*{SUFFIX}"))


def pack_float32(values: Sequence[float]) -> str:
    """Milliseconds as float32 little-endian, by byte planes, in base64."""
    planes = np.asarray(values, dtype="<f4").view(np.uint8).reshape(-1, 4).T
    return base64.b64encode(planes.tobytes()).decode("ascii")


def unpack_float32(text: str) -> list[float]:
    """Inverse of `pack_float32`. Raises ValueError for text that it cannot have written."""
    planes = np.frombuffer(base64.b64decode(text, validate=True), dtype=np.uint8)
    values = planes.reshape(4, -1).T.copy().view("<f4").ravel()
    return [float(value) for value in values]


def set_name(path: Path) -> str:
    """Name of the set in a file. Raises InvalidRequestError for another ending."""
    if not path.name.endswith(SUFFIX):
        raise InvalidRequestError(f"{path}: a set file is called NAME{SUFFIX}")
    return path.name.removesuffix(SUFFIX)


def write_set(
    path: Path,
    jobs: Sequence[SetJob],
    environments: Sequence[Environment],
    lines: Sequence[SetLine],
) -> SetHeader:
    """Write a new file; returns its header. Raises ConflictError where it exists already."""
    name = set_name(path)
    if path.exists():
        raise ConflictError(f"{path} exists already; choose another name")
    body = "".join(f"{line.model_dump_json(by_alias=True)}\n" for line in lines).encode()
    try:
        header = SetHeader(
            lossbench_version=_own_version(),
            name=name,
            exported_at=datetime.now(UTC).replace(microsecond=0),
            jobs=tuple(jobs),
            environments=tuple(environments),
            counts=dict(Counter(line.kind for line in lines)),
            body_sha256=hashlib.sha256(body).hexdigest(),
        )
    except ValidationError as error:
        raise InvalidRequestError(f"{path}: {_first_fault(error)}") from error
    # no time and no name inside: equal sets are equal files
    packed = gzip.compress(header.model_dump_json(by_alias=True).encode() + b"\n" + body, mtime=0)
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_bytes(packed)
        partial.replace(path)
    except OSError as error:
        raise InvalidRequestError(f"{path}: {error.strerror}") from error
    return header


def read_set(path: Path) -> ResultSet:
    """Read and check a file. Raises InvalidRequestError naming the file and what is wrong."""
    try:
        head, _, body = gzip.decompress(path.read_bytes()).partition(b"\n")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InvalidRequestError(f"{path}: not a whole gzip file ({error})") from error
    except OSError as error:
        raise InvalidRequestError(f"{path}: {error.strerror}") from error
    header = _header(path, head)
    if hashlib.sha256(body).hexdigest() != header.body_sha256:
        raise InvalidRequestError(
            f"{path}: its records do not have the SHA-256 of its header: damaged or changed by hand"
        )
    lines = []
    for number, line in enumerate(body.splitlines(), start=2):
        try:
            lines.append(READ_LINE.validate_json(line))
        except ValidationError as error:
            raise misfit(path.name, f"line {number}", header, error) from error
    return ResultSet.model_construct(header=header, lines=tuple(lines))


def _header(path: Path, text: bytes) -> SetHeader:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidRequestError(f"{path}: not a lossbench set: no header") from error
    if not isinstance(found, dict) or found.get("format") != "lossbench-set":
        raise InvalidRequestError(f"{path}: not a lossbench set: no header")
    if found.get("format_version") != FORMAT_VERSION:
        raise InvalidRequestError(
            f"{path}: set format {found.get('format_version')}, made by lossbench "
            f"{found.get('lossbench_version')}; this lossbench reads format {FORMAT_VERSION}"
        )
    try:
        return SetHeader.model_validate(found)
    except ValidationError as error:
        raise InvalidRequestError(f"{path}: header: {_first_fault(error)}") from error


def misfit(file: str, where: str, header: SetHeader, error: ValidationError) -> InvalidRequestError:
    """A record that this lossbench cannot read: often one of a newer lossbench."""
    return InvalidRequestError(
        f"{file}: {where}: {_first_fault(error)}; the set was made by lossbench "
        f"{header.lossbench_version}, this is {_own_version()}"
    )


def _first_fault(error: ValidationError) -> str:
    fault = error.errors()[0]
    place = ".".join(str(part) for part in fault["loc"])
    return f"{place}: {fault['msg']}" if place else str(fault["msg"])


def _own_version() -> str:
    try:
        return version("lossbench")
    except PackageNotFoundError:
        return "0"
