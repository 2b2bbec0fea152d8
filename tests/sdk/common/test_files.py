"""Questions about paths, which pathlib answers in one way until Python 3.13 and in another since."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cloudgraft.sdk.common.files import exists, is_directory, is_file
from cloudgraft.sdk.errors import PreconditionError

QUESTIONS = [exists, is_directory, is_file]


def test_what_is_there_is_known_by_its_kind(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert [ask(tmp_path) for ask in QUESTIONS] == [True, True, False]
    assert [ask(file) for ask in QUESTIONS] == [True, False, True]


def test_nothing_is_there_below_a_file_or_behind_a_broken_link(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("away")
    for nothing in ("away", "file/below", "link"):
        assert [ask(tmp_path / nothing) for ask in QUESTIONS] == [False, False, False]


@pytest.mark.parametrize("ask", QUESTIONS)
def test_what_cannot_be_known_is_refused_with_its_reason(ask: Callable[[Path], bool], tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with pytest.raises(PreconditionError, match="loop/x: Too many levels of symbolic links"):
        ask(loop / "x")
    with pytest.raises(PreconditionError, match="xxx: File name too long"):
        ask(tmp_path / ("x" * 300))
