"""Converts machines, orders, shapes, prices and the ledger to and from the JSON of the HTTP interface, in camelCase."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Final

from pydantic.alias_generators import to_camel

from cloudgraft.sdk.driver import Machine, MachineSpec, MachineState, Price, Shape
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.simcloud.fields import Fields, count, number
from cloudgraft.simcloud.options import MachineSettings
from cloudgraft.simcloud.records import LedgerEntry, Order, Page, SimMachine

CLIENT_HEADER: Final = "X-Cloudgraft-Client"  # who calls; a create says it in its body

Json = dict[str, object]

_LEDGER: Final = {field.name: to_camel(field.name) for field in dataclasses.fields(LedgerEntry)}
_CLUSTER_TAG = "cloudgraft-cluster-id"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


# -- orders ------------------------------------------------------------------------------------------------------------


def order_for(spec: MachineSpec, client: str) -> Order:
    """The order that a driver's create makes; its user data stays here, for no simulated machine reads it."""
    tags = Fields({"tags": spec.tags}, "spec").texts("tags")
    settings = MachineSettings.read(spec.settings)
    return _order(Order(name=spec.name, token=spec.name, settings=settings, tags=tags, client=client))


def order_from_json(data: object) -> Order:
    """The body of ``POST /machines``; raises InvalidArgumentError that names the key."""
    fields = Fields(data, "machine")
    order = Order(
        name=fields.required("name"),
        token=fields.text("token"),
        client=fields.text("client"),
        tags=fields.texts("tags"),
        machine_id=_id(fields.text("machineId")),
        settings=MachineSettings.take(fields),
    )
    fields.end()
    return _order(order)


def _id(text: str) -> str:
    if text and not _ID.fullmatch(text):
        raise InvalidArgumentError("machine.machineId must be letters, digits and hyphens, at most 63")
    return text


def marks_from_json(data: object) -> dict[str, str | None]:
    """The body of ``PATCH /machines/ID``."""
    fields = Fields(data, "machine")
    tags = fields.take("tags")
    fields.end()
    if not isinstance(tags, dict):
        raise InvalidArgumentError("machine.tags must be an object")
    given = Fields({"tags": {key: value for key, value in tags.items() if value is not None}}, "machine").texts("tags")
    return {**dict.fromkeys(map(str, tags)), **given}


def _order(order: Order) -> Order:
    """Checks the name, and finds out who asks when it was not said."""
    if not _NAME.fullmatch(order.name):
        raise InvalidArgumentError(
            "machine.name must be a host name: lower-case letters, digits, hyphens and dots, at most 253"
        )
    return dataclasses.replace(order, client=order.client or order.tags.get(_CLUSTER_TAG, ""))


def order_to_json(order: Order) -> Json:
    """What :func:`order_from_json` reads."""
    rest = {"name": order.name, "token": order.token, "client": order.client, "tags": dict(order.tags)}
    if order.machine_id:
        rest["machineId"] = order.machine_id
    return {**order.settings.to_json(), **rest}


# -- machines ----------------------------------------------------------------------------------------------------------


def machine_to_json(machine: SimMachine) -> Json:
    """A machine as the list shows it."""
    return {
        "machineId": machine.machine_id,
        "providerId": machine.provider_id,
        "name": machine.name,
        "state": machine.state.value,
        "reason": machine.reason,
        "tags": dict(machine.tags),
        "createdAt": machine.created_at,
        "runningSince": machine.running_since,
        **machine.settings.to_json(),
    }


def machine_from_json(data: object) -> Machine:
    """As a driver shows it. Keys of a newer program are let pass."""
    fields = Fields(data, "machine")
    try:
        state = MachineState(fields.required("state"))
        created_at = datetime.fromtimestamp(number(fields.take("createdAt"), "machine.createdAt", most=1e11), UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"machine: {error}") from None
    return Machine(
        name=fields.required("name"),
        machine_id=fields.required("machineId"),
        provider_id=fields.required("providerId"),
        state=state,
        tags=fields.texts("tags"),
        created_at=created_at,
        reason=fields.text("reason"),
    )


def page_to_json(page: Page[SimMachine]) -> Json:
    """The answer to ``GET /machines``."""
    machines = [machine_to_json(machine) for machine in page.machines]
    return {"machines": machines, "count": page.count, "more": page.more, "cursor": page.cursor}


def page_from_json(data: object, read: Callable[[object], Machine] = machine_from_json) -> Page[Machine]:
    """What :func:`page_to_json` wrote."""
    fields = Fields(data, "page")
    machines = fields.take("machines")
    more = fields.take("more")
    if not isinstance(machines, list) or not isinstance(more, bool):
        raise InvalidArgumentError("page has no machines, or does not say whether there are more")
    return Page(
        machines=[read(machine) for machine in machines],
        count=count(fields.take("count"), "page.count"),
        more=more,
        cursor=fields.text("cursor"),
    )


# -- shapes, prices and the ledger -------------------------------------------------------------------------------------


def shape_to_json(shape: Shape) -> Json:
    """One entry of ``GET /shapes``."""
    capacity = {name: str(amount) for name, amount in shape.capacity.items()}
    return {"name": shape.name, "capacity": capacity, "labels": dict(shape.labels)}


def shape_from_json(data: object) -> Shape:
    """What :func:`shape_to_json` wrote."""
    fields = Fields(data, "shape")
    capacity = {name: Quantity(amount) for name, amount in fields.texts("capacity").items()}
    return Shape(name=fields.required("name"), capacity=capacity, labels=fields.texts("labels"))


def price_to_json(price: Price) -> Json:
    """One entry of ``GET /prices``."""
    return {"shape": price.shape, "hourly": str(price.hourly), "currency": price.currency}


def price_from_json(data: object) -> Price:
    """What :func:`price_to_json` wrote."""
    fields = Fields(data, "price")
    try:
        hourly = Decimal(fields.required("hourly"))
    except InvalidOperation:
        raise InvalidArgumentError("price.hourly is not a number") from None
    return Price(shape=fields.required("shape"), hourly=hourly, currency=fields.required("currency"))


def entry_to_json(entry: LedgerEntry) -> Json:
    """One machine of ``GET /ledger``."""
    return {key: _plain(getattr(entry, name)) for name, key in _LEDGER.items()}


def _plain(value: object) -> object:
    if isinstance(value, Decimal):
        return str(value)
    return dict(value) if isinstance(value, Mapping) else value
