"""A table cut into pieces: every line once, each piece a table, lines counted as in the file."""

import pytest

from lossbench.service.cli.importing import pieces

HEADER = "method,kind,runtime_ms\n"
LINES = [f"cce,loss-fw,{number}\n" for number in range(10)]


@pytest.mark.parametrize("most_bytes", [1, 15, 40, 10_000])
def test_pieces_of_a_table_hold_every_line_once_with_its_number(most_bytes: int) -> None:
    found = list(pieces(HEADER + "".join(LINES), most_bytes))
    seen: list[str] = []
    for first_line, table in found:
        header, *lines = table.decode().splitlines(keepends=True)
        assert header == HEADER
        assert first_line == 2 + len(seen)
        assert len(lines) == 1 or sum(map(len, lines)) <= most_bytes
        seen += lines
    assert seen == LINES


def test_pieces_of_a_header_alone_are_one_piece() -> None:
    assert list(pieces(HEADER)) == [(2, HEADER.encode())]
