"""Reads server types and prices, and looks up resources of the project by name."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from cloudgraft.drivers.hetzner.api import Api, Json
from cloudgraft.drivers.hetzner.options import Reference
from cloudgraft.drivers.hetzner.servers import listed
from cloudgraft.sdk.driver import Price, Shape
from cloudgraft.sdk.errors import InternalError, InvalidArgumentError
from cloudgraft.sdk.quantity import Quantity

_LASTS: Final = 600.0  # seconds for which the id of a name is cached
_LONGEST: Final = 50.0  # seconds for all pages of a catalog
_ARCHITECTURES: Final = {"x86": "amd64", "arm": "arm64"}


class Names:
    """Looks up the numeric ids that the API requires, and caches them for a while."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._known: dict[tuple[str, ...], tuple[float, Json]] = {}

    def number(self, path: str, reference: Reference, option: str) -> int:
        """Returns the id of a network, a firewall or a placement group."""
        if isinstance(reference, int) or reference.isdecimal():
            return int(reference)
        return int(self._found(path, option, name=reference)["id"])

    def image(self, reference: Reference, shape: str) -> int:
        """Returns the id of the image for the server type: images for several architectures share a name."""
        if isinstance(reference, int) or reference.isdecimal():
            return int(reference)
        kind = self._found("/server_types", "machine.shape", name=shape)
        return int(self._found("/images", "machine.image", name=reference, architecture=kind["architecture"])["id"])

    def forget(self) -> None:
        """Clears the cache: a thing may be gone, and another may have its name."""
        with self._lock:
            self._known.clear()

    def _found(self, path: str, option: str, **query: str) -> Json:
        key = (path, *query.values())
        with self._lock:
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
        with self._lock:
            self._known[key] = (time.monotonic() + _LASTS, entries[0])
        found: Json = entries[0]
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
    kinds = listed(api, "/server_types", "server_types", "server types", until, dict).values()
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
