"""Makes the 15 calls of the protocol over one connection.

It behaves as the autoscaler's own connection does (R6, R9): dialled at the first call, one deadline per call, no
retries, no waiting for a server that is away, answers of up to 4 MiB.
"""

from __future__ import annotations

import logging
import re
from types import TracebackType
from typing import Final, Self, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from cloudgraft.client.channel import ReloadingChannel
from cloudgraft.client.cloud_config import CloudConfig
from cloudgraft.client.errors import error_from_rpc, status_of
from cloudgraft.sdk.common.tracing import carried
from cloudgraft.sdk.duration import format_duration
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, InternalError, StatusCode
from cloudgraft.wire.externalgrpc import RPCS
from cloudgraft.wire.rpc import Rpc

MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024  # the Go client's limit
# For these calls code 12 is a valid answer (R8), so it is not logged as a failure.
_OPTIONAL: Final = frozenset(
    {"NodeGroupTemplateNodeInfo", "NodeGroupGetOptions", "PricingNodePrice", "PricingPodPrice"}
)
_GRPC_GAVE_UP: Final = re.compile(r"(Stream removed \()?Deadline Exceeded\)?|", re.IGNORECASE)
_log = logging.getLogger("cloudgraft.client")
_Answer = TypeVar("_Answer", bound=Message)


class Connection:
    """A gRPC channel as the autoscaler would open it.

    Making one reads the certificates and fails if they cannot be used; nothing is dialled before the first call. A
    connection belongs to the event loop of its first call. Close it, or use it with ``async with``.

    Every call is logged at DEBUG, every failed one at WARNING: levels 5 and 1 of the autoscaler.
    """

    def __init__(self, config: CloudConfig, *, channel: grpc.aio.Channel | None = None) -> None:
        """Prepares a connection.

        ``channel`` is a ready-made one, to a plugin for instance: it is used instead of dialling, and closed with the
        connection. The config then only says the time limit, and the address for messages.
        """
        self.config = config
        seconds = config.grpc_timeout.total_seconds()
        self._channel = ReloadingChannel(config, _channel_options(config), retire=seconds, channel=channel)

    async def call(self, rpc: Rpc, request: Message) -> Message:
        """Makes one call and returns its answer, a message of ``rpc.response``; raises an error of the sdk."""
        about = _subject(request) if _log.isEnabledFor(logging.DEBUG) else {}
        _log.debug("performing gRPC call %s", rpc.name, extra={"rpc": rpc.name, **about})
        try:
            return await self._perform(rpc, request)
        except CloudgraftError as error:
            _log_failure(rpc, request, error)
            raise

    async def ask(self, rpc_name: str, request: Message, answer: type[_Answer]) -> _Answer:
        """Like :meth:`call`, with the answer's type known to the type checker."""
        response = await self.call(RPCS[rpc_name], request)
        assert isinstance(response, answer)  # noqa: S101 - both come from the same table
        return response

    def reload_certificates(self) -> None:
        """Loads certificates that were replaced on disk, and uses them from the next call on.

        Calls under way end on the old connection. The autoscaler does not do this; a front that runs for months must.
        """
        self._channel.reload()

    async def close(self) -> None:
        """Cancels calls under way and closes the connection. Idempotent; no call is allowed after it."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        """The connection itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes it."""
        await self.close()

    async def _perform(self, rpc: Rpc, request: Message) -> Message:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self.channel().unary_unary(rpc.path)
        limit = self.config.grpc_timeout
        try:
            answer = await method(request.SerializeToString(), timeout=limit.total_seconds(), metadata=carried())
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and _GRPC_GAVE_UP.fullmatch(error.details() or ""):
                # gRPC's own message: our deadline passed, not the server's.
                message = f"{self.config.address} did not answer {rpc.name} within {format_duration(limit)}"
                raise DeadlineError(message) from error
            raise error_from_rpc(error) from error
        try:
            # Decoded here and not by gRPC, which returns None for undecodable bytes.
            return rpc.response.FromString(answer)
        except DecodeError as error:
            raise InternalError(f"{self.config.address} answered {rpc.name} with undecodable bytes") from error

    def channel(self) -> grpc.aio.Channel:
        """The channel of the next call; a subclass may have another one for each."""
        if self._channel.is_closed:
            raise InternalError(f"the connection to {self.config.address} is closed already")
        return self._channel.get()


def _channel_options(config: CloudConfig) -> list[tuple[str, int | str]]:
    options: list[tuple[str, int | str]] = [
        ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
        ("grpc.enable_retries", 0),
        ("grpc.service_config_disable_resolution", 1),
        # Go waits up to two minutes between attempts to reach a server that was away. The autoscaler asks every ten
        # seconds, so a longer wait than that would only lengthen an outage.
        ("grpc.initial_reconnect_backoff_ms", 250),
        ("grpc.max_reconnect_backoff_ms", 10_000),
    ]
    if config.address.is_unix and not config.is_encrypted:
        # As Go does. The library would send the path, which is not a valid host name, and some servers reject it.
        options.append(("grpc.default_authority", "localhost"))
    return options


def _subject(request: Message) -> dict[str, str]:
    """The node group, node or nodes of a request by name, for the log."""
    about: dict[str, str] = {}
    group = getattr(request, "id", "")
    if group:
        about["node_group"] = group
    node = getattr(request, "node", None)
    if node is not None:
        about["node"] = node.name
        about["provider_id"] = node.providerID
    return about


def _log_failure(rpc: Rpc, request: Message, error: CloudgraftError) -> None:
    status = status_of(error)
    extra = {"rpc": rpc.name, "code": status.name, **_subject(request)}
    if status is StatusCode.UNIMPLEMENTED and rpc.name in _OPTIONAL:
        _log.debug("the server does not implement %s", rpc.name, extra=extra)
    else:
        _log.warning("error on gRPC call %s: %s: %s", rpc.name, status.name, error.message, extra=extra)
