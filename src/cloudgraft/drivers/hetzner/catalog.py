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

__all__ = ["Names", "prices_of", "shapes_of"]

_LASTS: Final = 600.0  # seconds for which the number of a name is believed
_LONGEST: Final = 50.0  # seconds for all pages of a catalog
_ARCHITECTURES: Final = {"x86": "amd64", "arm": "arm64"}


class Names:
    """The numbers of things that the API takes by number only; found once, and then believed for a while."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._known: dict[tuple[str, ...], tuple[float, Json]] = {}

    def number(self, path: str, reference: Reference, option: str) -> int:
        """The number of a network, a firewall or a placement group."""
        if isinstance(reference, int) or reference.isdecimal():
            return int(reference)
        return int(self._found(path, option, name=reference)["id"])

    def image(self, reference: Reference, shape: str) -> int:
        """The number of an image. Images for several architectures share a name: it is the one for the server type."""
        if isinstance(reference, int) or reference.isdecimal():
            return int(reference)
        kind = self._found("/server_types", "machine.shape", name=shape)
        return int(self._found("/images", "machine.image", name=reference, architecture=kind["architecture"])["id"])

    def forget(self) -> None:
        """What was found may be gone, and another thing may have its name."""
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
    """All server types."""
    return [_shape(kind, location) for kind in _types(api)]


def prices_of(api: Api, location: str) -> Sequence[Price]:
    """What the server types cost in one location, without taxes and without addresses."""
    currency = str(api.get("/pricing", "prices")["pricing"]["currency"])
    return [
        Price(shape=str(kind["name"]), hourly=Decimal(price["price_hourly"]["net"]), currency=currency)
        for kind in _types(api)
        for price in kind["prices"]
        if price["location"] == location
    ]


def _types(api: Api) -> Sequence[Json]:
    """Those that can still be had somewhere."""
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
            "memory": Quantity(f"{_plain(kind['memory'])}Gi"),  # called GB there, and counted in powers of two
            "ephemeral-storage": Quantity(f"{_plain(kind['disk'])}G"),
        },
        labels=labels,
    )


def _plain(number: object) -> str:
    """Without the ".0" that many of them end in."""
    return f"{Decimal(str(number)).normalize():f}"
