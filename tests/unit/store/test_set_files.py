"""Set files: samples keep their bits, damage and foreign versions are one clear error."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossbench.service.contract.errors import ConflictError, InvalidRequestError
from lossbench.service.contract.result_set import SetSamples
from lossbench.service.store.set_files import pack_float32, read_set, unpack_float32, write_set

LINE = SetSamples(process=0, visit_sizes=(2,), latency_ms=pack_float32([1.5, 2.5]))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A set file with one line."""
    path = tmp_path / "small.jsonl.gz"
    write_set(path, (), (), [LINE])
    return path


def rewrite(path: Path, header: dict[str, Any] | None = None, body: bytes | None = None) -> None:
    """Change a file by hand."""
    head, _, rest = gzip.decompress(path.read_bytes()).partition(b"\n")
    head = json.dumps(json.loads(head) | (header or {})).encode()
    path.write_bytes(gzip.compress(head + b"\n" + (rest if body is None else body)))


def refusal(path: Path) -> str:
    """The one line with which reading a file is refused."""
    with pytest.raises(InvalidRequestError) as caught:
        read_set(path)
    assert "\n" not in caught.value.message
    return caught.value.message


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=50))
def test_float32_packed_and_unpacked_are_equal(values: list[float]) -> None:
    assert unpack_float32(pack_float32(values)) == values


def test_packed_samples_are_byte_planes() -> None:
    # 1.0 is 0000 803f: its planes are four pairs of equal bytes
    assert pack_float32([1.0, 1.0]) == "AAAAAICAPz8="


def test_set_written_and_read_is_equal(path: Path) -> None:
    found = read_set(path)
    assert found.lines == (LINE,)
    assert found.header.name == "small"
    assert found.header.counts == {"samples": 1}


def test_set_file_that_exists_is_not_overwritten(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(ConflictError, match="exists already"):
        write_set(path, (), (), [])
    assert path.read_bytes() == before


def test_set_file_of_another_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"NAME\.jsonl\.gz"):
        write_set(tmp_path / "a.json", (), (), [])
    with pytest.raises(InvalidRequestError, match="name: String should match"):
        write_set(tmp_path / "A b.jsonl.gz", (), (), [])


def test_changed_body_is_refused_by_its_hash(path: Path) -> None:
    rewrite(path, body=LINE.model_dump_json().replace("[2]", "[1, 1]").encode())
    assert "SHA-256" in refusal(path)


def test_newer_format_is_refused_with_both_versions(path: Path) -> None:
    rewrite(path, {"format_version": 9, "lossbench_version": "7.0"})
    message = refusal(path)
    assert "set format 9, made by lossbench 7.0" in message
    assert "reads format 1" in message


def test_header_with_an_unknown_field_is_refused_by_name(path: Path) -> None:
    rewrite(path, {"colour": "red"})
    assert "colour" in refusal(path)


def test_files_that_are_no_sets_are_refused(tmp_path: Path, path: Path) -> None:
    whole = path.read_bytes()
    for content, said in (
        (b"tea", "gzip"),
        (whole[:-12], "gzip"),
        (gzip.compress(b""), "no header"),
        (gzip.compress(b"[1]\n"), "no header"),
        (gzip.compress(b'{"format": "csv"}\n'), "no header"),
    ):
        path.write_bytes(content)
        assert said in refusal(path)
    assert "No such file" in refusal(tmp_path / "none.jsonl.gz")
