"""Answers the HTTP interface without HTTP: from a method, a path and a body to a status and an answer.

=============================  ========================================================================================
``POST /machines``             create: ``{"name", "shape", "token", "client", "tags", "zone", "labels", "taints"}``;
                               with ``"machineId"`` it gets that id, as in clouds that use ids again
``GET /machines``              a page: ``?limit=100&cursor=…``
``GET /machines/ID``           one machine
``DELETE /machines/ID``        delete it
``PATCH /machines/ID``         ``{"tags": {…}}``: puts these on it; one that is ``null`` is taken off
``POST /machines/ID:kill``     it dies and stays as failed; ``:vanish``: it is gone; ``:lose-tags``
``GET /shapes``, ``/prices``   what is on offer
``GET /chaos``, ``PUT``        what goes wrong (:mod:`cloudgraft.simcloud.chaos`)
``GET /ledger``                every machine ever made (``?client=``), calls by kind, faults that occurred
``GET /healthz``               200 while it runs
=============================  ========================================================================================

Chaos is for clients: an operator's calls (``chaos``, ``ledger``, ``healthz``, ``ID:…``) are never slow or wrong.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import NoReturn, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.simcloud.chaos import Chaos
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.fields import shown
from cloudgraft.simcloud.http import json_forms as forms
from cloudgraft.simcloud.outcomes import Operation

T = TypeVar("T")
_LOOK = 0.02  # seconds between two checks whether the cloud still hangs
_LIMIT = 100
_MOST_PER_PAGE = 1000


class NoSuchPathError(Exception):
    """There is nothing at that path."""


class MethodNotAllowedError(Exception):
    """The path does not have that method; the argument names those it has."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A status and what is sent as JSON."""

    status: HTTPStatus
    body: object


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    body: bytes
    query: Mapping[str, str]
    client: str
    machine: str = ""
    action: str = ""

    def json(self) -> object:
        try:
            return json.loads(self.body, parse_constant=_refuse, object_pairs_hook=_without_doubles)
        except (ValueError, RecursionError) as error:
            raise InvalidArgumentError(f"the body is not JSON: {str(error)[:200]}") from None

    def allow(self, *keys: str) -> None:
        unknown = sorted(set(self.query) - set(keys))
        if unknown:
            raise InvalidArgumentError(
                f"unknown parameter {shown(unknown[0])}; known here: {', '.join(keys) or 'none'}"
            )


