"""What the JSON of every kind of objects has in common, and amounts and times in it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from sys import intern
from typing import Any

import msgspec

from cloudgraft.sdk.quantity import InvalidQuantityError, Quantity

__all__ = ["Meta", "amounts", "common", "labels", "seconds"]


class Meta(msgspec.Struct, rename="camel"):
    """What every object is known by."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None


def seconds(moment: datetime | None) -> float:
    """Since the epoch; 0 for no time."""
    return 0.0 if moment is None else moment.timestamp()


@lru_cache(maxsize=4096)
def _amount(text: str) -> Quantity | None:
    """Most nodes are of a few types, so that thousands of them share a few amounts. None: not one at all."""
    try:
        return Quantity(text)
    except InvalidQuantityError:
        return None


@lru_cache(maxsize=1 << 14)
def _kept_once(text: str) -> str:
    """Values of labels: most are on thousands of nodes. Not interned, which is for good in some releases of Python."""
    return text


def amounts(wire: Mapping[str, str] | Mapping[str, str | int] | None) -> dict[str, Quantity]:
    """Quantities by resource; what is none is left out."""
    found = ((intern(name), _amount(str(text))) for name, text in (wire or {}).items())
    return {name: amount for name, amount in found if amount is not None}


def common(meta: Meta) -> dict[str, Any]:
    """What every object has."""
    return {
        "name": meta.name,
        "namespace": meta.namespace,
        "uid": meta.uid,
        "deleting": meta.deletion_timestamp is not None,
        "version": meta.resource_version,
    }


def labels(meta: Meta) -> dict[str, str]:
    """Of an object of a kind of which there are thousands."""
    return {intern(key): _kept_once(value) for key, value in (meta.labels or {}).items()}
