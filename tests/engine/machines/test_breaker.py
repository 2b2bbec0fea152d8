"""What is reported of many machines at once is held back until it lasts, or an operator accepts it."""

from __future__ import annotations

from cloudgraft.engine.machines.breaker import Breaker, BreakerLimit, Turn

LIMIT = BreakerLimit(share=0.2, few=2, hold=60.0, looks=3)
FOREVER = BreakerLimit(share=0.2, few=1)


def names(count: int, first: int = 0) -> frozenset[str]:
    return frozenset(f"m-{number}" for number in range(first, first + count))


def test_a_few_are_always_believed_and_so_is_a_small_share() -> None:
    assert Breaker().look(names(2), 2, LIMIT) is Turn.NONE
    assert Breaker().look(names(20), 100, LIMIT) is Turn.NONE
    assert Breaker().look(names(3), 5, LIMIT) is Turn.OPENED
    assert Breaker().look(names(21), 100, LIMIT) is Turn.OPENED


def looked(breaker: Breaker, *passed: float) -> list[Turn]:
    return [breaker.look(names(5), 5, LIMIT, passed=seconds) for seconds in passed]


def test_it_needs_both_the_time_and_the_looks() -> None:
    quick, slow = Breaker(), Breaker()
    assert looked(quick, 0.0, 1.0, 1.0, 57.0) == [Turn.OPENED] + [Turn.NONE] * 3
    assert looked(slow, 0.0, 3600.0) == [Turn.OPENED, Turn.NONE]
    assert (quick.is_open, slow.is_open) == (True, True)
    assert (looked(quick, 1.0), looked(slow, 1.0)) == ([Turn.EXPIRED], [Turn.EXPIRED])
    assert (quick.is_open, quick.accepted) == (False, names(5))


def test_it_closes_when_few_enough_are_affected_and_begins_from_the_start() -> None:
    breaker = Breaker()
    looked(breaker, 0.0, 50.0)
    assert breaker.look(set(), 5, LIMIT, passed=5.0) is Turn.CLOSED
    assert looked(breaker, 5.0, 5.0, 10.0) == [Turn.OPENED, Turn.NONE, Turn.NONE]


def test_what_is_believed_of_some_is_not_believed_of_others_that_follow() -> None:
    breaker = Breaker()
    breaker.look(names(5), 20, LIMIT)
    breaker.accept(names(5))
    assert breaker.look(names(5), 20, LIMIT) is Turn.NONE
    assert breaker.look(names(20), 20, LIMIT) is Turn.OPENED
    assert (breaker.affected, breaker.accepted) == (names(15, first=5), names(5))


def test_those_that_follow_before_an_operators_word_counts_are_held_back() -> None:
    breaker = Breaker()
    breaker.look(names(15), 20, LIMIT)
    breaker.accept(names(5))
    assert (breaker.is_open, breaker.affected, breaker.accepted) == (True, names(10, first=5), names(5))


def test_whoever_comes_back_is_held_back_like_others_the_next_time() -> None:
    breaker = Breaker()
    breaker.look(names(5), 5, LIMIT)
    breaker.accept(names(5))
    breaker.look(set(), 5, LIMIT)
    assert breaker.look(names(5), 5, LIMIT) is Turn.OPENED


def test_without_a_time_only_an_operator_ends_it() -> None:
    breaker = Breaker()
    turns = {breaker.look(names(3), 5, FOREVER, passed=3600.0) for _ in range(100)}
    assert turns == {Turn.OPENED, Turn.NONE}
    assert breaker.is_open
