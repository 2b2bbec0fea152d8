"""Calls the admin service of a running server, and explains why a call failed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import grpc
import grpc.aio

from cloudgraft.admin.wire import LONGEST_ANSWER, LONGEST_REQUEST, check_path, decode, grpc_address, path_of
from cloudgraft.client.channel import channel_credentials
from cloudgraft.client.cloud_config import Address, CloudConfig
from cloudgraft.client.errors import ERROR_KEY, error_from_rpc
from cloudgraft.sdk.errors import (
    CloudgraftError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    PermissionDeniedError,
    UnavailableError,
    UnsupportedError,
)

# gRPC's messages when it never got a connection. With any other message, the request may have arrived.
_NEVER_SENT: Final = re.compile(r"failed to connect|DNS resolution failed|name resolution failure", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """The operator's certificate and key, and the authority of the server (PEM)."""

    cert: Path
    key: Path
    ca: Path
    server_name: str = ""  # the expected name in the server's certificate, if it is not the host of the target


class AdminClient:
    """Calls the methods of an :class:`~cloudgraft.admin.server.AdminServer`.

    ``target`` is the path of a unix socket, ``unix:`` and such a path, or ``host:port``, which needs ``tls``.

    >>> async with AdminClient(Path("journal.db.admin")) as admin:  # doctest: +SKIP
    ...     print(await admin.call("status"))
    """

    def __init__(self, target: str | Path, *, tls: ClientTls | None = None, timeout: float = 30.0) -> None:
        """Reads the certificates; connects at the first call. ``timeout`` applies to each call."""
        text = str(target)
        is_path = isinstance(target, Path) or text.startswith(("unix:", "/"))
        self._path = check_path(Path(text.removeprefix("unix:"))) if is_path else None
        self._where = f"unix:{self._path}" if self._path else text
        self._config = None if self._path else _config(text, tls)
        self._credentials = channel_credentials(self._config) if self._config else None
        self._timeout = timeout
        self._channel: grpc.aio.Channel | None = None

    async def call(self, method: str, request: Mapping[str, object] | None = None) -> dict[str, object]:
        """Makes one call. Raises the error that the method raised, or one that says why there is no answer."""
        data = _encoded(method, request or {})
        if self._channel is None:
            self._channel = self._dial()
        ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(path_of(method))
        try:
            answer = await ask(data, timeout=self._timeout)
        except grpc.aio.AioRpcError as error:
            raise self._explained(method, error) from error
        try:
            return decode(answer)
        except InvalidArgumentError as error:
            raise InternalError(f"{self._where} answered {method} with bytes that make no sense") from error

    async def close(self) -> None:
        """Closes the connection. May be called twice; a later call connects again."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def __aenter__(self) -> Self:
        """The client itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes it."""
        await self.close()

    def _dial(self) -> grpc.aio.Channel:
        options: list[tuple[str, int | str]] = [
            ("grpc.max_receive_message_length", LONGEST_ANSWER),
            ("grpc.enable_retries", 0),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if self._path is not None:
            return grpc.aio.insecure_channel(grpc_address(self._path), options=options)
        assert self._config is not None  # noqa: S101 - set where there is no path
        assert self._credentials is not None  # noqa: S101 - set where there is no path
        address = self._config.address
        options.append(("grpc.enable_http_proxy", int(not address.is_loopback)))
        options.append(("grpc.ssl_target_name_override", self._config.server_name or address.host))
        return grpc.aio.secure_channel(address.target, self._credentials, options=options)

    def _explained(self, method: str, error: grpc.aio.AioRpcError) -> CloudgraftError:
        """The server's own error, or what happened to a call that the server did not answer."""
        if any(key == ERROR_KEY for key, _ in error.trailing_metadata() or ()):
            return error_from_rpc(error)
        match error.code():
            case grpc.StatusCode.UNIMPLEMENTED:
                return UnsupportedError(f"the server at {self._where} has no {method!r}: is it of the same release?")
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                return DeadlineError(f"{self._where} did not answer {method!r} within {self._timeout:g} s")
            case grpc.StatusCode.UNAVAILABLE:
                return self._unreachable(method, error.details() or "")
            case _:
                return error_from_rpc(error)

    def _unreachable(self, method: str, details: str) -> CloudgraftError:
        if not _NEVER_SENT.search(details):
            return DeadlineError(
                f"the connection to {self._where} ended before it answered {method!r}: whether it was done is not known"
            )
        if self._path is not None and "permission denied" in details.lower():
            return PermissionDeniedError(
                f"this user may not use the admin socket {self._path}: run the command as the user of the server"
            )
        return UnavailableError(
            f"no cloudgraft server answers at {self._where}; start one with `cloudgraft serve --config FILE`"
            + (
                " (one without clouds and nodeGroups has no engine, and listens for no operators)"
                if self._path
                else f", or check address and certificates ({details})"
            )
        )


def _config(target: str, tls: ClientTls | None) -> CloudConfig:
    if tls is None:
        raise InvalidArgumentError(
            f"refusing to talk to the admin port {target} without TLS: give a certificate, its key and the server's CA"
        )
    return CloudConfig(
        address=Address.parse(target),
        cert=str(tls.cert),
        key=str(tls.key),
        cacert=str(tls.ca),
        server_name=tls.server_name,
    )


def _encoded(method: str, request: Mapping[str, object]) -> bytes:
    try:
        data = json.dumps(dict(request), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"the request of {method!r} cannot be written as JSON: {error}") from error
    if len(data) > LONGEST_REQUEST:
        raise InvalidArgumentError(f"the request of {method!r} has {len(data)} bytes, more than {LONGEST_REQUEST}")
    return data
