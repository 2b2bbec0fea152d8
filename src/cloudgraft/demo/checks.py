"""Checks what must hold in the demo, and fails loudly rather than show what did not happen."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cloudgraft.demo.events import Books, Event, GroupState, Kind, short_name
from cloudgraft.sdk import InstanceState
from cloudgraft.sdk.errors import InternalError

_LEAST_MONEY = 0.0001  # the tolerance for floats and the ledger's rounding


class StoryError(InternalError):
    """The demo did not go as it should: cloudgraft, or the demo, has a bug."""


def check_groups(groups: Sequence[GroupState], deleted: Collection[str]) -> None:
    """The invariants of every answer (T10): sizes in range, ids unique, and nothing deleted comes back (R33, R38)."""
    listed = [instance for group in groups for instance in group.instances]
    if len({instance.id for instance in listed}) != len(listed):
        raise StoryError("two instances have the same id")
    for group in groups:
        if not 0 <= group.target <= group.max_size:
            raise StoryError(f"the target of {group.id} is {group.target}, not within 0 and {group.max_size}")
        alive = sum(instance.state is not InstanceState.DELETING for instance in group.instances)
        if alive > group.target:
            raise StoryError(f"{group.id} lists {alive} instances that stay, but its target is {group.target}")
    back = [one.id for one in listed if one.id in deleted and one.state is not InstanceState.DELETING]
    if back:
        raise StoryError(f"{short_name(back[0])} was deleted, but is listed as if it were not")


def check_target(group: str, *, expected: int, actual: int) -> None:
    """A change of the target must show at once, and be exact (R27, R45, R53)."""
    if actual != expected:
        raise StoryError(f"the target of {group} should be {expected} now, but it is {actual}")


# The events that must have happened, in this order, each with the message if it did not.
_STEPS = (
    (Kind.WORK, "no work ever came"),
    (Kind.SCALE_UP, "no group was scaled up from zero"),
    (Kind.REGISTERED, "no node registered after the first scale-up"),
    (Kind.OUT_OF_STOCK, "the stock-out did not happen"),
    (Kind.FALLBACK, "there was no fallback to another group after the stock-out"),
    (Kind.REGISTERED, "no node registered after the fallback"),
    (Kind.CRASH, "cloudgraft did not die in the middle of a scale-up"),
    (Kind.RESTART, "cloudgraft did not come back after it died"),
    (Kind.REGISTERED, "no node registered after the crash"),
    (Kind.SCALE_DOWN, "no node was removed"),
    (Kind.GONE, "no machine went away"),
)


def check_story(events: Sequence[Event]) -> None:
    """All events must have happened, and the fallback in the loop that saw the stock-out."""
    rest = iter(events)
    for kind, missing in _STEPS:
        if not any(event.kind is kind for event in rest):
            raise StoryError(missing)
    short = next(event for event in events if event.kind is Kind.OUT_OF_STOCK)
    fallback = next(event for event in events if event.kind is Kind.FALLBACK)
    if fallback.time != short.time:
        raise StoryError("the fallback came later than in the loop that saw the stock-out")
    if fallback.group == short.group:
        raise StoryError(f"{short.group} was out of stock, and yet it was asked again")


def check_recovery(books: Books) -> None:
    """One machine per intent (law 3): after a crash none is lost, and none is duplicated."""
    if books.lost or books.doubled:
        raise StoryError(f"after the crash {books.lost} machines are lost and {books.doubled} are doubled")


def check_books(books: Books, *, machines: int, cost: float) -> None:
    """The cloud's ledger must agree with the client's count of machines and cost."""
    check_recovery(books)
    if books.machines != machines:
        raise StoryError(f"the client has seen {machines} machines, but the cloud has made {books.machines}")
    if abs(books.cost - cost) > _LEAST_MONEY:
        raise StoryError(f"the client has counted a cost of {cost:.4f}, but the cloud's ledger says {books.cost:.4f}")


def check_end(groups: Sequence[GroupState], *, pods_left: int, nodes_left: int, machines_left: int) -> None:
    """At night nothing may be left: no pod, no node, no machine, and every group is at its minimum."""
    for count, what in ((pods_left, "pods"), (nodes_left, "nodes"), (machines_left, "machines")):
        if count:
            raise StoryError(f"{count} {what} are left at the end of the day")
    for group in groups:
        check_target(group.id, expected=group.min_size, actual=group.target)
        if len(group.instances) != group.min_size:
            raise StoryError(f"{group.id} still lists {len(group.instances)} instances at the end of the day")
