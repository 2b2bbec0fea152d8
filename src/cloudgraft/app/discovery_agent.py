"""Runs the discovery agent of a configuration."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from cloudgraft.app.joining_wiring import connected
from cloudgraft.config.programs.discovery_agent import AgentConfig
from cloudgraft.config.section import convert
from cloudgraft.discovery.agent.agent import Agent, AgentSettings, cluster_id_of
from cloudgraft.discovery.agent.measure import Margin, Rules
from cloudgraft.discovery.client import DiscoveryClient
from cloudgraft.discovery.model import ClusterSpec, Network, NetworkMode, PriceList
from cloudgraft.sdk.common.backoff import Backoff
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.server.signals import StopSignals
from cloudgraft.web.client import ClientTls

if TYPE_CHECKING:
    from cloudgraft.kube.client import KubeClient  # needs an extra

_LOG = logging.getLogger("cloudgraft.agent")
_LONGEST_PAUSE: Final = 30.0


async def run_agent(config: AgentConfig) -> None:
    """Announces the cluster of a configuration until the process gets a signal."""
    tls = config.server.tls
    files = convert(tls, ClientTls) if tls is not None else None
    kube = connected(config.kubernetes)
    try:
        async with DiscoveryClient(config.server.address, tls=files, token_file=config.server.token_file) as client:
            with StopSignals() as stop:
                try:
                    id_ = config.cluster.id or await _id_of(kube)
                    working = asyncio.create_task(Agent(kube, client, settings_of(config, id_)).run())
                    _LOG.info("serving as the agent of the cluster %s", id_, extra={"server": client.address})
                    await _until(stop, working)
                except asyncio.CancelledError:
                    if not stop.while_starting:
                        raise
    finally:
        await kube.close()


async def _until(stop: StopSignals, working: asyncio.Task[None]) -> None:
    """Waits for a signal, or for the end of the work, which only a bug ends."""
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({stopping, working}, return_when=asyncio.FIRST_COMPLETED)
    for task in (stopping, working):
        task.cancel()
    await asyncio.wait({stopping, working})
    if not working.cancelled():
        working.result()


async def _id_of(kube: KubeClient) -> str:
    """Liqo's cluster id. Waits for it: Liqo may be installed after the agent."""
    backoff, level = Backoff(first=1.0, longest=_LONGEST_PAUSE), logging.WARNING
    while True:
        try:
            return await cluster_id_of(kube)
        except CloudgraftError as error:
            _LOG.log(level, "waiting for Liqo's cluster id: %s", error.message)
            level = logging.DEBUG  # once is enough
        await asyncio.sleep(backoff.next())


def settings_of(config: AgentConfig, id_: str) -> AgentSettings:
    """The agent's settings of a configuration."""
    said, network = config.cluster, config.cluster.network
    spec = convert(
        said,
        ClusterSpec,
        id=id_,
        display_name=said.display_name or "",
        network=convert(network, Network, mode=NetworkMode(network.mode), address=network.address or ""),
    )
    rules = Rules(
        margins={name: _margin(text) for name, text in config.share.margin.items()},
        only=frozenset(config.share.resources),
        tolerated=frozenset(config.share.tolerate),
    )
    return AgentSettings(
        spec=spec,
        rules=rules,
        prices=convert(config.prices, PriceList) if config.prices is not None else None,
        credentials_file=config.credentials_file,
        every=config.heartbeat / timedelta(seconds=1),
    )


def _margin(text: str) -> Margin:
    if text.endswith("%"):
        return Margin(share=Fraction(text[:-1]) / 100)
    return Margin(amount=Quantity(text))
