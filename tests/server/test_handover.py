"""When a leader that is to stop lets another replica lead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat

import pytest

from cloudgraft.server.handover import wait_for_pause


def _reads(values: Iterator[float], seen: list[float]) -> Callable[[], float]:
    def idle() -> float:
        seen.append(next(values))
        return seen[-1]

    return idle


@pytest.mark.parametrize(
    ("seconds", "looks"),
    [
        ([1.2], 1),  # a loop has just ended
        ([0.0, 0.3, 1.0], 3),  # it is under way
        ([9.9, 0.1, 1.1], 3),  # the next one is near, so it comes first
        ([61.0], 1),  # no autoscaler is there
    ],
)
async def test_the_leader_lets_go_just_after_a_loop(
    seconds: list[float], looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloudgraft.server.handover._SHORTEST", 0.0)
    seen: list[float] = []
    await wait_for_pause(_reads(iter([*seconds, 5.0]), seen))
    assert len(seen) == looks


async def test_a_pod_that_was_just_started_in_its_place_gets_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloudgraft.server.handover._SHORTEST", 0.3)
    seen: list[float] = []
    await wait_for_pause(_reads(repeat(1.5), seen))
    assert len(seen) > 1


async def test_an_autoscaler_without_pauses_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloudgraft.server.handover._LONGEST", 0.3)
    await wait_for_pause(lambda: 0.0)
