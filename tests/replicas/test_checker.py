"""The history checker itself, on histories that are and are not explained by some order of the changes."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from tests.replicas.checker import check
from tests.replicas.history import Failover, History, Kind, Operation

_NUMBERS = itertools.count()


def call(begin: float, end: float, kind: str, amount: int = 0, names: str = "") -> Operation:
    return Operation(
        number=next(_NUMBERS),
        group="g",
        kind=Kind(kind),
        begin=begin,
        end=end,
        amount=amount,
        names=frozenset(names.split()),
    )


def is_explained(*operations: Operation, failover: Failover | None = None) -> bool:
    return not check(History(list(operations), [failover] if failover else []))


LOST = math.inf

GOOD = {
    "nothing": [],
    "one after the other": [call(0, 1, "increase", 2), call(2, 3, "target", 2), call(4, 5, "instances", names="a b")],
    "a read during a change sees it": [call(0, 5, "increase", 2), call(1, 2, "target", 2)],
    "a read during a change does not see it": [call(0, 5, "increase", 2), call(1, 2, "target", 0)],
    "two reads during a change see it come": [
        call(0, 9, "increase", 1),
        call(1, 2, "target", 0),
        call(3, 4, "target", 1),
    ],
    "a long read is from before a change that ended during it": [
        call(0, 9, "target", 0),
        call(1, 2, "increase", 1),
        call(3, 4, "target", 1),
    ],
    "a lost change happened": [call(0, LOST, "increase", 2), call(5, 6, "target", 2)],
    "a lost change did not happen": [call(0, LOST, "increase", 2), call(5, 6, "target", 0)],
    "a lost change happened late": [
        call(0, LOST, "increase", 2),
        call(5, 6, "target", 0),
        call(7, 8, "target", 2),
    ],
    "a lost change before a read that a later change has outrun": [
        call(0, LOST, "increase", 2),
        call(1, 9, "target", 2),
        call(2, 3, "increase", 1),
        call(10, 11, "target", 3),
    ],
    "a deletion that was repeated": [
        call(0, 1, "increase", 2),
        call(2, 3, "instances", names="a b"),
        call(4, LOST, "delete", names="a"),
        call(5, 6, "delete", names="a"),
        call(7, 8, "instances", names="b"),
        call(9, 10, "absent", names="a"),
    ],
    "a decrease removes what the server chooses": [
        call(0, 1, "increase", 3),
        call(2, 3, "instances", names="a b c"),
        call(4, 5, "decrease", 2),
        call(6, 7, "target", 2),
        call(8, 9, "instances", names="a c"),
    ],
    "a deletion of what a decrease had removed before it was listed": [
        call(0, 1, "increase", 2),
        call(2, 3, "decrease", 1),
        call(4, 5, "target", 1),
        call(6, 7, "delete", names="a"),
        call(8, 9, "target", 1),
    ],
    "a deletion of what a decrease had removed": [
        call(0, 1, "increase", 2),
        call(2, 3, "instances", names="a b"),
        call(4, 5, "decrease", 1),
        call(6, 7, "delete", names="a"),
        call(8, 9, "target", 1),
    ],
    "lists that end in the other order": [
        call(0, 1, "increase", 2),
        call(2, 20, "instances", names="a c"),
        call(3, 4, "instances", names="a b"),
        call(5, 6, "delete", names="b"),
        call(7, 8, "increase", 1),
    ],
}
BAD = {
    "an acknowledged change is not seen": [call(0, 1, "increase", 2), call(2, 3, "target", 0)],
    "a change is seen before it was asked for": [call(0, 1, "target", 2), call(2, 3, "increase", 2)],
    "a change is seen, and then not": [
        call(0, LOST, "increase", 1),
        call(1, 2, "target", 1),
        call(3, 4, "target", 0),
    ],
    "a change counts twice": [call(0, LOST, "increase", 1), call(1, 2, "target", 2)],
    "two reads during a change see it come and go": [
        call(0, 9, "increase", 1),
        call(1, 2, "target", 1),
        call(3, 4, "target", 0),
    ],
    "target and list disagree": [call(0, 1, "increase", 2), call(2, 3, "instances", names="a")],
    "a machine that was deleted comes back": [
        call(0, 1, "increase", 2),
        call(2, 3, "instances", names="a b"),
        call(4, 5, "delete", names="a"),
        call(6, 7, "increase", 1),
        call(8, 9, "instances", names="a b"),
    ],
    "a machine is exchanged": [
        call(0, 1, "increase", 1),
        call(2, 3, "instances", names="a"),
        call(4, 5, "instances", names="b"),
    ],
    "one that is ours is denied": [
        call(0, 1, "increase", 1),
        call(2, 3, "instances", names="a"),
        call(4, 5, "absent", names="a"),
    ],
    "a deletion of what was removed already makes up for an increase": [
        call(0, 1, "increase", 1),
        call(2, 3, "instances", names="a"),
        call(4, 5, "decrease", 1),
        call(6, 7, "target", 0),
        call(8, 9, "delete", names="a"),
        call(10, 11, "increase", 1),
        call(12, 13, "target", 0),
    ],
    "a decrease removes more than asked": [
        call(0, 1, "increase", 3),
        call(2, 3, "decrease", 1),
        call(4, 5, "target", 1),
    ],
    "a stale read after a change was read by another": [
        call(0, 9, "increase", 1),
        call(1, 2, "instances", names="a"),
        call(3, 4, "instances", names=""),
    ],
}


@pytest.mark.parametrize("name", GOOD)
def test_a_history_that_some_order_explains_passes(name: str) -> None:
    assert is_explained(*GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_a_history_that_no_order_explains_is_found(name: str) -> None:
    assert not is_explained(*BAD[name])


def test_groups_are_checked_alone_and_the_violation_names_the_call() -> None:
    good, bad = call(0, 1, "target", 0), call(2, 3, "target", 7)
    (violation,) = check(History([good, bad, *GOOD["one after the other"][:0]]))
    assert violation.operation is bad
    assert "target 7" in str(violation)


def test_a_failover_may_lose_the_last_changes_and_no_others() -> None:
    early, late = call(0, 1, "increase", 1), call(4, 5, "increase", 2)
    failover = Failover(kept=3, at=8, settled=10)
    for amount, is_fine in ((1, True), (3, True), (0, False), (2, False)):
        assert is_explained(early, late, call(11, 12, "target", amount), failover=failover) is is_fine
    assert not is_explained(early, late, call(6, 7, "target", 1), failover=failover)  # not before it


def test_calls_that_end_between_the_last_kept_commit_and_the_failover_are_no_trouble() -> None:
    failover = Failover(kept=3, at=8, settled=10)
    calls = [call(2, 5, "increase", 1), call(2, 6, "increase", 2), call(4, 7, "target", 3), call(7, 11, "increase", 4)]
    for amount in (0, 1, 2, 3, 4, 7):
        assert is_explained(*calls, call(12, 13, "target", amount), failover=failover)
    assert not is_explained(*calls, call(12, 13, "target", 8), failover=failover)


def test_a_deletion_that_a_failover_lost_may_take_effect_later() -> None:
    before = [call(0, 1, "increase", 2), call(1, 2, "instances", names="a b"), call(4, 5, "delete", names="a")]
    failover = Failover(kept=3, at=8, settled=10)
    back = [*before, call(11, 12, "instances", names="a b")]
    assert is_explained(*back, failover=failover)
    assert is_explained(*back, call(13, 14, "instances", names="b"), failover=failover)
    assert not is_explained(*back, call(13, 14, "instances", names="a"), failover=failover)


@pytest.mark.parametrize("seed", range(20))
def test_histories_of_a_correct_server_pass(seed: int) -> None:
    assert is_explained(*_simulated(random.Random(seed), 200))


@pytest.mark.parametrize("seed", range(10))
def test_a_changed_answer_of_a_correct_server_is_found(seed: int) -> None:
    dice = random.Random(seed)
    operations = _simulated(dice, 40)
    reads = [index for index, operation in enumerate(operations) if operation.kind is Kind.TARGET]
    index = dice.choice(reads)
    wrong = Operation(
        number=operations[index].number,
        group="g",
        kind=Kind.TARGET,
        begin=operations[index].begin,
        end=operations[index].end,
        amount=operations[index].amount + 100,
    )
    assert not is_explained(*operations[:index], wrong, *operations[index + 1 :])


def _simulated(dice: random.Random, count: int) -> list[Operation]:
    """Calls of several clients to a server that does each at one moment; some answers are lost."""
    machines: list[str] = []
    operations, now = [], 0.0
    names = (f"m{number}" for number in itertools.count())
    for _ in range(count):
        now += dice.random()
        begin, end = now - 1.5 * dice.random(), now + 1.5 * dice.random()  # about three at a time
        kind = dice.choice(["increase", "delete", "target", "instances"])
        is_lost = dice.random() < 0.05
        if kind == "increase" and len(machines) < 10:
            operations.append(call(begin, math.inf if is_lost else end, kind, 1))
            machines += [next(names)] * (not is_lost or dice.random() < 0.5)
        elif kind == "delete" and machines:
            victim = dice.choice(machines)
            operations.append(call(begin, end, kind, names=victim))
            machines.remove(victim)
        elif kind == "target":
            operations.append(call(begin, end, kind, len(machines)))
        elif kind == "instances":
            operations.append(call(begin, end, kind, names=" ".join(machines)))
    return operations
