"""Runs the whole fake: a consumer and its providers, each with the controllers that play Liqo's part there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from cloudgraft.demo.fake_liqo.cluster import Cluster
from cloudgraft.demo.fake_liqo.peers import NETWORK_KINDS, ForeignClusters, Network
from cloudgraft.demo.fake_liqo.replicator import Replicator
from cloudgraft.demo.fake_liqo.script import Pace, Script
from cloudgraft.demo.fake_liqo.slices import PROVIDER_KINDS, Grants, SliceRequests
from cloudgraft.demo.fake_liqo.virtual_nodes import VirtualNodes
from cloudgraft.demo.fake_liqo.words import (
    FOREIGN_CLUSTERS,
    IDENTITIES,
    IDENTITY_SECRETS,
    NAMESPACE_MAPS,
    NODES,
    SCRIPTS,
    SLICES,
    VIRTUAL_NODES,
)
from cloudgraft.kube.client import KubeClient
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError

_LOG = logging.getLogger("cloudgraft.fakeliqo")
_CONSUMER_KINDS: Final = (
    *NETWORK_KINDS,
    FOREIGN_CLUSTERS,
    IDENTITIES,
    IDENTITY_SECRETS,
    NAMESPACE_MAPS,
    NODES,
    SCRIPTS,
    SLICES,
    VIRTUAL_NODES,
)
_AFTER_TROUBLE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
_LEASE_PERIOD: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A cluster with Liqo: its id, and a client that may do everything there."""

    id: str
    client: KubeClient


class FakeLiqo:
    """Plays Liqo in several clusters at a time. All its state is in their APIs: it can be stopped at any time."""

    def __init__(
        self,
        consumer: Member,
        providers: Sequence[Member] = (),
        *,
        script: Script | None = None,
        script_file: Path | None = None,
        renew_leases: bool = False,
        dead_after: float = 2.0,
    ) -> None:
        """``dead_after``: seconds of silence after which a provider counts as dead. Changes of the file are noticed."""
        self.script = script or Script()
        self._file = script_file
        self._renews = renew_leases
        self._consumer = Cluster(consumer.id, consumer.client, _CONSUMER_KINDS)
        self._providers = [Cluster(each.id, each.client, (*NETWORK_KINDS, *PROVIDER_KINDS)) for each in providers]
        self._replicator = Replicator(self._consumer, self.script, dead_after=dead_after)

    async def run(self) -> None:
        """Plays until cancelled."""
        wakes: list[asyncio.Event] = []

        def wake_all() -> None:
            for wake in wakes:
                wake.set()

        self.script.on_change = wake_all
        try:
            async with asyncio.TaskGroup() as tasks:
                for cluster, make in ((self._consumer, self._consume), *((each, _provide) for each in self._providers)):
                    wake, pace = asyncio.Event(), Pace()
                    wakes.append(wake)
                    cluster.on_change = wake.set
                    tasks.create_task(cluster.watch())
                    tasks.create_task(_turns(cluster, make(cluster, self.script, pace), wake, pace))
                if self._renews:
                    tasks.create_task(self._renew())
                if self._file is not None:
                    tasks.create_task(self._read(self._file))
        finally:
            await self._replicator.close()

    def _consume(self, cluster: Cluster, script: Script, pace: Pace) -> Callable[[], Awaitable[None]]:
        foreign = ForeignClusters(cluster, self._replicator.is_reachable)
        parts = (
            Network(cluster, script, pace),
            self._replicator,
            SliceRequests(cluster, script, pace),
            VirtualNodes(cluster, script, pace, foreign.is_reachable),
            foreign,
        )

        async def turn() -> None:
            self._read_map()
            await _each(parts)

        return turn

    def _read_map(self) -> None:
        for found in self._consumer.all(SCRIPTS):
            data: Any = found.content.get("data") or {}
            if "script.json" in data:
                self._load(data["script.json"])

    def _load(self, text: str) -> None:
        try:
            self.script.load(text)
        except InvalidArgumentError as error:
            _LOG.warning("%s", error)

    async def _read(self, path: Path) -> None:
        while True:
            with suppress(FileNotFoundError):
                self._load(await asyncio.to_thread(path.read_text))
            await asyncio.sleep(_AFTER_TROUBLE)

    async def _renew(self) -> None:
        nodes = VirtualNodes(self._consumer, self.script, Pace(), self._replicator.is_reachable)
        while True:
            try:
                await nodes.renew_leases()
            except CloudgraftError as error:
                _LOG.debug("leases: %s", error)
            await asyncio.sleep(_LEASE_PERIOD)


def _provide(cluster: Cluster, script: Script, pace: Pace) -> Callable[[], Awaitable[None]]:
    parts = (Network(cluster, script, pace), Grants(cluster, script, pace))

    return lambda: _each(parts)


class _Part(Protocol):
    async def turn(self) -> None: ...


async def _each(parts: Sequence[_Part]) -> None:
    """Runs a turn of each part: an error of one does not stop the others."""
    trouble: CloudgraftError | None = None
    for part in parts:
        try:
            await part.turn()
        except CloudgraftError as error:
            trouble = error
    if trouble is not None:
        raise trouble


async def _turns(cluster: Cluster, turn: Callable[[], Awaitable[None]], wake: asyncio.Event, pace: Pace) -> None:
    """Runs a turn whenever something changed or is due."""
    while True:
        pause = _LONGEST_PAUSE
        wake.clear()
        if cluster.is_synced:
            pace.begin()
            try:
                await turn()
            except CloudgraftError as error:
                _LOG.debug("%s: %s", cluster.id, error)
                pause = _AFTER_TROUBLE
        try:
            async with asyncio.timeout(pace.wait(pause)):
                await wake.wait()
        except TimeoutError:
            continue


@asynccontextmanager
async def playing(fake: FakeLiqo) -> AsyncIterator[FakeLiqo]:
    """Plays in the background while this is open."""
    task = asyncio.create_task(fake.run())
    try:
        yield fake
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
