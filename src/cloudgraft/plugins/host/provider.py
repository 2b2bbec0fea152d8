"""Implements a provider that runs as a child process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from cloudgraft.client import Address, CloudConfig, RemoteProvider
from cloudgraft.client import Connection as ClientConnection
from cloudgraft.plugins.host.connection import Connection, cut_calls_are_errors
from cloudgraft.plugins.host.process import PluginSpec, Timing
from cloudgraft.plugins.host.supervisor import PluginStatus, Supervisor
from cloudgraft.sdk.provider import Provider
from cloudgraft.sdk.types import AutoscalingOptions, Instance, NodeGroup, NodeRef, NodeTemplate, Pod

T = TypeVar("T")


class PluginProvider(Provider):
    """A provider in a plugin process that cloudgraft starts and restarts.

    While it is not running, every call fails at once with UnavailableError; put a SnapshotProvider in front to keep its
    groups. A call in flight when it ends fails too, and may have been carried out.
    """

    def __init__(
        self, spec: PluginSpec, *, timing: Timing | None = None, call_timeout: timedelta = timedelta(seconds=5)
    ) -> None:
        self.supervisor = Supervisor(spec, timing=timing)
        self._config = CloudConfig(
            address=Address(text=f"the plugin {spec.name!r}", host="localhost", port="0"), grpc_timeout=call_timeout
        )
        self._remote: tuple[Connection, RemoteProvider] | None = None

    @property
    def status(self) -> PluginStatus:
        """The plugin's current status."""
        return self.supervisor.status

    async def start(self) -> None:
        """Starts the plugin. Only a command that cannot be executed is an error; other failures are retried."""
        await self.supervisor.start()

    async def close(self) -> None:
        """Stops the plugin and all its descendants."""
        await self.supervisor.stop()

    async def node_groups(self) -> Sequence[NodeGroup]:
        """Asked of the plugin, as all the others are."""
        return await self._ask(lambda remote: remote.node_groups())

    async def node_group_for_node(self, node: NodeRef) -> NodeGroup | None:
        """Asked of the plugin."""
        return await self._ask(lambda remote: remote.node_group_for_node(node))

    async def target_size(self, group: str) -> int:
        """Asked of the plugin."""
        return await self._ask(lambda remote: remote.target_size(group))

    async def instances(self, group: str) -> Sequence[Instance]:
        """Asked of the plugin."""
        return await self._ask(lambda remote: remote.instances(group))

    async def increase_size(self, group: str, delta: int) -> None:
        """Asked of the plugin."""
        await self._ask(lambda remote: remote.increase_size(group, delta))

    async def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        """Asked of the plugin."""
        await self._ask(lambda remote: remote.delete_nodes(group, nodes))

    async def decrease_target_size(self, group: str, delta: int) -> None:
        """Asked of the plugin."""
        await self._ask(lambda remote: remote.decrease_target_size(group, delta))

    async def refresh(self) -> None:
        """Asked of the plugin."""
        await self._ask(lambda remote: remote.refresh())

    async def cleanup(self) -> None:
        """Asked of the plugin."""
        await self._ask(lambda remote: remote.cleanup())

    async def template(self, group: str) -> NodeTemplate:
        """Asked of the plugin."""
        return await self._ask(lambda remote: remote.template(group))

    async def options(self, group: str, defaults: AutoscalingOptions) -> AutoscalingOptions | None:
        """Asked of the plugin."""
        return await self._ask(lambda remote: remote.options(group, defaults))

    async def node_price(self, node: NodeRef, start: datetime, end: datetime) -> float:
        """Asked of the plugin."""
        return await self._ask(lambda remote: remote.node_price(node, start, end))

    async def pod_price(self, pod: Pod, start: datetime, end: datetime) -> float:
        """Asked of the plugin."""
        return await self._ask(lambda remote: remote.pod_price(pod, start, end))

    async def gpu_label(self) -> str:
        """Asked of the plugin."""
        return await self._ask(lambda remote: remote.gpu_label())

    async def gpu_types(self) -> Collection[str]:
        """Asked of the plugin."""
        return await self._ask(lambda remote: remote.gpu_types())

    async def _ask(self, call: Callable[[RemoteProvider], Awaitable[T]]) -> T:
        connection = self.supervisor.connection()
        if self._remote is None or self._remote[0] is not connection:
            remote = RemoteProvider(ClientConnection(self._config, channel=connection.channel))
            self._remote = (connection, remote)
        with cut_calls_are_errors():
            return await call(self._remote[1])
