"""Implements a provider that runs as a child process."""

from __future__ import annotations

from datetime import timedelta

import grpc.aio
from google.protobuf.message import Message

from cloudgraft.client import Address, CloudConfig, Connection, RemoteProvider
from cloudgraft.client.channel import cut_calls_are_errors
from cloudgraft.plugins.host.process import PluginSpec, Timing
from cloudgraft.plugins.host.supervisor import PluginStatus, Supervisor
from cloudgraft.wire.rpc import Rpc


class PluginProvider(RemoteProvider):
    """A provider in a plugin process that cloudgraft starts and restarts.

    While it is not running, every call fails at once with UnavailableError; put a SnapshotProvider in front to keep its
    groups. A call in flight when it ends fails too, and may have been carried out.
    """

    def __init__(
        self, spec: PluginSpec, *, timing: Timing | None = None, call_timeout: timedelta = timedelta(seconds=5)
    ) -> None:
        self.supervisor = Supervisor(spec, timing=timing)
        address = Address(text=self.supervisor.name, host="localhost", port="0")
        super().__init__(_PluginConnection(self.supervisor, CloudConfig(address=address, grpc_timeout=call_timeout)))

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


class _PluginConnection(Connection):
    """Makes each call over the connection to the plugin's current run."""

    def __init__(self, supervisor: Supervisor, config: CloudConfig) -> None:
        super().__init__(config)
        self._supervisor = supervisor

    def channel(self) -> grpc.aio.Channel:
        return self._supervisor.channel()

    async def call(self, rpc: Rpc, request: Message) -> Message:
        self._supervisor.connection()  # raises here while there is none: the supervisor has logged why
        with cut_calls_are_errors():
            return await super().call(rpc, request)
