"""A driver behind gRPC: the six calls of ``cloudgraft.driver.v1.Driver`` over any :class:`~cloudgraft.sdk.Driver`."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from cloudgraft.sdk.driver import Driver, Machine
from cloudgraft.sdk.errors import CloudgraftError, ConflictError, InternalError, InvalidArgumentError
from cloudgraft.server.listener import abort
from cloudgraft.wire import driver as wire
from cloudgraft.wire.pb import driver_pb2 as pb

__all__ = ["DriverService"]

log = logging.getLogger("cloudgraft.driver")

T = TypeVar("T")
Context = grpc.aio.ServicerContext[bytes, bytes]

PAGE: Final = 1000  # machines in one message
_LISTINGS_KEPT: Final = 16


class DriverService:
    """Answers the calls with one driver. Every failure reaches the caller as a status of the one table of errors."""

    def __init__(self, driver: Driver, *, page: int = PAGE) -> None:
        self._driver = driver
        self._page = page
        # The rest of lists that somebody reads page by page. A list is taken once: pages of two lists do not fit.
        self._listings: OrderedDict[str, Sequence[Machine]] = OrderedDict()
        self._unfinished: set[asyncio.Task[Any]] = set()
        self._methods: dict[str, Callable[[Any], Awaitable[Message]]] = {
            "Describe": self._describe,
            "Create": self._create,
            "Delete": self._delete,
            "List": self._list,
            "Shapes": self._shapes,
            "Prices": self._prices,
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
                response = await _translated(name, method, rpc.request, data)
            except CloudgraftError as error:
                log.info("%s failed: %s", name, error.message, extra={"rpc": name, "error": error.slug})
                await abort(context, error)
                raise  # not reached: abort() raises
            return response.SerializeToString()

        return respond

    async def _describe(self, _request: pb.DescribeRequest) -> pb.DescribeResponse:
        return wire.traits_to_pb(self._driver.traits)

    async def _create(self, request: pb.CreateRequest) -> pb.CreateResponse:
        machine = await self._to_its_end(self._driver.create(wire.spec_from_pb(request)))
        return pb.CreateResponse(machine=wire.machine_to_pb(machine))

    async def _delete(self, request: pb.DeleteRequest) -> pb.DeleteResponse:
        if not request.machine.machine_id:
            raise InvalidArgumentError("a machine without machine_id cannot be deleted")
        await self._to_its_end(self._driver.delete(wire.machine_from_pb(request.machine)))
        return pb.DeleteResponse()

    async def _list(self, request: pb.ListRequest) -> pb.ListResponse:
        if request.page_token:
            try:
                machines = self._listings.pop(request.page_token)
            except KeyError:
                raise ConflictError("this list is no longer kept: begin again with its first page") from None
        else:
            machines = await self._driver.list()
        page, rest = machines[: self._page], machines[self._page :]
        return pb.ListResponse(
            machines=[wire.machine_to_pb(machine) for machine in page],
            next_page_token=self._keep(rest) if rest else "",
        )

    async def _shapes(self, _request: pb.ShapesRequest) -> pb.ShapesResponse:
        return pb.ShapesResponse(shapes=[wire.shape_to_pb(shape) for shape in await self._driver.shapes()])

    async def _prices(self, _request: pb.PricesRequest) -> pb.PricesResponse:
        return pb.PricesResponse(prices=[wire.price_to_pb(price) for price in await self._driver.prices()])

    def _keep(self, rest: Sequence[Machine]) -> str:
        token = secrets.token_urlsafe(12)
        self._listings[token] = rest
        while len(self._listings) > _LISTINGS_KEPT:
            self._listings.popitem(last=False)
        return token

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


async def _translated(
    name: str, method: Callable[[Any], Awaitable[Message]], request: type[Message], data: bytes
) -> Message:
    """The method's answer; every exception but ours becomes INTERNAL with an id, and the log has the rest."""
    try:
        return await method(request.FromString(data))
    except CloudgraftError:
        raise
    except DecodeError as error:
        raise InvalidArgumentError(f"the request is not a valid {request.DESCRIPTOR.name}") from error
    except Exception as error:
        incident = secrets.token_hex(4)
        log.exception("the driver raised an unexpected exception", extra={"rpc": name, "id": incident})
        raise InternalError(f"internal error (id {incident}): the driver's log has the details") from error
