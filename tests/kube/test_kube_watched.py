"""A copy of the cluster's nodes, kept fresh whatever happens to the watch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from cloudgraft.kube.client import KubeClient
from cloudgraft.kube.objects import NODES, Node
from cloudgraft.kube.watched import Watched
from tests.conditions import until
from tests.kube_api import KubeApi


class Copy:
    """A copy that is running, and what it told."""

    def __init__(self, client: KubeClient) -> None:
        self.changes = 0
        self.watched: Watched[Node] = Watched(client, NODES, on_change=self._count)
        self._task = asyncio.create_task(self.watched.run())

    def _count(self) -> None:
        self.changes += 1

    async def shows(self, *names: str) -> None:
        await until(lambda: sorted(node.name for node in self.watched.objects.values()) == sorted(names))

    async def stop(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


@pytest.fixture
async def copy(api: KubeApi, client: KubeClient) -> AsyncIterator[Copy]:
    api.store.create("nodes", "", {"metadata": {"name": "first"}})
    running = Copy(client)
    yield running
    await running.stop()


def add(api: KubeApi, name: str) -> None:
    api.store.create("nodes", "", {"metadata": {"name": name}})


def remove(api: KubeApi, name: str) -> None:
    api.store.delete(("nodes", "", name), {})


async def test_it_shows_what_was_there_and_what_comes_and_goes(api: KubeApi, copy: Copy) -> None:
    assert not copy.watched.is_synced
    await copy.shows("first")
    assert copy.watched.is_synced
    add(api, "second")
    await copy.shows("first", "second")
    remove(api, "first")
    await copy.shows("second")
    assert copy.changes == 3


async def test_a_watch_that_ends_is_taken_up_where_it_ended(api: KubeApi, copy: Copy) -> None:
    await until(lambda: len(api.watches("nodes")) == 1)
    add(api, "second")
    await copy.shows("first", "second")
    api.end_watches()
    await until(lambda: len(api.watches("nodes")) == 2)
    add(api, "third")
    await copy.shows("first", "second", "third")
    first, second = (int(request.query["resourceVersion"]) for request in api.watches("nodes"))
    assert second > first
    assert len(api.lists("nodes")) == 1


async def test_it_does_not_spin_on_a_server_that_ends_every_watch(api: KubeApi, copy: Copy) -> None:
    api.sends_bookmarks = False
    await until(lambda: len(api.watches("nodes")) == 1)
    api.refuse(lambda request: request.is_watch, 200, b"", times=1000)
    api.end_watches()
    await until(lambda: len(api.watches("nodes")) == 3)
    _, second, third = (request.at for request in api.watches("nodes"))
    assert third - second >= 1.0


async def test_it_does_not_list_everything_all_the_time_where_no_watch_is_to_be_had(
    api: KubeApi, client: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A right that is missing, or a proxy that breaks watches: thousands of nodes several times a second are much."""
    api.denied = {("watch", "nodes")}
    copy = Copy(client)
    try:
        await until(lambda: len(api.lists("nodes")) == 5)
        first, *_, last = (request.at for request in api.lists("nodes"))
        assert last - first >= (0.2 + 0.4 + 0.8 + 1.6) / 2, "longer and longer"
        assert [record.levelname for record in _troubles(caplog)] == ["WARNING"], "and told once"
    finally:
        await copy.stop()


async def test_after_410_it_lists_again_and_finds_what_it_missed(api: KubeApi, copy: Copy) -> None:
    await until(lambda: len(api.watches("nodes")) == 1)
    api.refuse(lambda request: request.is_watch, 503, times=1)  # so that it is away for a moment
    api.end_watches()
    await until(lambda: len(api.watches("nodes")) == 2)
    remove(api, "first")
    add(api, "second")
    api.store.compact()
    await copy.shows("second")
    assert len(api.lists("nodes")) >= 2


async def test_an_expired_watch_lists_again(api: KubeApi, copy: Copy) -> None:
    await until(lambda: len(api.watches("nodes")) == 1)
    with api.store.changed:  # the watch sees both at once: the past is gone
        remove(api, "first")
        api.store.compact()
    await copy.shows()
    assert len(api.lists("nodes")) == 2


async def test_a_broken_connection_is_made_again(api: KubeApi, copy: Copy) -> None:
    await until(lambda: len(api.watches("nodes")) == 1)
    api.sever()
    remove(api, "first")
    add(api, "second")
    await copy.shows("second")


async def test_while_the_server_is_away_the_copy_stays_and_one_warning_is_given(
    api: KubeApi, copy: Copy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="cloudgraft.kube")
    await until(lambda: len(api.watches("nodes")) == 1)
    api.stop()
    await until(lambda: len(_troubles(caplog)) >= 3)
    assert [record.levelname for record in _troubles(caplog)][:3] == ["WARNING", "DEBUG", "DEBUG"]
    await copy.shows("first")
    add(api, "second")
    api.start()
    await copy.shows("first", "second")
    assert "the Kubernetes API is back" in caplog.messages


def _troubles(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.message.startswith("trouble with the Kubernetes API")]
