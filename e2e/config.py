"""cloudgraft's configuration for scenarios: groups whose nodes look like their templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from e2e.kubernetes import GROUP_LABEL

__all__ = ["cloud", "document", "node_group", "taint"]

Section = dict[str, Any]


def taint(key: str, value: str = "yes", effect: str = "NoSchedule") -> Section:
    """A taint."""
    return {"key": key, "value": value, "effect": effect}


def node_group(
    id_: str,
    shape: str,
    *,
    cloud: str = "sim",
    min_size: int = 0,
    max_size: int = 10,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Section] = (),
    **more: Any,
) -> Section:
    """A group. Its nodes get the labels and taints of its template, and a label that names it."""
    looks = {"labels": {GROUP_LABEL: id_, **(labels or {})}, "taints": list(taints)}
    sizes = {"minSize": min_size, "maxSize": max_size}
    return {"id": id_, "cloud": cloud, **sizes, "machine": {"shape": shape, **looks}, "template": looks, **more}


def cloud(url: str, *, engine: Mapping[str, Any] | None = None, **more: Any) -> Section:
    """A simulated cloud at an address, looked at every second."""
    return {"driver": "simulated", "url": url, "engine": {"observeEvery": "1s", **(engine or {})}, **more}


def document(*, clouds: Mapping[str, Section], groups: Sequence[Section], **more: Any) -> Section:
    """A whole file, but for what the process itself decides: addresses and the log."""
    return {"cluster": "e2e", "clouds": dict(clouds), "nodeGroups": list(groups), **more}
