"""The autoscaler's flags: those it does not know, those without effect, and values that hurt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from cloudgraft.doctor.catalog import found
from cloudgraft.doctor.findings import Finding
from cloudgraft.doctor.flags import KNOWN
from cloudgraft.doctor.picture import Autoscaler, Picture
from cloudgraft.doctor.release import NEWEST, OLDEST
from cloudgraft.sdk.duration import format_duration

__all__ = ["check"]

_NODES: Final = re.compile(r"(-?\d+):(-?\d+):(.+)")
_EAGER: Final = timedelta(minutes=1)
_LAZY: Final = timedelta(hours=24)


def check(picture: Picture) -> Iterator[Finding]:
    """All flags of all autoscalers."""
    for autoscaler in picture.autoscalers:
        yield from _unknown(autoscaler)
        yield from _nodes(autoscaler, picture)
        yield from _min_size(autoscaler, picture)
        yield from _scale_down(autoscaler)
        yield from _provision_time(autoscaler, picture)
        yield from _moved(autoscaler)


def _unknown(autoscaler: Autoscaler) -> Iterator[Finding]:
    release = autoscaler.release
    if release is None or not OLDEST <= release.is_of <= NEWEST:
        return
    for name in autoscaler.flags.values:
        first, last = KNOWN.get(name, (0, 99))
        if not first <= release.minor <= last:
            when = f"since 1.{first}" if release.minor < first else f"up to 1.{last}"
            what = f"--{name} is known {when}, and this is {release}"
            yield found("flag-unknown", where=autoscaler.where, what=what, fix=f"remove --{name}")


def _nodes(autoscaler: Autoscaler, picture: Picture) -> Iterator[Finding]:
    sizes = (
        {group.id: (group.min_size, group.max_size) for group in picture.settings.groups} if picture.settings else {}
    )
    for value in autoscaler.flags.all("nodes"):
        match = _NODES.fullmatch(value)
        ours = sizes.get(match[3]) if match else None
        if match and ours is not None and ours != (int(match[1]), int(match[2])):
            what = f"--nodes={value}, but group {match[3]} is configured with {ours[0]} to {ours[1]}"
            yield found("nodes-flag-misleads", where=autoscaler.where, what=what)
        else:
            yield found("nodes-flag-ignored", where=autoscaler.where, what=f"--nodes={value}")
    for value in autoscaler.flags.all("node-group-auto-discovery"):
        yield found("nodes-flag-ignored", where=autoscaler.where, what=f"--node-group-auto-discovery={value}")


def _min_size(autoscaler: Autoscaler, picture: Picture) -> Iterator[Finding]:
    if autoscaler.flags.is_true("enforce-node-group-min-size"):
        return
    targets = {group.id: group.target for group in picture.server.groups} if picture.server else {}
    for group in picture.settings.groups if picture.settings else ():
        if group.min_size > 0:
            target = targets.get(group.id)
            now = "" if target is None else f", and has {target} now"
            what = f"group {group.id} has minSize {group.min_size}{now}; --enforce-node-group-min-size is not set"
            yield found("min-size-not-enforced", where=autoscaler.where, what=what)


def _scale_down(autoscaler: Autoscaler) -> Iterator[Finding]:
    flags, where = autoscaler.flags, autoscaler.where
    if flags.is_false("scale-down-enabled"):
        yield found("scale-down-off", where=where, what="--scale-down-enabled=false")
    if flags.is_false("scale-down-unready-enabled"):
        yield found("unready-never-removed", where=where, what="--scale-down-unready-enabled=false")
    for name in ("scale-down-unneeded-time", "scale-down-unready-time"):
        given = flags.duration(name) if flags.is_set(name) else None
        if given is not None and given < _EAGER:
            yield found("scale-down-too-eager", where=where, what=f"--{name}={format_duration(given)}")
        elif given is not None and given > _LAZY:
            yield found("scale-down-never", where=where, what=f"--{name}={format_duration(given)}")
    for name in ("scale-down-utilization-threshold", "scale-down-gpu-utilization-threshold"):
        share = flags.number(name) if flags.is_set(name) else None
        if share is not None and share >= 0.95:
            yield found("scale-down-too-eager", where=where, what=f"--{name}={share:g}")
        elif share is not None and share <= 0.01:
            yield found("scale-down-never", where=where, what=f"--{name}={share:g}")


def _provision_time(autoscaler: Autoscaler, picture: Picture) -> Iterator[Finding]:
    """By default cloudgraft is the more patient one, which is fine unless somebody counts on its patience."""
    settings, given = picture.settings, autoscaler.flags.duration("max-node-provision-time")
    if settings is None or given is None:
        return
    together = settings.create_deadline + settings.join_deadline
    if given < (together if settings.has_own_deadlines else settings.create_deadline):
        what = (
            f"--max-node-provision-time is {format_duration(given)}, engine.createDeadline "
            f"{format_duration(settings.create_deadline)} and engine.joinDeadline "
            f"{format_duration(settings.join_deadline)}"
        )
        fix = f"--max-node-provision-time={format_duration(together)}"
        yield found("provision-time-too-short", where=autoscaler.where, what=what, fix=fix)


def _moved(autoscaler: Autoscaler) -> Iterator[Finding]:
    flags, where = autoscaler.flags, autoscaler.where
    if flags.is_false("skip-nodes-with-local-storage"):
        yield found("local-data-lost", where=where, what="--skip-nodes-with-local-storage=false")
    if flags.is_false("skip-nodes-with-system-pods"):
        yield found("system-pods-moved", where=where, what="--skip-nodes-with-system-pods=false")
