"""Reads the servers, server types and other resources of a project, and converts them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, TypeVar

from cloudgraft.drivers.common.label_text import HETZNER
from cloudgraft.drivers.common.listing import is_younger
from cloudgraft.drivers.hetzner.api import Api, Json
from cloudgraft.drivers.hetzner.options import MARK, Reference
from cloudgraft.sdk.driver import Machine, MachineState, Price, Shape
from cloudgraft.sdk.errors import InternalError, InvalidArgumentError, UnavailableError
from cloudgraft.sdk.list_budget import current_budget
from cloudgraft.sdk.quantity import Quantity

T = TypeVar("T")
_PER_PAGE: Final = 50  # the API's maximum
_MOST_PAGES: Final = 10_000
_FIRST_START: Final = timedelta(minutes=2)  # for which a new server may be off before its first start
_STATES: Final = {
    "initializing": MachineState.PENDING,
    "starting": MachineState.PENDING,
    "running": MachineState.RUNNING,
    "migrating": MachineState.RUNNING,
    "rebuilding": MachineState.RUNNING,
    "stopping": MachineState.STOPPED,
    "off": MachineState.STOPPED,
    "deleting": MachineState.DELETING,
}


def machine_of(server: Mapping[str, Any]) -> Machine:
    """Converts a server to a machine; raises InternalError when the response is invalid."""
    try:
        created = datetime.fromisoformat(server["created"])
        created = created if created.tzinfo else created.replace(tzinfo=UTC)
        state, reason = _state(str(server["status"]), created)
        return Machine(
            name=str(server["name"]),
            machine_id=str(int(server["id"])),
            provider_id=f"hcloud://{int(server['id'])}",
            state=state,
            tags={key: HETZNER.decode(value) for key, value in server["labels"].items() if key.startswith(MARK)},
            created_at=created,
            reason=reason,
            addresses=_addresses(server),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InternalError(f"the API has shown an invalid server: {type(error).__name__} {error}") from None


def _state(status: str, created: datetime) -> tuple[MachineState, str]:
    state = _STATES.get(status)
    if state is None:
        return MachineState.PENDING, f"Hetzner says that its status is {status!r}"
    if state is MachineState.STOPPED and is_younger(created, _FIRST_START):
        return MachineState.PENDING, f"it is new, and {status}"
    return state, "" if state is MachineState.RUNNING else f"it is {status}"


def _addresses(server: Mapping[str, Any]) -> tuple[str, ...]:
    public = server.get("public_net") or {}
    found = [private["ip"] for private in server.get("private_net") or ()]
    if public.get("ipv4"):
        found.append(public["ipv4"]["ip"])
    if public.get("ipv6"):  # a network, of which the server uses the first address
        found.append(public["ipv6"]["ip"].partition("/")[0] + "1")
    return tuple(str(address) for address in found if address)


# -- lists -------------------------------------------------------------------------------------------------------------
# Pages are numbered, so a deletion between two reads shifts the other servers, and one may move to a page that was read
# already. So the servers are counted. They are read newest first: a new server then does not appear, and can only make
# another one appear twice. A pass that has seen as many as there were at first has seen them all. Otherwise all pages
# are read again, and a server counts as existing when either pass has seen it.


def listed(api: Api, path: str, what: str, until: float, read: Callable[[Json], T], **query: object) -> dict[int, T]:
    """Returns all entries of a list by id; raises UnavailableError rather than return a part.

    ``until`` is the monotonic deadline. ``read`` converts an entry at once: thousands of raw entries would take much
    memory, and freeing them all at once would delay everything else.
    """
    budget = current_budget()
    both: dict[int, T] = {}
    totals: list[int] = []
    for _ in range(2):
        found: dict[int, T] = {}
        totals = []
        for entries, total in _pages(api, path, what, until, query):
            found |= {int(entry["id"]): read(entry) for entry in entries}
            budget.check_count(len(found))
            totals.append(total)
        if len(found) >= totals[0]:
            return found
        both |= found
    if len(both) < min(totals):
        raise UnavailableError(f"{what}: of {min(totals)} entries the API has shown {len(both)}; a page was incomplete")
    return both


def _pages(
    api: Api, path: str, what: str, until: float, query: Mapping[str, object]
) -> Iterator[tuple[list[Json], int]]:
    """Yields the entries of each page, and the total number of entries; 0 when the API does not know it."""
    for page in range(1, _MOST_PAGES + 1):
        if time.monotonic() > until:
            raise UnavailableError(f"{what}: the API takes too long for all pages; {page - 1} were read")
        answer = api.get(path, f"{what}, page {page}", page=page, per_page=_PER_PAGE, **query)
        try:
            about = answer["meta"]["pagination"]
            following = None if about["next_page"] is None else int(about["next_page"])
            total = int(about["total_entries"] or 0)
            entries = [entry for entry in answer[path.removeprefix("/")] if int(entry["id"])]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnavailableError(f"{what}: page {page} is incomplete: {type(error).__name__} {error}") from None
        yield entries, total
        if following is None:
            return
        if following != page + 1:
            raise InternalError(f"after page {page} the API leads to page {following}")
    raise InternalError(f"the API's list has more than {_MOST_PAGES} pages")


# -- server types, prices and ids --------------------------------------------------------------------------------------

_LASTS: Final = 600.0  # seconds for which the id of a name is cached
_LONGEST: Final = 50.0  # seconds for all pages of a catalog
_ARCHITECTURES: Final = {"x86": "amd64", "arm": "arm64"}


class Names:
    """Looks up the numeric ids that the API requires, and caches them for a while.

    Thread-safe: each access to the cache is one operation of a dictionary.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: dict[tuple[str, ...], tuple[float, Json]] = {}

    def number(self, path: str, reference: Reference, option: str, **query: str) -> int:
        """Returns the id of a network, a firewall or a placement group."""
        if isinstance(reference, int) or reference.isdecimal():
            return int(reference)
        return int(self._found(path, option, name=reference, **query)["id"])

    def image(self, reference: Reference, shape: str) -> int:
        """Returns the id of the image for the server type: images for several architectures share a name."""
        if isinstance(reference, int) or reference.isdecimal():
            return int(reference)
        kind = self._found("/server_types", "machine.shape", name=shape)
        return self.number("/images", reference, "machine.image", architecture=kind["architecture"])

    def forget(self) -> None:
        """Clears the cache: a thing may be gone, and another may have its name."""
        self._known.clear()

    def _found(self, path: str, option: str, **query: str) -> Json:
        key = (path, *query.values())
        until, known = self._known.get(key, (0.0, {}))
        if time.monotonic() < until:
            return known
        answer = self._api.get(path, f"{option} {query['name']}", **query)
        entries = answer.get(path.removeprefix("/"))
        if not isinstance(entries, list):
            raise InternalError(f"{option} {query['name']}: the API's answer has no {path.removeprefix('/')}")
        if not entries:
            more = f" for {query['architecture']}" if "architecture" in query else ""
            raise InvalidArgumentError(f"{option}: the project has no {query['name']!r}{more}")
        found: Json = entries[0]
        self._known[key] = (time.monotonic() + _LASTS, found)
        return found


