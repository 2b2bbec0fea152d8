"""Checks the autoscaler's flags, its expanders, and the options of groups against its release."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from cloudgraft.doctor.findings import Finding, found
from cloudgraft.doctor.inputs import Autoscaler, GroupSettings, Inputs
from cloudgraft.doctor.releases import KNOWN, NEWEST, OLDEST, Release
from cloudgraft.documents import ForeignDocumentError, parse_yaml
from cloudgraft.sdk.duration import format_duration
from cloudgraft.sdk.types import AutoscalingOptions

# -- flags -------------------------------------------------------------------------------------------------------------
# Finds unknown flags, flags without effect, and harmful values.


_NODES: Final = re.compile(r"(-?\d+):(-?\d+):(.+)")
_TURNED_OFF: Final = {  # flags, and the findings when they are false
    "scale-down-enabled": "scale-down-off",
    "scale-down-unready-enabled": "unready-never-removed",
    "skip-nodes-with-local-storage": "local-data-lost",
    "skip-nodes-with-system-pods": "system-pods-moved",
}
_EAGER: Final = timedelta(minutes=1)
_LAZY: Final = timedelta(hours=24)


def check(inputs: Inputs) -> Iterator[Finding]:
    """Checks all flags of all autoscalers."""
    for autoscaler in inputs.autoscalers:
        yield from _unknown(autoscaler)
        yield from _nodes(autoscaler, inputs)
        yield from _min_size(autoscaler, inputs)
        yield from _scale_down(autoscaler)
        yield from _provision_time(autoscaler, inputs)
        yield from _turned_off(autoscaler)


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


def _nodes(autoscaler: Autoscaler, inputs: Inputs) -> Iterator[Finding]:
    sizes = {group.id: (group.min_size, group.max_size) for group in inputs.settings.groups} if inputs.settings else {}
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


def _min_size(autoscaler: Autoscaler, inputs: Inputs) -> Iterator[Finding]:
    if autoscaler.flags.is_true("enforce-node-group-min-size"):
        return
    targets = {group.id: group.target for group in inputs.server.groups} if inputs.server else {}
    for group in inputs.settings.groups if inputs.settings else ():
        if group.min_size > 0:
            target = targets.get(group.id)
            now = "" if target is None else f", and has {target} now"
            what = f"group {group.id} has minSize {group.min_size}{now}; --enforce-node-group-min-size is not set"
            yield found("min-size-not-enforced", where=autoscaler.where, what=what)


def _scale_down(autoscaler: Autoscaler) -> Iterator[Finding]:
    flags, where = autoscaler.flags, autoscaler.where
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


def _provision_time(autoscaler: Autoscaler, inputs: Inputs) -> Iterator[Finding]:
    """By default cloudgraft waits longer than the autoscaler. That is fine unless an operator set its deadlines."""
    settings, given = inputs.settings, autoscaler.flags.duration("max-node-provision-time")
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


def _turned_off(autoscaler: Autoscaler) -> Iterator[Finding]:
    for name, id_ in _TURNED_OFF.items():
        if autoscaler.flags.is_false(name):
            yield found(id_, where=autoscaler.where, what=f"--{name}=false")


# -- expanders ---------------------------------------------------------------------------------------------------------


_MAP: Final = "cluster-autoscaler-priority-expander"
_ANYTHING: Final = re.compile("")


def check_expanders(inputs: Inputs) -> Iterator[Finding]:
    """Checks each expander of each autoscaler's chain."""
    for autoscaler in inputs.autoscalers:
        chain = autoscaler.flags.words("expander")
        if "price" in chain:
            yield from _price(autoscaler, inputs)
        if "grpc" in chain:
            yield from _grpc(autoscaler)
        if "priority" in chain:
            yield from _priority(autoscaler, inputs)


def _price(autoscaler: Autoscaler, inputs: Inputs) -> Iterator[Finding]:
    """The running server knows its drivers' prices; the file only what is written there."""
    if inputs.server is not None:
        unpriced = [group.id for group in inputs.server.groups if not group.has_price and not group.left_out]
    else:
        unpriced = [group.id for group in inputs.settings.groups if not group.has_price] if inputs.settings else []
    if unpriced:
        unsure = "" if inputs.server else " in the configuration file; its driver may know one"
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


def _priority(autoscaler: Autoscaler, inputs: Inputs) -> Iterator[Finding]:
    where = f"ConfigMap {autoscaler.config_namespace}/{_MAP}"
    if autoscaler.priorities_trouble:
        return  # it could not be read, which proves nothing
    if autoscaler.priorities is None:
        yield found("expander-priority-no-configmap", where=where, what="there is none with the key priorities")
        return
    patterns = _patterns(autoscaler.priorities)
    if patterns is None:
        what = "it is not a mapping of numbers to lists of patterns"
        yield found("expander-priority-no-configmap", where=where, what=what)
        return
    for id_ in inputs.group_ids():
        if not any(pattern.search(id_) for pattern in patterns):
            fix = f'add to the key priorities: "10": ["^{re.escape(id_)}$"]'
            what = f"group {id_} matches no pattern"
            yield found("expander-priority-group-unmatched", where=where, what=what, fix=fix)


def _patterns(text: str) -> list[re.Pattern[str]] | None:
    """The patterns, as far as Go's and Python's are the same; None when the text is invalid."""
    try:
        read = parse_yaml(text)
        return [_pattern(pattern) for patterns in read.values() for pattern in patterns]
    except (ForeignDocumentError, AttributeError, TypeError):
        return None


def _pattern(text: str) -> re.Pattern[str]:
    """Whether a pattern matches. One that only Go understands may match anything, so it is not judged."""
    if "[[:" in text:
        return _ANYTHING
    try:
        return re.compile(text)
    except re.error:
        return _ANYTHING


# -- options of groups (B1, B2, B3 and B6) -----------------------------------------------------------------------------


def check_options(inputs: Inputs) -> Iterator[Finding]:
    """Checks every group with options, for every autoscaler."""
    settings = inputs.settings
    if settings is None:
        return
    for autoscaler in inputs.autoscalers:
        release = autoscaler.release
        for group in settings.groups:
            if release is None or group.options is None:
                continue
            where = f"group {group.id} in {settings.file}"
            yield from _group_options(group, group.options, release, where, is_forced=settings.force_options)


def _group_options(
    group: GroupSettings, options: AutoscalingOptions, release: Release, where: str, *, is_forced: bool
) -> Iterator[Finding]:
    bug = _bug(options, release)
    if bug is not None and is_forced:
        what = f"server.forceOptions is true, and the autoscaler is {release}"
        yield found(_HARM[bug], where=where, what=what)
    elif bug is not None:
        yield found("options-held-back", where=where, what=f"the autoscaler is {release}, which has {bug}")
    if options.zero_or_max_node_scaling and group.max_size > 1 and release.is_of >= (1, 28):
        yield found("zero-or-max-never-shrinks", where=where, what=f"zeroOrMaxNodeScaling, maxSize {group.max_size}")


_HARM = {"B1": "options-delete-new-machines", "B2": "options-turn-off", "B3": "options-buy-twice"}


def _bug(options: AutoscalingOptions, release: Release) -> str | None:
    """The bug that keeps cloudgraft from sending options; see docs/explanation/releases.md."""
    if release.is_of <= (1, 28):
        return "B1"
    if release < Release(1, 34, 2):  # on the wire they look like those that have the bug
        says_both = options.ignore_daemon_sets_utilization is False and not options.zero_or_max_node_scaling
        return None if says_both else "B2"
    return "B3" if release.is_of >= (1, 35) else None
