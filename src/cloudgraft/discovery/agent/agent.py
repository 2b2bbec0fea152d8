"""Runs the agent of a remote cluster: measures its free resources, and reports them to discovery.

It only makes outgoing calls, so that it works behind NAT. It retries while discovery is away. While the cluster's own
API is away it sends nothing, so that discovery marks the cluster as stale instead of offering old figures.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cloudgraft._version import __version__
from cloudgraft.discovery.agent.measure import Rules, measure
from cloudgraft.discovery.checks import hide_kubeconfig
from cloudgraft.discovery.model import ClusterSpec, PriceList
from cloudgraft.discovery.search.prices import seconds_of
from cloudgraft.kube.objects import CONFIG_MAPS, NODES, POD_LOADS, ConfigMapObject, Kind
from cloudgraft.kube.watched import Source, Watched
from cloudgraft.sdk.common.causes import cause
from cloudgraft.sdk.errors import CloudgraftError, ConflictError, NotFoundError, PreconditionError, Retry

if TYPE_CHECKING:  # extras, and an agent needs only one of them
    from cloudgraft.discovery.client import DiscoveryClient
    from cloudgraft.discovery.service import Discovery

CLUSTER_ID_MAPS: Final[Kind[ConfigMapObject]] = replace(
    CONFIG_MAPS, label_selector="app.kubernetes.io/name=clusterid-configmap"
)
_LOG = logging.getLogger("cloudgraft.agent")
_ID_KEY: Final = "CLUSTER_ID"
_FRESH: Final = 90.0  # seconds; a working watch delivers something at least once a minute
_FIRST_LOOK: Final = 2.0
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 10.0  # or the heartbeat interval: a recovered discovery should get a heartbeat soon
_REFUSED_PAUSE: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """The settings of an agent. ``spec`` is declared as it is, except for the capacity, which is measured."""

    spec: ClusterSpec
    rules: Rules = field(default_factory=Rules)
    prices: PriceList | None = None
    credentials_file: Path | None = None
    every: float = 10.0  # seconds between heartbeats


async def cluster_id_of(source: Source) -> str:
    """Liqo's id of the cluster, from Liqo's ConfigMap. PreconditionError when there is none, or several."""
    listing = await source.list(CLUSTER_ID_MAPS)
    found = sorted({item.data[_ID_KEY] for item in listing.items if item.data.get(_ID_KEY)})
    if len(found) != 1:
        what = "has none" if not found else f"has several: {', '.join(found)}"
        raise PreconditionError(
            f"Liqo's cluster id should be in a ConfigMap with the label {CLUSTER_ID_MAPS.label_selector}, and the "
            f"cluster {what}: install Liqo there, or write cluster.id in the agent's file"
        )
    return found[0]


class Agent:
    """Reports one cluster until cancelled."""

    def __init__(self, source: Source, register: DiscoveryClient | Discovery, settings: AgentSettings) -> None:
        self._register = register
        self._settings = settings
        self._nodes = Watched(source, NODES, on_change=_nothing)
        self._pods = Watched(source, POD_LOADS, on_change=_nothing)
        self._announced: ClusterSpec | None = None
        self._has_told_prices = False
        self._handed_in = ""
        self._trouble = ""
        self._lacking = ""  # why discovery rejected prices or credentials
        self._ask_again_at = 0.0  # the loop's time
        self.heartbeats = 0  # accepted by discovery

    @property
    def _id(self) -> str:
        return self._settings.spec.id

    async def run(self) -> None:
        """Measures and announces until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run())
            group.create_task(self._pods.run())
            group.create_task(self._announce())

    async def _announce(self) -> None:
        pause, clock = _FIRST_PAUSE, asyncio.get_running_loop()
        began = clock.time()
        while True:
            if not self._is_fresh():
                if clock.time() - began > _FIRST_LOOK:  # the watches need a moment to deliver their first data
                    self._warn("the Kubernetes API does not respond: no heartbeat is sent until it is back")
                await asyncio.sleep(min(1.0, self._settings.every))
                continue
            try:
                await self._once()
            except CloudgraftError as error:
                self._warn(f"discovery rejected the heartbeat: {error.message}")
                wait = max(pause, error.retry_after or 0.0)
                # Retry a permanent rejection slowly: a person may still fix it.
                most = max(_LONGEST_PAUSE, self._settings.every)
                pause = _REFUSED_PAUSE if error.retry is Retry.NO else min(pause * 2, most)
            else:
                await self._complete()
                self.heartbeats += 1
                self._hear()
                wait, pause = self._settings.every, _FIRST_PAUSE
            await asyncio.sleep(wait * random.uniform(0.85, 1.15))  # noqa: S311 - spreads the load, guards no secret

    def _is_fresh(self) -> bool:
        copies = (self._nodes, self._pods)
        return all(copy.is_synced and copy.heard_within(_FRESH) for copy in copies)

    async def _once(self) -> None:
        """Reports what is free now, and then declares the cluster, unless discovery knows it.

        In that order: a cluster without a measurement offers all that it declares, and would do so for ever if
        this stopped, or was rejected, between the two.
        """
        measured = measure(self._nodes.objects.values(), self._pods.objects.values(), self._settings.rules)
        measured = replace(measured, observed_at=datetime.now(UTC), agent_version=__version__)
        spec = replace(self._settings.spec, capacity=measured.allocatable)
        try:
            await self._register.heartbeat(self._id, measured)
        except NotFoundError:  # it is new, or it was removed, or discovery has a new database
            self._announced, self._has_told_prices, self._handed_in = None, False, ""
            await self._register.put_cluster(replace(spec, capacity={}))
            await self._register.heartbeat(self._id, measured)
        if self._announced != spec:
            await self._declare(spec)

    async def _complete(self) -> None:
        """Sets prices and credentials. Heartbeats continue without them: no price does not mean stale."""
        clock = asyncio.get_running_loop()
        if clock.time() < self._ask_again_at:
            return
        try:
            await self._tell_prices()
            await self._hand_in()
        except CloudgraftError as error:
            level = logging.DEBUG if self._lacking == error.message else logging.WARNING
            _LOG.log(level, "discovery rejected prices or credentials: %s", error.message, extra={"cluster": self._id})
            self._lacking = error.message
            if error.retry is Retry.NO:
                self._ask_again_at = clock.time() + _REFUSED_PAUSE
        else:
            self._lacking = ""

    async def _declare(self, spec: ClusterSpec) -> None:
        """Declares the cluster. Keeps the cordon, which belongs to operators."""
        known = await self._register.cluster(self._id)
        wanted = replace(spec, cordoned=known.spec.cordoned)
        if wanted != known.spec:
            try:
                await self._register.put_cluster(wanted, revision=known.revision)
            except ConflictError:
                return  # an operator changed it meanwhile: retry at the next heartbeat
        self._announced = spec

    async def _tell_prices(self) -> None:
        """Sets the prices once: operators override them, and a restart of the agent must not undo that."""
        own = self._settings.prices
        if own is None or self._has_told_prices:
            return
        try:
            await self._register.change_prices(self._id, partial(_with_own, own, time.time()))
        except ConflictError:
            return  # an operator changed them meanwhile: retry at the next heartbeat
        self._has_told_prices = True

    async def _hand_in(self) -> None:
        """Uploads the credentials once, and again when their file has changed."""
        path = self._settings.credentials_file
        if path is None:
            return
        try:
            content = await asyncio.to_thread(path.read_text)
        except (OSError, UnicodeError) as error:
            raise PreconditionError(f"the credentials {path} cannot be read: {cause(error)}") from error
        if content != self._handed_in:
            hide_kubeconfig(content)
            await self._register.set_credentials(self._id, content)
            self._handed_in = content

    def _warn(self, trouble: str) -> None:
        """Warns once per outage, not once per attempt."""
        _LOG.log(logging.DEBUG if self._trouble else logging.WARNING, trouble, extra={"cluster": self._id})
        self._trouble = trouble

    def _hear(self) -> None:
        if self._trouble or self.heartbeats == 1:
            _LOG.info("discovery has accepted a heartbeat", extra={"cluster": self._id})
        self._trouble = ""


def _with_own(own: PriceList, now: float, present: Sequence[PriceList]) -> list[PriceList]:
    """Replaces the first list that has the same start with ours, below all others, and drops lists that have ended.

    The end does not identify the previous list: after a changed end it would stay above ours, and apply.
    """
    alive = [one for one in present if one == own or seconds_of(one.valid_to, inf) > now]
    if own in alive:
        return alive
    begin = seconds_of(own.valid_from, -inf)
    former = next((one for one in present if seconds_of(one.valid_from, -inf) == begin), None)
    return [own, *(one for one in alive if one is not former)]


def _nothing() -> None:
    """Nodes and pods change all the time: they are read only for a heartbeat."""