def shapes_of(api: Api, location: str) -> Sequence[Shape]:
    """Returns all server types."""
    return [_shape(kind, location) for kind in _types(api)]


def prices_of(api: Api, location: str) -> Sequence[Price]:
    """Returns the prices of server types in one location, without taxes and addresses."""
    currency = str(api.get("/pricing", "prices")["pricing"]["currency"])
    return [
        Price(shape=str(kind["name"]), hourly=Decimal(price["price_hourly"]["net"]), currency=currency)
        for kind in _types(api)
        for price in kind["prices"]
        if price["location"] == location
    ]


def _types(api: Api) -> Sequence[Json]:
    """Returns the server types that are still available somewhere."""
    until = time.monotonic() + _LONGEST
    kinds = listed(api, "/server_types", "server types", until, dict).values()
    return [kind for kind in kinds if any(map(_is_offered, kind["locations"]))]


def _is_offered(place: Mapping[str, Any]) -> bool:
    end = (place.get("deprecation") or {}).get("unavailable_after")
    return end is None or datetime.fromisoformat(end) > datetime.now(UTC)


def _shape(kind: Mapping[str, Any], location: str) -> Shape:
    here = any(place["name"] == location and _is_offered(place) for place in kind["locations"])
    labels = {"node.kubernetes.io/instance-type": str(kind["name"])}
    if kind["architecture"] in _ARCHITECTURES:
        labels["kubernetes.io/arch"] = _ARCHITECTURES[kind["architecture"]]
    if here:
        labels["topology.kubernetes.io/region"] = location
    return Shape(
        name=str(kind["name"]),
        capacity={
            "cpu": Quantity(int(kind["cores"])),
            "memory": Quantity(f"{_plain(kind['memory'])}Gi"),  # named GB there, but in powers of two
            "ephemeral-storage": Quantity(f"{_plain(kind['disk'])}G"),
        },
        labels=labels,
    )


def _plain(number: object) -> str:
    """Formats a number without a trailing ".0"."""
    return f"{Decimal(str(number)).normalize():f}"
