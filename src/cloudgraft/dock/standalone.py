"""A dock for an engine that runs elsewhere: ``cloudgraft.driver.v1.Driver``, one driver behind each key.

Which driver a call is for is said by its metadata; see :mod:`cloudgraft.dock.remote_berth`, the other side. Only an
engine may call, and only for kinds that it was given.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from cloudgraft.dock.berth import Berth, Calls, Classes, HubBerth
from cloudgraft.dock.messages import Key
from cloudgraft.dock.ports import Access, Context
from cloudgraft.dock.remote_berth import API_VERSION_KEY, CLASS_KEY, KIND_KEY
from cloudgraft.sdk.errors import (
    AuthenticationError,
    CloudgraftError,
    InternalError,
    InvalidArgumentError,
    PermissionDeniedError,
)
from cloudgraft.server.listener import abort
from cloudgraft.wire import driver as wire
from cloudgraft.wire.pb import driver_pb2 as pb

__all__ = ["EngineService"]

log = logging.getLogger("cloudgraft.dock")

T = TypeVar("T")
_LONGEST: Final = timedelta(minutes=10)  # for a call without a deadline
_LONGEST_NAME: Final = 253
Method = Callable[[Berth, Any, timedelta], Awaitable[Message]]


class EngineService:
    """Answers the calls of engines with the drivers of one hub."""

    def __init__(self, hub: Calls, classes: Classes | None, access: Access) -> None:
        """``access`` tells which callers are engines, and for which keys."""
        self._hub = hub
        self._classes = classes
        self._access = access
        self._unfinished: set[asyncio.Task[Any]] = set()
        self._methods: dict[str, Method] = {
            "Describe": _describe,
            "Create": self._create,
            "Delete": self._delete,
            "List": _list,
            "Shapes": _shapes,
            "Prices": _prices,
        }

    def handler(self) -> grpc.GenericRpcHandler:
        """What a gRPC server takes."""
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            name: grpc.unary_unary_rpc_method_handler(self._responder(name)) for name in wire.RPCS
        }
        return grpc.method_handlers_generic_handler(wire.SERVICE, methods)

    async def drain(self, seconds: float) -> None:
        """Waits, at most this long, for creates and deletes whose callers have given up."""
        if self._unfinished:
            await asyncio.wait(self._unfinished, timeout=seconds)

    def _responder(self, name: str) -> Callable[[bytes, Context], Awaitable[bytes]]:
        rpc, method = wire.RPCS[name], self._methods[name]

        async def respond(data: bytes, context: Context) -> bytes:
            try:
                berth = self._berth(context)
                answer = await _translated(name, method, berth, rpc.request, data, _within(context))
            except CloudgraftError as error:
                log.info("%s failed: %s", name, error.message, extra={"rpc": name, "error": error.slug})
                await abort(context, error)
                raise  # not reached: abort() raises
            return answer.SerializeToString()

        return respond

    def _berth(self, context: Context) -> Berth:
        """The driver that is meant, once it is known that the caller may mean it."""
        identity = self._access.identify(context)
        if identity is None:
            raise AuthenticationError("the dock does not know this engine: it needs a certificate or token of its own")
        said = {name: value for name, value in context.invocation_metadata() or () if isinstance(value, str)}
        kind, api_version, name = (_plain(said, one) for one in (KIND_KEY, API_VERSION_KEY, CLASS_KEY))
        key = Key(kind=kind, api_version=api_version)
        if not identity.may(key):
            raise PermissionDeniedError(f"{identity.name} may not use the driver of {key}")
        return HubBerth(self._hub, self._classes, key, name)

    async def _create(self, berth: Berth, request: pb.CreateRequest, within: timedelta) -> pb.CreateResponse:
        machine = await self._to_its_end(berth.create(wire.spec_from_pb(request), within))
        return pb.CreateResponse(machine=wire.machine_to_pb(machine))

    async def _delete(self, berth: Berth, request: pb.DeleteRequest, within: timedelta) -> pb.DeleteResponse:
        if not request.machine.machine_id:
            raise InvalidArgumentError("a machine without machine_id cannot be deleted")
        await self._to_its_end(berth.delete(wire.machine_from_pb(request.machine), within))
        return pb.DeleteResponse()

    async def _to_its_end(self, change: Coroutine[Any, Any, T]) -> T:
        # A caller that gives up must not stop a create between its steps: what is half made belongs to nobody.
        task = asyncio.create_task(change)
        self._unfinished.add(task)
        task.add_done_callback(self._finished)
        return await asyncio.shield(task)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._unfinished.discard(task)
        if not task.cancelled():
            task.exception()  # looked at: when the caller is gone, the next list tells what became of it


async def _describe(berth: Berth, _request: pb.DescribeRequest, _within: timedelta) -> pb.DescribeResponse:
    traits = await berth.traits()
    return wire.traits_to_pb(traits) if traits is not None else pb.DescribeResponse()


async def _list(berth: Berth, request: pb.ListRequest, within: timedelta) -> pb.ListResponse:
    if request.page_token:
        raise InvalidArgumentError("a dock lists in one answer: there is no next page")
    return pb.ListResponse(machines=[wire.machine_to_pb(machine) for machine in await berth.list(within)])


async def _shapes(berth: Berth, _request: pb.ShapesRequest, within: timedelta) -> pb.ShapesResponse:
    return pb.ShapesResponse(shapes=[wire.shape_to_pb(shape) for shape in await berth.shapes(within)])


async def _prices(berth: Berth, _request: pb.PricesRequest, within: timedelta) -> pb.PricesResponse:
    return pb.PricesResponse(prices=[wire.price_to_pb(price) for price in await berth.prices(within)])


def _plain(said: dict[str, str], name: str) -> str:
    value = said.get(name, "")
    if not value or len(value) > _LONGEST_NAME or not value.isprintable():
        raise InvalidArgumentError(f"the call does not say which driver it is for: its metadata lacks a good {name}")
    return value


def _within(context: Context) -> timedelta:
    """How long the caller waits."""
    left = context.time_remaining()
    return _LONGEST if left is None else min(_LONGEST, timedelta(seconds=max(0.0, left)))


async def _translated(
    name: str, method: Method, berth: Berth, request: type[Message], data: bytes, within: timedelta
) -> Message:
    """The method's answer; every exception but ours becomes INTERNAL with an id, and the log has the rest."""
    try:
        return await method(berth, request.FromString(data), within)
    except CloudgraftError:
        raise
    except DecodeError as error:
        raise InvalidArgumentError(f"the request is not a valid {request.DESCRIPTOR.name}") from error
    except Exception as error:
        incident = secrets.token_hex(4)
        log.exception("a call of an engine failed unexpectedly", extra={"rpc": name, "id": incident})
        raise InternalError(f"internal error (id {incident}): the dock's log has the details") from error
