"""Lines out of bytes, however those are cut."""

from __future__ import annotations

import pytest

from cloudgraft.kube.api import Lines, TooLongError


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_are_the_same_however_the_bytes_are_cut(size: int) -> None:
    data = 'one\n\n{"a": "\u2028 \x0b"}\nlast'.encode()  # only a newline ends a line
    lines = Lines(20)
    found = [line for at in range(0, len(data), size) for line in lines.feed(data[at : at + size])]
    assert found == [b"one", b"", '{"a": "\u2028 \x0b"}'.encode()]
    assert lines.begun == b"last"


def test_no_more_than_the_longest_line_is_kept() -> None:
    lines = Lines(10)
    assert list(lines.feed(b"0123456789\n0123456789")) == [b"0123456789"]
    with pytest.raises(TooLongError, match="more than 10 bytes"):
        list(lines.feed(b"x"))
    assert lines.begun == b"0123456789"


def test_a_line_that_is_too_long_is_no_line_although_it_ends() -> None:
    with pytest.raises(TooLongError):
        list(Lines(3).feed(b"0123\n"))
