"""One whole day for all tests that only look at it."""

from __future__ import annotations

import asyncio

import pytest

from cloudgraft.demo.day import play
from tests.demo.playing import Keeper, PlayedDay


@pytest.fixture(scope="session")
def day() -> PlayedDay:
    """The demo from beginning to end, over a real socket, without waiting."""
    keeper = Keeper()
    summary = asyncio.run(play(keeper))
    return PlayedDay(frames=tuple(keeper.frames), summary=summary)
