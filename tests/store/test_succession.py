"""Which of the waiting replicas is about to lead, by what the lease says of its holder."""

from __future__ import annotations

from cloudgraft.store.lease.succession import LONGEST, Succession, named_after, rollout_of

OURS = f"{named_after('process 1 on cloudgraft-b-1', 'b')} (0123abcd)"
OTHERS = f"{named_after('process 1 on cloudgraft-a-1', 'a')} (0123abcd)"
OLD = "process 1 on cloudgraft-6f5-1 (0123abcd)"  # as releases before 0.2.0 write it


def test_a_holder_is_read_back() -> None:
    assert [rollout_of(holder) for holder in (OURS, OTHERS, OLD)] == ["b", "a", ""]
    assert named_after("process 1 on host", "") == "process 1 on host"


def test_a_replica_of_a_new_rollout_waits_for_a_leader_of_another() -> None:
    for leader in (OTHERS, OLD):
        waiting = Succession("b")
        assert not waiting.is_in_line(0.0)
        waiting.saw(leader, 10.0)
        assert waiting.is_in_line(11.0)
        waiting.saw("", 12.0)  # the leader has let go
        assert waiting.is_in_line(13.0)


def test_it_leaves_the_line_once_one_of_its_rollout_leads() -> None:
    waiting = Succession("b")
    waiting.saw(OTHERS, 10.0)
    waiting.saw(OURS, 11.0)
    assert not waiting.is_in_line(12.0)
    waiting.saw(OTHERS, 13.0)  # its own rollout is the one that is being replaced
    assert not waiting.is_in_line(14.0)


def test_a_rollout_that_stops_halfway_does_not_leave_two_ready_replicas() -> None:
    waiting = Succession("b")
    waiting.saw(OTHERS, 10.0)
    waiting.saw(OTHERS, 20.0)
    assert waiting.is_in_line(9.0 + LONGEST)
    assert not waiting.is_in_line(10.0 + LONGEST)


def test_without_a_rollout_no_replica_is_in_line() -> None:
    waiting = Succession()
    for leader in (OTHERS, OLD, ""):
        waiting.saw(leader, 10.0)
    assert not waiting.is_in_line(11.0)


def test_only_the_first_in_line_is_next() -> None:
    waiting = Succession("b")
    waiting.saw(OTHERS, 10.0)
    assert not waiting.is_next(11.0)
    waiting.is_first = True
    assert waiting.is_next(11.0)
