"""Is a plugin well? Asked in gRPC's own way, and in lesser ways of those that do not know it."""

from __future__ import annotations

import asyncio
from typing import Final

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2

from cloudgraft.plugins.handshake import PluginError

__all__ = ["HealthProbe"]

_METHOD: Final = "/grpc.health.v1.Health/Check"
# go-plugin's plugins answer for "plugin"; others for the whole server, whose name is empty.
_SERVICES: Final = ("plugin", "")


class HealthProbe:
    """Asks one channel. Remembers which of the ways the plugin knows."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_METHOD)
        self._services = list(_SERVICES)

    async def check(self, timeout: float) -> None:  # noqa: ASYNC109 - it is handed on to gRPC
        """Returns when the plugin is well; raises :class:`PluginError` that says why it is not."""
        while self._services:
            try:
                answer = await self._ask(_request(self._services[0]), timeout=timeout)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    self._services.pop(0)
                elif error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    self._services.clear()
                else:
                    raise PluginError(f"{error.code().name}: {error.details()}") from error
            else:
                _judge(answer)
                return
        await self._check_connection(timeout)

    async def _check_connection(self, timeout: float) -> None:  # noqa: ASYNC109 - as above
        try:
            async with asyncio.timeout(timeout):
                while (state := self._channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
                    await self._channel.wait_for_state_change(state)
        except TimeoutError:
            raise PluginError(f"no connection within {timeout:g} s") from None


def _request(service: str) -> bytes:
    return bytes(health_pb2.HealthCheckRequest(service=service).SerializeToString())


def _judge(answer: bytes) -> None:
    status = health_pb2.HealthCheckResponse.FromString(answer).status
    if status != health_pb2.HealthCheckResponse.SERVING:
        raise PluginError(f"it says of itself: {health_pb2.HealthCheckResponse.ServingStatus.Name(status)}")
