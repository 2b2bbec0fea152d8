"""The demo must not tell a story that did not happen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloudgraft.demo.checks import (
    StoryError,
    check_books,
    check_end,
    check_groups,
    check_recovery,
    check_story,
    check_target,
)
from cloudgraft.demo.decide import Shape
from cloudgraft.demo.events import Books, Event, GroupState, Kind
from cloudgraft.sdk import Instance, InstanceState

GROUP = GroupState(id="small", min_size=0, max_size=4, target=0, shape=Shape(milli_cpu=2000))
RUNNING = Instance(id="a", state=InstanceState.RUNNING)
DELETING = Instance(id="b", state=InstanceState.DELETING)


def event(kind: Kind, time: float = 1.0, group: str = "small") -> Event:
    return Event(kind=kind, time=time, headline="", group=group)


STORY = (
    event(Kind.WORK),
    event(Kind.SCALE_UP),
    event(Kind.REGISTERED),
    event(Kind.OUT_OF_STOCK, 2.0),
    event(Kind.FALLBACK, 2.0, "large"),
    event(Kind.REGISTERED, 3.0),
    event(Kind.CRASH, 3.5),
    event(Kind.RESTART, 3.5),
    event(Kind.REGISTERED, 3.7),
    event(Kind.SCALE_DOWN, 4.0),
    event(Kind.GONE, 5.0),
)


def test_the_whole_story_passes() -> None:
    check_story(STORY)


@pytest.mark.parametrize("missing", range(len(STORY)))
def test_a_story_without_one_of_its_chapters_fails(missing: int) -> None:
    with pytest.raises(StoryError):
        check_story(STORY[:missing] + STORY[missing + 1 :])


def test_a_fallback_in_a_later_loop_fails() -> None:
    """R39: a failed placeholder is the way to fall back within one loop."""
    late = [replace(one, time=2.5) if one.kind is Kind.FALLBACK else one for one in STORY]
    with pytest.raises(StoryError, match="later"):
        check_story(late)


def test_a_fallback_to_the_same_group_fails() -> None:
    same = [replace(one, group="small") if one.kind is Kind.FALLBACK else one for one in STORY]
    with pytest.raises(StoryError, match="asked again"):
        check_story(same)


def test_answers_in_order_pass() -> None:
    check_groups([replace(GROUP, target=1, instances=(RUNNING, DELETING))], deleted={"b", "gone"})


@pytest.mark.parametrize(
    ("group", "deleted", "reason"),
    [
        (replace(GROUP, target=5), (), "not within 0 and 4"),
        (replace(GROUP, target=-1), (), "not within 0 and 4"),
        (replace(GROUP, target=0, instances=(RUNNING,)), (), "lists 1 instances that stay"),
        (replace(GROUP, target=2, instances=(RUNNING, RUNNING)), (), "same id"),
        (replace(GROUP, target=1, instances=(RUNNING,)), ("a",), "was deleted"),
    ],
)
def test_answers_that_break_an_invariant_fail(group: GroupState, deleted: tuple[str, ...], reason: str) -> None:
    """T10, R33, R38."""
    with pytest.raises(StoryError, match=reason):
        check_groups([group], deleted)


def test_a_target_that_did_not_follow_fails() -> None:
    """R27, R45."""
    check_target("small", expected=2, actual=2)
    with pytest.raises(StoryError, match="should be 2 now, but it is 1"):
        check_target("small", expected=2, actual=1)


BOOKS = Books(machines=6, cost=5.77, lost=0, doubled=0)


def test_books_that_agree_pass() -> None:
    check_recovery(BOOKS)
    check_books(BOOKS, machines=6, cost=5.770000004)


@pytest.mark.parametrize(
    ("books", "machines", "cost", "reason"),
    [
        (replace(BOOKS, lost=1), 6, 5.77, "1 machines are lost and 0 are doubled"),
        (replace(BOOKS, doubled=2), 6, 5.77, "0 machines are lost and 2 are doubled"),
        (BOOKS, 5, 5.77, "seen 5 machines, but the cloud has made 6"),
        (BOOKS, 6, 5.75, r"counted a cost of 5.7500, but the cloud's ledger says 5.7700"),
    ],
)
def test_books_that_do_not_agree_fail(books: Books, machines: int, cost: float, reason: str) -> None:
    """Law 3: one machine per intent, and not a cent for any other."""
    with pytest.raises(StoryError, match=reason):
        check_books(books, machines=machines, cost=cost)


@pytest.mark.parametrize(
    ("group", "pods", "nodes", "machines", "reason"),
    [
        (GROUP, 1, 0, 0, "1 pods are left"),
        (GROUP, 0, 2, 0, "2 nodes are left"),
        (GROUP, 0, 0, 3, "3 machines are left"),
        (replace(GROUP, target=1), 0, 0, 0, "should be 0 now"),
        (replace(GROUP, instances=(DELETING,)), 0, 0, 0, "still lists 1 instances"),
    ],
)
def test_anything_left_at_night_fails(group: GroupState, pods: int, nodes: int, machines: int, reason: str) -> None:
    with pytest.raises(StoryError, match=reason):
        check_end([group], pods_left=pods, nodes_left=nodes, machines_left=machines)


def test_nothing_left_at_night_passes() -> None:
    check_end([GROUP], pods_left=0, nodes_left=0, machines_left=0)
