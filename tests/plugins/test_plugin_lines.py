from __future__ import annotations

import asyncio
import itertools

from hypothesis import given
from hypothesis import strategies as st

from cloudgraft.plugins.host.output import LineSplitter, batches_of, printable


@given(text=st.text(alphabet="ab\n", max_size=60), cuts=st.lists(st.integers(0, 60)))
def test_lines_do_not_depend_on_how_the_bytes_arrive(text: str, cuts: list[int]) -> None:
    data, splitter, found = text.encode(), LineSplitter(), list[bytes]()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        found += splitter.feed(data[start:end])
    found += splitter.flush()
    assert found == (data.removesuffix(b"\n").split(b"\n") if data else [])


@given(chunks=st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_a_line_without_end_is_cut_once_and_the_next_line_is_whole_again(chunks: list[int]) -> None:
    splitter, found = LineSplitter(limit=10), list[str]()
    for size in (*chunks, 20):
        found += [printable(line, 10) for line in splitter.feed(b"x" * size)]
    found += [printable(line, 10) for line in splitter.feed(b"tail\nnext\n")]
    assert len(found) == 2
    assert found[0].startswith("x" * 10)
    assert found[0].endswith("[…]")
    assert found[1] == "next"


def test_control_characters_and_broken_text_cannot_paint_on_a_terminal() -> None:
    assert printable(b"\x1b[31mred\x07\tgr\xc3\xbcn \xff\r") == "\\x1b[31mred\\x07\tgrün \ufffd"


async def test_a_stream_gives_its_last_line_also_without_a_newline() -> None:
    stream = asyncio.StreamReader()
    stream.feed_data(b"one\ntwo")
    stream.feed_eof()
    assert [line async for lines in batches_of(stream) for line in lines] == [b"one", b"two"]
