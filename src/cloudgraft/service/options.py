"""Which option overrides may be sent to which release. Pure.

A reply with options replaces all of the client's, those that the protocol cannot carry included: they become zero.
In some releases that does more harm than the override does good, so it is held back there unless forced.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from cloudgraft.sdk.types import AutoscalingOptions
from cloudgraft.wire.externalgrpc import ClientAge

# The autoscaler's own flag defaults, for a client that sent none: a reply must never leave a duration out (R75).
FLAG_DEFAULTS = AutoscalingOptions(
    scale_down_utilization_threshold=0.5,
    scale_down_gpu_utilization_threshold=0.5,
    scale_down_unneeded_time=timedelta(minutes=10),
    scale_down_unready_time=timedelta(minutes=20),
    max_node_provision_time=timedelta(minutes=15),
    zero_or_max_node_scaling=False,
    ignore_daemon_sets_utilization=False,
)

_B1 = (
    "autoscalers up to 1.28 read no provision time; 1.27 and 1.28 would delete every new node at once (B1); "
    "upgrade the autoscaler to 1.29 or later"
)
_B3 = (
    "autoscalers from 1.35 to 1.37 take the startup time for zero as soon as any option is set, and count every "
    "booting node as unready (B3); set the options by the autoscaler's flags"
)


_B2 = (
    "option overrides turn zero-or-max scaling and --ignore-daemonsets-utilization off for this group in autoscalers "
    "from 1.29 to 1.32, which cannot be told them (B2)"
)


@dataclass(frozen=True, slots=True)
class OptionsReply:
    """What to send (None: leave the options unset, which means the client's defaults), and what to warn of."""

    options: AutoscalingOptions | None
    warning: str = ""


def decide_reply(
    wanted: AutoscalingOptions | None, defaults: AutoscalingOptions, age: ClientAge, *, force: bool = False
) -> OptionsReply:
    """The complete options for this client, or none where they would do harm."""
    if wanted is None:
        return OptionsReply(None)
    merged = wanted.over(defaults)
    if merged == defaults:
        return OptionsReply(None)  # nothing differs: unset says the same, and is safe in every release
    harm = _harm(age)
    if harm and not force:
        return OptionsReply(None, f"option overrides are not sent: {harm}, or set forceOptions")
    complete = merged.over(FLAG_DEFAULTS) if _has_gaps(merged) else merged
    if harm:
        return OptionsReply(complete, f"option overrides are sent because forceOptions is set, although {harm}")
    return OptionsReply(complete, _B2 if age.may_be_1_29_to_1_32 else "")


def _harm(age: ClientAge) -> str:
    if age.up_to_1_28:
        return _B1
    return _B3 if age.since_1_35 and not age.reads_startup_time else ""


def _has_gaps(options: AutoscalingOptions) -> bool:
    return None in (
        options.scale_down_utilization_threshold,
        options.scale_down_gpu_utilization_threshold,
        options.scale_down_unneeded_time,
        options.scale_down_unready_time,
        options.max_node_provision_time,
    )
