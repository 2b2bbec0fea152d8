"""How the autoscaler chooses among groups, and whether that can work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from cloudgraft.doctor.catalog import found
from cloudgraft.doctor.findings import Finding
from cloudgraft.doctor.picture import Autoscaler, Picture
from cloudgraft.documents import ForeignDocumentError, parse_yaml

__all__ = ["check"]

_MAP: Final = "cluster-autoscaler-priority-expander"
_ANYTHING: Final = re.compile("")


def check(picture: Picture) -> Iterator[Finding]:
    """Each expander of each autoscaler's chain."""
    for autoscaler in picture.autoscalers:
        chain = autoscaler.flags.words("expander")
        if "price" in chain:
            yield from _price(autoscaler, picture)
        if "grpc" in chain:
            yield from _grpc(autoscaler)
        if "priority" in chain:
            yield from _priority(autoscaler, picture)


def _price(autoscaler: Autoscaler, picture: Picture) -> Iterator[Finding]:
    """The running server knows its drivers' prices; the file only what is written there."""
    if picture.server is not None:
        unpriced = [group.id for group in picture.server.groups if not group.has_price and not group.left_out]
    else:
        unpriced = [group.id for group in picture.settings.groups if not group.has_price] if picture.settings else []
    if unpriced:
        unsure = "" if picture.server else " in the configuration file; its driver may know one"
        what = f"without a price: {', '.join(unpriced)}{unsure}"
        yield found("expander-price-without-prices", where=autoscaler.where, what=what)


def _grpc(autoscaler: Autoscaler) -> Iterator[Finding]:
    missing = [name for name in ("grpc-expander-url", "grpc-expander-cert") if not autoscaler.flags.text(name)]
    if missing:
        what = f"missing: {', '.join(f'--{name}' for name in missing)}"
        yield found("expander-grpc-incomplete", where=autoscaler.where, what=what)
    else:
        what = f"{autoscaler.flags.text('grpc-expander-url')} chooses"
        yield found("expander-grpc", where=autoscaler.where, what=what)


def _priority(autoscaler: Autoscaler, picture: Picture) -> Iterator[Finding]:
    where = f"ConfigMap {autoscaler.config_namespace}/{_MAP}"
    if autoscaler.priorities_trouble:
        return  # it could not be read, which says nothing of it
    if autoscaler.priorities is None:
        yield found("expander-priority-no-configmap", where=where, what="there is none with the key priorities")
        return
    patterns = _patterns(autoscaler.priorities)
    if patterns is None:
        what = "it is not a mapping of numbers to lists of patterns"
        yield found("expander-priority-no-configmap", where=where, what=what)
        return
    for id_ in picture.group_ids():
        if not any(pattern.search(id_) for pattern in patterns):
            fix = f'add to the key priorities: "10": ["^{re.escape(id_)}$"]'
            what = f"group {id_} matches no pattern"
            yield found("expander-priority-group-unmatched", where=where, what=what, fix=fix)


def _patterns(text: str) -> list[re.Pattern[str]] | None:
    """The patterns, as far as Go's and Python's are the same; None when the text makes no sense."""
    try:
        read = parse_yaml(text)
        return [_pattern(pattern) for patterns in read.values() for pattern in patterns]
    except (ForeignDocumentError, AttributeError, TypeError):
        return None


def _pattern(text: str) -> re.Pattern[str]:
    """One that only Go understands may match anything: nothing is said of it."""
    if "[[:" in text:
        return _ANYTHING
    try:
        return re.compile(text)
    except re.error:
        return _ANYTHING
