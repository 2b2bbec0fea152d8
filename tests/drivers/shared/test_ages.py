"""How old something is by a mark on it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cloudgraft.drivers.common.listing import age_of, is_younger
from cloudgraft.drivers.hetzner.servers import machine_of
from cloudgraft.drivers.libvirt.domains import Marks, is_being_made
from cloudgraft.sdk.driver import MachineState

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("since", "is_young"),
    [(timedelta(0), True), (-timedelta(minutes=1), True), (2 * HOUR, False), (-2 * HOUR, False)],
)
def test_what_is_from_the_future_by_more_than_clocks_differ_is_old(since: timedelta, *, is_young: bool) -> None:
    moment = datetime.now(UTC) - since
    assert is_younger(moment, HOUR) is (age_of(moment) < HOUR) is is_young
    marks = Marks(name="m", pool="p", since=moment, tags={})
    assert is_being_made(marks, 5, 0, HOUR) is is_young


def test_a_server_of_hetzners_that_was_made_in_the_future_is_not_new() -> None:
    moment = (datetime.now(UTC) + HOUR).isoformat()
    server = {"id": 1, "name": "m", "status": "off", "created": moment, "labels": {}}
    assert machine_of(server).state is MachineState.STOPPED
