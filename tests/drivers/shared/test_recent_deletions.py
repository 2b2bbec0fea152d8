"""What a cloud has agreed to delete is shown so, for a while."""

from __future__ import annotations

from datetime import timedelta

from cloudgraft.drivers.common.listing import RecentDeletions
from cloudgraft.sdk.driver import Machine, MachineState

ONE = Machine(name="m-1", machine_id="1", state=MachineState.RUNNING, reason="so the cloud says", failure="deadline")
TWO = Machine(name="m-2", machine_id="2", state=MachineState.PENDING)


def test_a_machine_whose_deletion_was_accepted_is_shown_as_deleting_and_no_other() -> None:
    recent = RecentDeletions(timedelta(hours=1))
    assert recent.shown(ONE) == ONE
    recent.add("1")
    assert recent.shown(ONE) == Machine(name="m-1", machine_id="1", state=MachineState.DELETING)
    assert recent.shown(TWO) == TWO


def test_after_a_while_the_cloud_is_believed_again() -> None:
    """Else a deletion that the cloud forgot would never be asked for again."""
    recent = RecentDeletions(timedelta(0))
    recent.add("1")
    recent.add("2")
    assert [recent.shown(ONE), recent.shown(TWO)] == [ONE, TWO]
