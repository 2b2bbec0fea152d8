"""Decides which option overrides to send to which release of the autoscaler. Pure.

A reply with options replaces all of the client's, including those that the protocol cannot carry: they become zero.
In some releases that does more harm than the override does good, so it is not sent there unless forced.
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
# 1.33, and 1.34.0 and 1.34.1, look like 1.29 to 1.32 on the wire unless one of the two is true there.
_B2 = (
    "autoscalers from 1.29 to 1.32, and this looks like one of them, cannot be told --ignore-daemonsets-utilization "
    "and zero-or-max scaling, and take both for off as soon as any option is set (B2); upgrade the autoscaler to "
    "1.34.2, or give the group ignoreDaemonSetsUtilization: false if the autoscaler runs without that flag"
)
_B3 = (
    "autoscalers from 1.35 to 1.37 take the startup time for zero as soon as any option is set, and count every "
    "booting node as unready (B3); set the options by the autoscaler's flags"
)


@dataclass(frozen=True, slots=True)
class OptionsReply:
    """The options to send (None: unset, which means the client's defaults), and a warning."""

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
        return OptionsReply(None)  # nothing differs: unset means the same, and is safe in every release
    harm = _harm(wanted, age)
    if harm and not force:
        return OptionsReply(None, f"option overrides are not sent: {harm}, or set server.forceOptions")
    complete = merged.over(FLAG_DEFAULTS) if _has_gaps(merged) else merged
    if harm:
        return OptionsReply(complete, f"option overrides are sent because server.forceOptions is set, although {harm}")
    return OptionsReply(complete)


def _harm(wanted: AutoscalingOptions, age: ClientAge) -> str:
    """The unwanted effect of a reply with options on this client; empty for none."""
    if age.up_to_1_28:
        return _B1
    if age.may_be_1_29_to_1_32 and not _wants_what_such_a_client_assumes(wanted):
        return _B2
    return _B3 if age.since_1_35 and not age.reads_startup_time else ""


def _wants_what_such_a_client_assumes(wanted: AutoscalingOptions) -> bool:
    """Whether both options of B2 are meant to be off; zero-or-max has no flag, so it is off unless configured."""
    return wanted.ignore_daemon_sets_utilization is False and not wanted.zero_or_max_node_scaling


def _has_gaps(options: AutoscalingOptions) -> bool:
    return None in (
        options.scale_down_utilization_threshold,
        options.scale_down_gpu_utilization_threshold,
        options.scale_down_unneeded_time,
        options.scale_down_unready_time,
        options.max_node_provision_time,
    )
