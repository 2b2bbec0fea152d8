"""The ways to a driver that lives elsewhere: a child process of ours, or somebody's server."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod

import grpc
import grpc.aio

from cloudgraft.client import CloudConfig
from cloudgraft.client.connection import channel_credentials, credentials_stamp
from cloudgraft.plugins.host.connection import LARGEST_MESSAGE
from cloudgraft.plugins.host.supervisor import Supervisor
from cloudgraft.plugins.spec import PluginSpec, Timing
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError, UnavailableError

__all__ = ["DriverLink", "PluginLink", "ServerLink"]

log = logging.getLogger("cloudgraft.plugins")


class DriverLink(ABC):
    """The way to a driver: opened once, and then a channel for each call."""

    name: str

    @abstractmethod
    async def open(self) -> None:
        """Starts whatever there is to start."""

    @abstractmethod
    def channel(self) -> grpc.aio.Channel:
        """The channel to use now; raises UnavailableError at once when there is none."""

    @abstractmethod
    async def close(self) -> None:
        """Ends it."""


class PluginLink(DriverLink):
    """To a driver that we start as a child process and keep running."""

    def __init__(self, spec: PluginSpec, *, timing: Timing | None = None) -> None:
        self.name = f"the plugin {spec.name!r}"
        self.supervisor = Supervisor(spec, timing=timing)

    async def open(self) -> None:
        """Starts the plugin; only a command that cannot be executed is an error, the rest is tried again."""
        await self.supervisor.start()

    def channel(self) -> grpc.aio.Channel:
        """The channel to the plugin's present run."""
        return self.supervisor.connection().channel

    async def close(self) -> None:
        """Stops the plugin and everything it started."""
        await self.supervisor.stop()


class ServerLink(DriverLink):
    """To a driver that somebody else runs as a server. It is dialled at the first call.

    Certificates that are replaced on disk are used from the next call on; calls under way end on the old connection.
    """

    def __init__(self, config: CloudConfig) -> None:
        """Reads the certificates; without TLS only a server on this machine is talked to."""
        if not config.is_encrypted and not config.address.is_loopback:
            raise InvalidArgumentError(
                f"refusing to talk to the driver at {config.address} without TLS: settings and user data hold "
                "secrets. Set cert, key and cacert"
            )
        self.name = f"the driver at {config.address}"
        self._config = config
        self._stamp = credentials_stamp(config)
        self._credentials = channel_credentials(config)
        self._channel: grpc.aio.Channel | None = None
        self._retired: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Prepares the channel."""
        self._channel = self._dial()

    def channel(self) -> grpc.aio.Channel:
        """The channel with the present certificates; gRPC reconnects by itself."""
        if self._channel is None:
            raise UnavailableError(f"{self.name} is closed")
        now = credentials_stamp(self._config)
        if now != self._stamp:
            self._stamp = now
            self._renew(self._channel)
        return self._channel

    async def close(self) -> None:
        """Closes the channel."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()
        await asyncio.gather(*self._retired)

    def _renew(self, old: grpc.aio.Channel) -> None:
        try:
            self._credentials = channel_credentials(self._config)
        except CloudgraftError as error:  # half of a rotation: the other half changes the stamp again
            log.warning("new certificates cannot be used, the old ones stay: %s", error.message)
            return
        self._channel = self._dial()
        task = asyncio.create_task(old.close(self._config.grpc_timeout.total_seconds()))
        self._retired.add(task)
        task.add_done_callback(self._retired.discard)

    def _dial(self) -> grpc.aio.Channel:
        options: list[tuple[str, int | str]] = [
            ("grpc.max_receive_message_length", LARGEST_MESSAGE),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_reconnect_backoff_ms", 10_000),
            ("grpc.enable_http_proxy", int(not self._config.address.is_loopback)),
        ]
        target = self._config.address.target
        if self._credentials is None:
            return grpc.aio.insecure_channel(target, options=options)
        options.append(("grpc.ssl_target_name_override", self._config.server_name or self._config.address.host))
        return grpc.aio.secure_channel(target, self._credentials, options=options)
