"""Makes the calls of ``cloudgraft.driver.v1.Driver``: to a plugin, to a driver's own server, and to a dock.

Errors begin with the name of the other side, for example ``the plugin 'acme'``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import grpc.aio
from google.protobuf.message import DecodeError, Message

from cloudgraft.client.channel import cut_calls_are_errors
from cloudgraft.client.errors import ERROR_KEY, error_from_rpc
from cloudgraft.sdk.common.tracing import carried
from cloudgraft.sdk.driver import Machine, MachineSpec
from cloudgraft.sdk.errors import DeadlineError, InternalError, UnavailableError
from cloudgraft.wire import driver as wire


async def call_driver(
    name: str,
    channel: grpc.aio.Channel,
    rpc: str,
    request: Message,
    *,
    seconds: float,
    metadata: Sequence[tuple[str, str]] = (),
) -> bytes:
    """Makes one call; returns the encoded answer. Raises an error of the sdk."""
    method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(wire.RPCS[rpc].path)
    try:
        with cut_calls_are_errors():
            return await method(request.SerializeToString(), timeout=seconds, metadata=(*metadata, *carried()))
    except grpc.aio.AioRpcError as error:
        failure = error_from_rpc(error)
        named = type(failure)(f"{name}: {failure.message}", retry_after=failure.retry_after)
        raise (named.as_final() if failure.is_final else named) from error


@contextlib.contextmanager
def decoding(name: str, rpc: str) -> Iterator[None]:
    """Turns undecodable bytes of an answer into an InternalError."""
    try:
        yield
    except DecodeError as error:
        raise InternalError(f"{name} answered {rpc} with undecodable bytes") from error


@contextlib.contextmanager
def unknown_if_cut(machine: MachineSpec | Machine) -> Iterator[None]:
    """Wraps a create or delete: turns a broken connection into a DeadlineError, since the call may have been done.

    gRPC uses UNAVAILABLE for a connection that broke before the request was sent, and after. Where the other side
    itself reports that it or its cloud is unavailable, nothing was done.
    """
    try:
        yield
    except UnavailableError as error:
        cause = error.__cause__
        if not isinstance(cause, grpc.aio.AioRpcError) or _is_reported(cause):
            raise
        raise DeadlineError(f"{error.message}; whether that was done for {machine.name} is not known") from cause


def created(name: str, spec: MachineSpec, machine: Machine) -> Machine:
    """Checks the answer to a create. An empty name was merely not repeated; another one means another machine."""
    if machine.name not in ("", spec.name):
        raise InternalError(f"{name} was asked for {spec.name!r} and answered with {machine.name!r}")
    return replace(machine, name=spec.name)


def _is_reported(error: grpc.aio.AioRpcError) -> bool:
    return any(key == ERROR_KEY for key, _ in error.trailing_metadata() or ())
