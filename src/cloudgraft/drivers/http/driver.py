"""Implements the driver ``http``: every verb is one call to a receiver. It keeps no state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote

from cloudgraft.drivers.common import machine_json
from cloudgraft.drivers.common.secrets import error_without
from cloudgraft.drivers.http import contract
from cloudgraft.drivers.http import options as schema
from cloudgraft.drivers.http.errors import GONE, NOT_OFFERED
from cloudgraft.sdk.common.extras import check_installed
from cloudgraft.sdk.driver import Driver, Idempotency, Machine, MachineSpec, Price, Shape
from cloudgraft.sdk.errors import (
    CloudgraftError,
    InternalError,
    InvalidArgumentError,
    PreconditionError,
    UnavailableError,
    UnsupportedError,
)
from cloudgraft.sdk.list_budget import current_budget

if TYPE_CHECKING:
    from cloudgraft.drivers.http.client import Client, Reply

T = TypeVar("T")
_MOST_PAGES: Final = 10_000


class HttpDriver(Driver):
    """A cloud behind three HTTPS endpoints: create, delete and list; and two more for shapes and prices."""

    Options = schema.Options

    def __init__(self, options: schema.Options) -> None:
        """Makes no call and reads no file yet. Raises PreconditionError without the extra."""
        check_installed("the driver http", "httpx2", extra="http")
        self._options = options
        self.traits = options.traits()
        self._client: Client | None = None

    async def start(self) -> None:
        """Creates the client. Only the first call finds out whether the receiver is reachable."""
        if self._client is not None:
            return
        # Not at the top: it needs an extra, and is slow to import.
        from cloudgraft.drivers.http.client import Client  # noqa: PLC0415

        self._client = Client(self._options)

    async def close(self) -> None:
        """Cancels calls in flight, and closes the connections."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    async def create(self, spec: MachineSpec) -> Machine:
        """Orders a machine: its name is in the path, and is the idempotency key."""
        what = f"create of {spec.name}"
        body = machine_json.dump_json(machine_json.spec_to_json(spec))
        headers = {contract.IDEMPOTENCY_KEY: spec.name}
        try:
            reply = await self._call("PUT", f"/machines/{_segment(spec.name, 'name')}", what, body, headers=headers)
            data = machine_json.parse_json(reply.body, _answer(what))
            return machine_json.created_from_json(data, spec.name, _answer(what))
        except CloudgraftError as error:
            raise error_without(error, spec.user_data) from None

    async def delete(self, machine: Machine) -> None:
        """Requests its deletion by id. A missing machine is not an error."""
        target = (
            f"/machines/{_segment(machine.machine_id, 'machine id')}?{contract.NAME}={quote(machine.name, safe='')}"
        )
        await self._call("DELETE", target, f"delete of {machine.name or machine.machine_id}", welcome=GONE)

    async def list(self) -> Sequence[Machine]:
        """Returns the machines of all pages, within one time limit."""
        until, budget = self._until(), current_budget()
        found: dict[str, Machine] = {}
        seen = {""}
        token = ""
        for _ in range(_MOST_PAGES):
            machines, token = await self._page(token, until)
            for machine in machines:
                if machine.machine_id in found:
                    raise UnavailableError(
                        f"list: two pages have the machineID {machine.machine_id!r}: the list changed while it was read"
                    )
                found[machine.machine_id] = machine
            budget.check_count(len(found))
            if not token:
                return list(found.values())
            if token in seen:
                raise InternalError("list: the receiver's page token leads back to a page that was read already")
            seen.add(token)
        raise InternalError(f"list: the receiver's list has more than {_MOST_PAGES} pages")

    async def shapes(self) -> Sequence[Shape]:
        """Returns the machine types, if the receiver offers them."""
        return await self._offers("shapes", machine_json.shapes_from_json)

    async def prices(self) -> Sequence[Price]:
        """Returns their prices, if the receiver offers them."""
        return await self._offers("prices", machine_json.prices_from_json)

    async def _page(self, token: str, until: float) -> tuple[Sequence[Machine], str]:
        query = f"?{contract.PAGE_TOKEN}={quote(token, safe='')}" if token else ""
        reply = await self._call("GET", f"/machines{query}", "list", until=until)
        return await machine_json.read_off_loop(_read_page, reply.body)

    async def _offers(self, name: str, read: Callable[[object, str], Sequence[T]]) -> Sequence[T]:
        try:
            reply = await self._call("GET", f"/{name}", name, welcome=NOT_OFFERED)
        except UnsupportedError:
            raise UnsupportedError(f"the receiver does not tell {name}") from None
        if reply.status in NOT_OFFERED:
            raise UnsupportedError(f"the receiver does not tell {name}: it answered {reply.status}")
        return read(machine_json.parse_json(reply.body, _answer(name)), _answer(name))

    async def _call(
        self,
        method: str,
        target: str,
        what: str,
        body: bytes = b"",
        *,
        headers: dict[str, str] | None = None,
        welcome: frozenset[int] = frozenset(),
        until: float | None = None,
    ) -> Reply:
        from cloudgraft.drivers.http.client import Call  # noqa: PLC0415 - see start()

        if self._client is None:
            raise PreconditionError(f"{what}: the driver is not started, or is closed")
        return await self._client.call(
            Call(
                what=what,
                method=method,
                target=target,
                until=self._until() if until is None else until,
                headers=headers or {},
                body=body,
                welcome=welcome,
                is_repeatable=method != "PUT" or self.traits.idempotency is Idempotency.TOKEN,
            )
        )

    def _until(self) -> float:
        return asyncio.get_running_loop().time() + self._options.timeout.total_seconds()


def _segment(text: str, what: str) -> str:
    """Encodes one segment of a path. Refuses "." and "..": a proxy would resolve them to another path."""
    if text in ("", ".", ".."):
        raise InvalidArgumentError(f"the {what} {text!r} cannot be put into a path")
    return quote(text, safe="")


def _answer(what: str) -> str:
    return f"{what}: the receiver's answer"


def _read_page(body: bytes) -> tuple[Sequence[Machine], str]:
    return machine_json.page_from_json(machine_json.parse_json(body, _answer("list")), _answer("list"))
