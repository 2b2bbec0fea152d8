"""Ready replies are what the service would say at that moment: the two are compared along random walks of an engine.

Each kind of invalidation is also left out on purpose, and a walk must find that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from cloudgraft.sdk.provider import ReadyReplies
from tests.native.walk import walk
from tests.needs import needs_native

pytestmark = needs_native

STEPS = 60


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.thorough)])
async def test_ready_replies_equal_the_answers_of_the_service(tmp_path: Path, seed: int) -> None:
    difference, hits = await walk(tmp_path, seed, STEPS)
    assert difference is None
    assert hits > 0.2  # else the walk has compared the service with itself


class Forgetful:
    """Ready replies that are not told of one kind of change."""

    def __init__(self, inner: ReadyReplies, forgotten: str) -> None:
        self._inner = inner
        self._forgotten = forgotten

    def publish(self, subjects: Collection[str]) -> None:
        self._inner.publish([subject for subject in subjects if subject.partition("/")[0] != self._forgotten])

    def clear(self) -> None:
        if self._forgotten != "reload":
            self._inner.clear()

    def close(self) -> None:
        if self._forgotten != "leader":
            self._inner.close()


@pytest.mark.parametrize("forgotten", ["groups", "group", "machines", "node", "reload", "leader"])
async def test_an_invalidation_that_is_left_out_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: str
) -> None:
    from cloudgraft.engine.engine import Engine

    keep_ready: Callable[[Engine, ReadyReplies], None] = Engine.keep_ready
    monkeypatch.setattr(Engine, "keep_ready", lambda self, replies: keep_ready(self, Forgetful(replies, forgotten)))
    for seed in range(1, 6):
        directory = tmp_path / f"{seed}"
        directory.mkdir()
        difference, _ = await walk(directory, seed, STEPS)
        if difference is not None:
            return
    pytest.fail(f"no walk has found that {forgotten} is left out")
