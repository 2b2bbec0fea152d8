"""Serves the six calls of ``cloudgraft.driver.v1.Driver`` over gRPC, for a single driver or for a dock."""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from cloudgraft.sdk.common.event_loop import in_slices
from cloudgraft.sdk.driver import DriverTraits, Machine, MachineSpec, Price, Shape
from cloudgraft.sdk.errors import CloudgraftError, ConflictError, InternalError, InvalidArgumentError
from cloudgraft.server.clients import only_message
from cloudgraft.server.listener import Unfinished, abort
from cloudgraft.wire import driver as wire
from cloudgraft.wire.pb import driver_pb2 as pb

T = TypeVar("T")
Context = grpc.aio.ServicerContext[Any, Any]

PAGE: Final = 1000  # machines in one message
_LISTINGS_KEPT: Final = 16
_SLICE: Final = 200  # machines, shapes or prices encoded before the event loop gets control


class Callee(Protocol):
    """Answers calls, as :class:`cloudgraft.sdk.Driver` does. Raises errors of the sdk."""

    @property
    def traits(self) -> DriverTraits | None:
        """The traits that the driver declares; None for none."""

    async def create(self, spec: MachineSpec) -> Machine:
        """As :meth:`cloudgraft.sdk.Driver.create`."""

    async def delete(self, machine: Machine) -> None:
        """As :meth:`cloudgraft.sdk.Driver.delete`."""

    async def list(self) -> Sequence[Machine]:
        """As :meth:`cloudgraft.sdk.Driver.list`."""

    async def shapes(self) -> Sequence[Shape]:
        """As :meth:`cloudgraft.sdk.Driver.shapes`."""

    async def prices(self) -> Sequence[Price]:
        """As :meth:`cloudgraft.sdk.Driver.prices`."""


class DriverCalls:
    """Answers the calls. Every failure reaches the caller as a status of the error table."""

    def __init__(
        self, find: Callable[[Context], Callee], *, log: logging.Logger, whose: str, page: int | None = PAGE
    ) -> None:
        """``find`` returns the callee of a call, or raises. ``whose`` names the log that has the details of a bug.

        ``page`` is the number of machines in one message; None: all of them.
        """
        self._find = find
        self._log = log
        self._whose = whose
        self._page = page
        # Rests of lists that a client reads page by page. Each list is read once: pages of two lists do not fit.
        self._listings: OrderedDict[str, Sequence[Machine]] = OrderedDict()
        # A create that stops between its steps would leave a machine without an owner.
        self._unfinished = Unfinished()
        self._methods: dict[str, Callable[[Callee, Any], Awaitable[bytes]]] = {
            "Describe": _describe,
            "Create": self._create,
            "Delete": self._delete,
            "List": self._list,
            "Shapes": _shapes,
            "Prices": _prices,
        }

    def handler(self) -> grpc.GenericRpcHandler:
        """The handler for a gRPC server."""
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            name: grpc.stream_unary_rpc_method_handler(self._responder(name)) for name in wire.RPCS
        }
        return grpc.method_handlers_generic_handler(wire.SERVICE, methods)

    async def drain(self, seconds: float) -> None:
        """Waits at most this long for creates and deletes whose callers have given up."""
        await self._unfinished.drain(seconds)

    def _responder(self, name: str) -> Callable[[Any, Context], Awaitable[bytes]]:
        async def respond(_messages: Any, context: Context) -> bytes:
            try:
                return await self._translated(name, context)
            except CloudgraftError as error:
                self._log.info("%s failed: %s", name, error.message, extra={"rpc": name, "error": error.slug})
                await abort(context, error)
                raise  # not reached: abort() raises

        return respond

    async def _translated(self, name: str, context: Context) -> bytes:
        """The answer; every exception but ours becomes INTERNAL with an id, and the log has the details."""
        request = wire.RPCS[name].request
        try:
            callee = self._find(context)  # first: it refuses clients that are not allowed, before a body is read
            return await self._methods[name](callee, request.FromString(await only_message(context)))
        except (CloudgraftError, grpc.aio.BaseError):
            raise
        except DecodeError as error:
            raise InvalidArgumentError(f"the request is not a valid {request.DESCRIPTOR.name}") from error
        except Exception as error:
            incident = secrets.token_hex(4)
            self._log.exception("a call ended in an unexpected exception", extra={"rpc": name, "id": incident})
            raise InternalError(f"internal error (id {incident}): {self._whose} log has the details") from error

    async def _create(self, callee: Callee, request: pb.CreateRequest) -> bytes:
        machine = await self._unfinished.run(callee.create(wire.spec_from_pb(request)))
        return pb.CreateResponse(machine=wire.machine_to_pb(machine)).SerializeToString()

    async def _delete(self, callee: Callee, request: pb.DeleteRequest) -> bytes:
        if not request.machine.machine_id:
            raise InvalidArgumentError("a machine without machine_id cannot be deleted")
        await self._unfinished.run(callee.delete(wire.machine_from_pb(request.machine)))
        return pb.DeleteResponse().SerializeToString()

    async def _list(self, callee: Callee, request: pb.ListRequest) -> bytes:
        if request.page_token:
            try:
                machines = self._listings.pop(request.page_token)
            except KeyError:
                raise ConflictError("this list is no longer kept: begin again with its first page") from None
        else:
            machines = await callee.list()
            wire.expect_all(machines)
        count = len(machines) if self._page is None else self._page
        page, rest = machines[:count], machines[count:]
        answer = await _in_turns(
            page, lambda some: pb.ListResponse(machines=[wire.machine_to_pb(machine) for machine in some])
        )
        return answer + pb.ListResponse(next_page_token=self._keep(rest)).SerializeToString() if rest else answer

    def _keep(self, rest: Sequence[Machine]) -> str:
        token = secrets.token_urlsafe(12)
        self._listings[token] = rest
        while len(self._listings) > _LISTINGS_KEPT:
            self._listings.popitem(last=False)
        return token


async def _describe(callee: Callee, _request: pb.DescribeRequest) -> bytes:
    traits = callee.traits
    return (wire.traits_to_pb(traits) if traits is not None else pb.DescribeResponse()).SerializeToString()


async def _shapes(callee: Callee, _request: pb.ShapesRequest) -> bytes:
    return await _in_turns(
        await callee.shapes(), lambda some: pb.ShapesResponse(shapes=[wire.shape_to_pb(shape) for shape in some])
    )


async def _prices(callee: Callee, _request: pb.PricesRequest) -> bytes:
    return await _in_turns(
        await callee.prices(), lambda some: pb.PricesResponse(prices=[wire.price_to_pb(price) for price in some])
    )


async def _in_turns(items: Sequence[T], answer: Callable[[Sequence[T]], Message]) -> bytes:
    """Encodes a long answer in slices, without blocking the event loop. Joined, the parts are one message."""
    return b"".join([answer(some).SerializeToString() async for some in in_slices(items, _SLICE)])