class Routes:
    """Answers calls to one cloud. Blocks for as long as the faults demand."""

    def __init__(self, cloud: SimulatedCloud) -> None:
        self._cloud = cloud
        self._table: list[tuple[re.Pattern[str], dict[str, Callable[[_Call], Answer]]]] = [
            (re.compile("/machines"), {"GET": self._page, "POST": self._create}),
            (
                re.compile("/machines/(?P<machine>[^/:]+)"),
                {"GET": self._machine, "PATCH": self._mark, "DELETE": self._delete},
            ),
            (re.compile("/machines/(?P<machine>[^/:]+):(?P<action>[a-z-]+)"), {"POST": self._act}),
            (re.compile("/shapes"), {"GET": self._shapes}),
            (re.compile("/prices"), {"GET": self._prices}),
            (re.compile("/chaos"), {"GET": self._get_chaos, "PUT": self._put_chaos}),
            (re.compile("/ledger"), {"GET": self._ledger}),
            (re.compile("/healthz"), {"GET": lambda _: _ok({"ok": True})}),
        ]

    def answer(self, method: str, target: str, body: bytes, client: str = "") -> Answer:
        """Raises CloudgraftError, NoSuchPathError or MethodNotAllowedError; LostAnswerError means: do not answer."""
        try:
            parts = urlsplit(target)
            query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query), max_num_fields=8)
        except ValueError:
            raise InvalidArgumentError("the address cannot be read") from None
        for pattern, methods in self._table:
            if match := pattern.fullmatch(parts.path):
                if method not in methods:
                    raise MethodNotAllowedError(", ".join(methods))
                names = {group: unquote(text) for group, text in match.groupdict().items()}
                return methods[method](_Call(body=body, query=dict(query), client=client, **names))
        raise NoSuchPathError("try /machines, /shapes, /prices, /chaos, /ledger or /healthz")

    # -- for clients ---------------------------------------------------------------------------------------------------

    def _create(self, call: _Call) -> Answer:
        call.allow()
        order = forms.order_from_json(call.json())
        machine, is_new = self._perform(Operation.CREATE, lambda: self._cloud.create(order))
        return Answer(HTTPStatus.CREATED if is_new else HTTPStatus.OK, forms.machine_to_json(machine))

    def _delete(self, call: _Call) -> Answer:
        call.allow()
        machine = self._perform(Operation.DELETE, lambda: self._cloud.delete(call.machine, client=call.client))
        return Answer(HTTPStatus.ACCEPTED, forms.machine_to_json(machine))

    def _mark(self, call: _Call) -> Answer:
        call.allow()
        tags = forms.marks_from_json(call.json())
        machine = self._perform(Operation.MARK, lambda: self._cloud.mark(call.machine, tags))
        return _ok(forms.machine_to_json(machine))

    def _page(self, call: _Call) -> Answer:
        call.allow("limit", "cursor")
        limit = call.query.get("limit", str(_LIMIT))
        if not re.fullmatch("[0-9]{1,4}", limit) or not 1 <= int(limit) <= _MOST_PER_PAGE:
            raise InvalidArgumentError(f"limit must be a number from 1 to {_MOST_PER_PAGE}")
        cursor = call.query.get("cursor", "")
        page = self._perform(Operation.LIST, lambda: self._cloud.page(int(limit), cursor))
        return _ok(forms.page_to_json(page))

    def _machine(self, call: _Call) -> Answer:
        call.allow()
        return _ok(forms.machine_to_json(self._perform(Operation.READ, lambda: self._cloud.get(call.machine))))

    def _shapes(self, call: _Call) -> Answer:
        call.allow()
        shapes = self._perform(Operation.READ, self._cloud.shapes)
        return _ok({"shapes": [forms.shape_to_json(shape) for shape in shapes]})

    def _prices(self, call: _Call) -> Answer:
        call.allow()
        prices = self._perform(Operation.READ, self._cloud.prices)
        return _ok({"prices": [forms.price_to_json(price) for price in prices]})

    def _perform(self, operation: Operation, work: Callable[[], T]) -> T:
        outcome = self._cloud.outcome(operation)
        if outcome.delay:
            time.sleep(outcome.delay)
        while left := self._cloud.hangs_for():
            time.sleep(min(left, _LOOK))
        return outcome.carry_out(work, self._cloud.postpone)

    # -- for an operator -----------------------------------------------------------------------------------------------

    def _act(self, call: _Call) -> Answer:
        call.allow()
        actions = {"kill": self._cloud.kill, "vanish": self._cloud.vanish, "lose-tags": self._cloud.lose_tags}
        if call.action not in actions:
            raise NoSuchPathError(f"a machine has the actions {', '.join(actions)}")
        actions[call.action](call.machine)
        return _ok({})

    def _get_chaos(self, call: _Call) -> Answer:
        call.allow()
        return _ok(self._cloud.chaos.to_json())

    def _put_chaos(self, call: _Call) -> Answer:
        call.allow()
        self._cloud.set_chaos(Chaos.from_json(call.json()))
        return self._get_chaos(call)

    def _ledger(self, call: _Call) -> Answer:
        call.allow("client")
        client = call.query.get("client")
        entries = [entry for entry in self._cloud.ledger() if client in (None, entry.client)]
        machines = [forms.entry_to_json(entry) for entry in entries]
        return _ok({"machines": machines, "calls": self._cloud.calls(), "faults": self._cloud.faults()})


def _ok(body: object) -> Answer:
    return Answer(HTTPStatus.OK, body)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number in JSON")


def _without_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found
