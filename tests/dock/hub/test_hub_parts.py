"""Small parts of the hub, by themselves."""

from __future__ import annotations

import asyncio

import pytest

from cloudgraft.dock.hub.hub import HubSettings
from cloudgraft.dock.hub.operations import Deadlines
from cloudgraft.dock.hub.outbox import Outbox
from cloudgraft.dock.hub.settings import Bucket, Limits
from cloudgraft.dock.protocol.dialect import Tombstones
from cloudgraft.sdk.errors import RateLimitedError
from tests.conditions import until
from tests.dock.hub.hub_rig import ACME, OTHER


async def test_deadlines_come_in_their_order_and_those_that_were_met_do_not() -> None:
    pending, seen = {1, 2, 3}, list[tuple[int, float]]()
    deadlines = Deadlines(pending, lambda number, when: seen.append((number, when)))
    second, first = deadlines.add(2, 0.05), deadlines.add(1, 0.01)
    deadlines.add(3, 0.02)
    pending.remove(3)
    await until(lambda: len(seen) == 2)
    assert seen == [(1, first), (2, second)]
    deadlines.add(1, 0.0)
    deadlines.close()
    await asyncio.sleep(0)
    assert len(seen) == 2


async def test_deadlines_that_were_met_are_not_kept() -> None:
    pending = set[int]()
    deadlines = Deadlines(pending, lambda _number, _when: None)
    for number in range(10_000):
        pending.add(number)
        deadlines.add(number, 3600)
        pending.remove(number)
    assert len(deadlines._heap) <= 1001
    deadlines.close()


def test_a_bucket_refills_with_time() -> None:
    now = [0.0]
    bucket = Bucket(2, 10.0, lambda: now[0])
    assert [bucket.take(), bucket.take()] == [0.0, 0.0]
    assert bucket.take() == pytest.approx(0.1)
    now[0] = 0.1
    assert bucket.take() == 0.0
    now[0] = 100.0
    assert bucket.full


def test_limits_forget_identities_that_are_quiet_and_places_that_are_left() -> None:
    now = [0.0]
    limits = Limits(HubSettings(registrations=1, registrations_per_second=1.0, max_sessions=1), lambda: now[0])
    with limits.place("a"):
        with pytest.raises(RateLimitedError), limits.place("b"):
            pass
        with pytest.raises(RateLimitedError), limits.place("a"):
            pass
    now[0] = 10.0
    with limits.place("c"):
        assert (set(limits._arrivals), set(limits._open)) == ({"c"}, {"c"})


async def test_words_go_before_operations_and_always() -> None:
    outbox = Outbox(limit=2, limit_bytes=100)
    assert outbox.put(1, b"a" * 150)  # one always fits
    assert not outbox.put(2, b"b")
    outbox.take_operations(take=False)
    outbox.notify(lambda: None)
    outbox.notify(lambda: b"words")
    assert await outbox.next() == (None, b"words")
    outbox.take_operations(take=True)
    assert await outbox.next() == (1, b"a" * 150)
    assert outbox.put(2, b"b")
    outbox.remove(2)
    assert len(outbox) == 0


def test_tombstones_are_few_and_belong_to_a_key() -> None:
    tombstones = Tombstones(2)
    for number in (1, 2, 3):
        tombstones.add(ACME, number)
    assert not tombstones.take(ACME, 1)  # too old
    assert not tombstones.take(OTHER, 3)
    assert tombstones.take(ACME, 3)
    assert not tombstones.take(ACME, 3)
