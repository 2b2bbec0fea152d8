"""Which option overrides are sent to whom, and what is said about it. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from cloudgraft.sdk import AutoscalingOptions
from cloudgraft.service.options import FLAG_DEFAULTS, OptionsReply, decide_reply
from cloudgraft.wire.externalgrpc import ClientAge

WANTED = AutoscalingOptions(scale_down_unneeded_time=timedelta(minutes=3))
FINE = ClientAge(up_to_1_28=False, may_be_1_29_to_1_32=False, since_1_35=False, reads_startup_time=False)
OLD = replace(FINE, up_to_1_28=True)
MIDDLE = replace(FINE, may_be_1_29_to_1_32=True)
NEW = replace(FINE, since_1_35=True)
FUTURE = replace(NEW, reads_startup_time=True)


@pytest.mark.parametrize("age", [FINE, FUTURE])
def test_overrides_are_sent_complete_where_they_do_no_harm(age: ClientAge) -> None:
    reply = decide_reply(WANTED, FLAG_DEFAULTS, age)
    assert reply == OptionsReply(replace(FLAG_DEFAULTS, scale_down_unneeded_time=timedelta(minutes=3)))


@pytest.mark.parametrize(("age", "rule"), [(OLD, "B1"), (MIDDLE, "B2"), (NEW, "B3")])
def test_overrides_are_held_back_where_they_do_harm_unless_forced_and_both_is_said(age: ClientAge, rule: str) -> None:
    held_back = decide_reply(WANTED, FLAG_DEFAULTS, age)
    assert held_back.options is None
    assert rule in held_back.warning
    assert "forceOptions" in held_back.warning
    forced = decide_reply(WANTED, FLAG_DEFAULTS, age, force=True)
    assert forced.options is not None
    assert rule in forced.warning


def test_what_releases_1_29_to_1_32_assume_does_no_harm_where_it_is_wanted() -> None:
    """B2: a reply turns both options off there; a group that wants just that loses nothing."""
    wanted = replace(WANTED, ignore_daemon_sets_utilization=False)
    reply = decide_reply(wanted, FLAG_DEFAULTS, MIDDLE)
    assert reply == OptionsReply(replace(FLAG_DEFAULTS, scale_down_unneeded_time=timedelta(minutes=3)))
    held_back = decide_reply(replace(wanted, zero_or_max_node_scaling=True), FLAG_DEFAULTS, MIDDLE)
    assert held_back.options is None  # half of what is wanted would not arrive
    assert "B2" in held_back.warning


@pytest.mark.parametrize("age", [OLD, MIDDLE, FINE, NEW])
@pytest.mark.parametrize("wanted", [None, AutoscalingOptions(), replace(FLAG_DEFAULTS)])
def test_nothing_that_differs_is_nothing_to_send_and_nothing_to_say(
    age: ClientAge, wanted: AutoscalingOptions | None
) -> None:
    assert decide_reply(wanted, FLAG_DEFAULTS, age) == OptionsReply(None)


def test_gaps_in_the_clients_defaults_are_filled_from_the_flag_defaults() -> None:
    """R75."""
    reply = decide_reply(WANTED, AutoscalingOptions(scale_down_unready_time=timedelta(minutes=7)), FINE)
    assert reply.options is not None
    assert reply.options.scale_down_unready_time == timedelta(minutes=7)
    assert reply.options.max_node_provision_time == timedelta(minutes=15)
