"""Makes the 15 calls of the protocol over one connection.

It behaves as the autoscaler's own connection does (R6, R9): dialled at the first call, one deadline per call, no
retries, no waiting for a server that is away, answers of up to 4 MiB.
"""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from cloudgraft.certs.pem import Stamp, load_authority, load_tls, stamp
from cloudgraft.client.cloud_config import CloudConfig
from cloudgraft.client.errors import error_from_rpc, status_of
from cloudgraft.sdk.duration import format_duration
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, InternalError, StatusCode
from cloudgraft.wire.externalgrpc import RPCS
from cloudgraft.wire.rpc import Rpc

# -- mTLS files --------------------------------------------------------------------------------------------------------
# Read and checked before anything is dialled.
# gRPC's own library accepts any bytes and fails later, in a handshake, with a message that names no file. The
# autoscaler reads and checks them when it starts, and so does this.


def channel_credentials(config: CloudConfig) -> grpc.ChannelCredentials | None:
    """The credentials from the files of a config; None for plain text.

    Raises an error that names the file when one cannot be read or parsed, or when key and certificate do not belong
    together.
    """
    if not config.is_encrypted:
        return None
    ca = Path(config.cacert) if config.cacert else None
    if config.cert:
        loaded = load_tls(Path(config.cert), Path(config.key), ca)
        return grpc.ssl_channel_credentials(loaded.ca, private_key=loaded.key, certificate_chain=loaded.cert)
    return grpc.ssl_channel_credentials(load_authority(ca) if ca else None)


def credentials_stamp(config: CloudConfig) -> Stamp | None:
    """A stamp that changes when a file of the connection is replaced."""
    return stamp(*(Path(path) for path in (config.cert, config.key, config.cacert) if path))


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
        self._stamp = credentials_stamp(config)
        self._credentials = channel_credentials(config) if channel is None else None
        self._channel = channel
        self._retired: set[asyncio.Task[None]] = set()
        self._methods: dict[str, grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]] = {}
        self._closed = False

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
        now = credentials_stamp(self.config)
        if self._credentials is None or now == self._stamp:
            return
        self._stamp = now
        try:
            self._credentials = channel_credentials(self.config)
        except CloudgraftError as error:  # half of a rotation: the other half changes the stamp again
            _log.warning("new certificates cannot be used, the old ones stay: %s", error.message)
            return
        old, self._channel = self._channel, None
        self._methods.clear()
        if old is not None:
            task = asyncio.create_task(old.close(self.config.grpc_timeout.total_seconds()))
            self._retired.add(task)
            task.add_done_callback(self._retired.discard)

    async def close(self) -> None:
        """Cancels calls under way and closes the connection. Idempotent; no call is allowed after it."""
        self._closed = True
        channel, self._channel = self._channel, None
        self._methods.clear()
        if channel is not None:
            await channel.close()
        await asyncio.gather(*self._retired)

    async def __aenter__(self) -> Self:
        """The connection itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes it."""
        await self.close()

    async def _perform(self, rpc: Rpc, request: Message) -> Message:
        method, limit = self._method(rpc), self.config.grpc_timeout
        try:
            answer = await method(request.SerializeToString(), timeout=limit.total_seconds())
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

    def _method(self, rpc: Rpc) -> grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]:
        if self._closed:
            raise InternalError(f"the connection to {self.config.address} is closed already")
        method = self._methods.get(rpc.name)
        if method is None:
            if self._channel is None:
                self._channel = self._dial()
            method = self._methods[rpc.name] = self._channel.unary_unary(rpc.path)
        return method

    def _dial(self) -> grpc.aio.Channel:
        target, options = self.config.address.target, _channel_options(self.config)
        if self._credentials is None:
            return grpc.aio.insecure_channel(target, options=options)
        return grpc.aio.secure_channel(target, self._credentials, options=options)


def _channel_options(config: CloudConfig) -> list[tuple[str, int | str]]:
    options: list[tuple[str, int | str]] = [
        ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
        ("grpc.enable_retries", 0),
        ("grpc.service_config_disable_resolution", 1),
        # Go waits up to two minutes between attempts to reach a server that was away. The autoscaler asks every ten
        # seconds, so a longer wait than that would only lengthen an outage.
        ("grpc.initial_reconnect_backoff_ms", 250),
        ("grpc.max_reconnect_backoff_ms", 10_000),
        # Otherwise two connections to one address share their attempts and failures.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if config.is_encrypted:
        # The name that the server's certificate must carry: as in Go the host of the address, unless configured.
        options.append(("grpc.ssl_target_name_override", config.server_name or config.address.host))
    if config.address.is_unix and not config.is_encrypted:
        # As Go does. The library would send the path, which is not a valid host name, and some servers reject it.
        options.append(("grpc.default_authority", "localhost"))
    if config.address.is_loopback:
        # Go never sends calls to this machine through a proxy of the environment; gRPC's library would.
        options.append(("grpc.enable_http_proxy", 0))
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
