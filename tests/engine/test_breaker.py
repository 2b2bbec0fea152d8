"""What is reported of many machines at once is held back until it lasts, or an operator accepts it."""

from __future__ import annotations

from cloudgraft.engine.breaker import Breaker, BreakerLimit, Turn

LIMIT = BreakerLimit(share=0.2, few=2, hold=60.0, looks=3)
FOREVER = BreakerLimit(share=0.2, few=1)


def names(count: int, first: int = 0) -> frozenset[str]:
    return frozenset(f"m-{number}" for number in range(first, first + count))


def test_a_few_are_always_believed_and_so_is_a_small_share() -> None:
    assert Breaker().look(names(2), 2, 0.0, LIMIT) is Turn.NONE
    assert Breaker().look(names(20), 100, 0.0, LIMIT) is Turn.NONE
    assert Breaker().look(names(3), 5, 0.0, LIMIT) is Turn.OPENED
    assert Breaker().look(names(21), 100, 0.0, LIMIT) is Turn.OPENED


def test_it_needs_both_the_time_and_the_looks() -> None:
    quick, slow = Breaker(), Breaker()
    assert [quick.look(names(5), 5, at, LIMIT) for at in (0.0, 1.0, 2.0, 59.0)] == [Turn.OPENED] + [Turn.NONE] * 3
    assert [slow.look(names(5), 5, at, LIMIT) for at in (0.0, 3600.0)] == [Turn.OPENED, Turn.NONE]
    assert (quick.is_open, slow.is_open) == (True, True)
    assert quick.look(names(5), 5, 60.0, LIMIT) is Turn.EXPIRED
    assert slow.look(names(5), 5, 3601.0, LIMIT) is Turn.EXPIRED
    assert (quick.is_open, quick.accepted) == (False, names(5))


def test_it_closes_when_few_enough_are_affected_and_begins_from_the_start() -> None:
    breaker = Breaker()
    breaker.look(names(5), 5, 0.0, LIMIT)
    assert breaker.look(set(), 5, 50.0, LIMIT) is Turn.CLOSED
    assert [breaker.look(names(5), 5, at, LIMIT) for at in (55.0, 60.0, 70.0)] == [Turn.OPENED, Turn.NONE, Turn.NONE]


def test_what_is_believed_of_some_is_not_believed_of_others_that_follow() -> None:
    breaker = Breaker()
    breaker.look(names(5), 20, 0.0, LIMIT)
    breaker.accept()
    assert breaker.look(names(5), 20, 1.0, LIMIT) is Turn.NONE
    assert breaker.look(names(20), 20, 2.0, LIMIT) is Turn.OPENED
    assert (breaker.affected, breaker.accepted) == (names(15, first=5), names(5))


def test_whoever_comes_back_is_held_back_like_others_the_next_time() -> None:
    breaker = Breaker()
    breaker.look(names(5), 5, 0.0, LIMIT)
    breaker.accept()
    breaker.look(set(), 5, 1.0, LIMIT)
    assert breaker.look(names(5), 5, 2.0, LIMIT) is Turn.OPENED


def test_without_a_time_only_an_operator_ends_it() -> None:
    breaker = Breaker()
    turns = {breaker.look(names(3), 5, at * 3600.0, FOREVER) for at in range(100)}
    assert turns == {Turn.OPENED, Turn.NONE}
    assert breaker.is_open
