"""How the simulated kubelet paces itself."""

from __future__ import annotations

from cloudgraft.kube.attempts import Attempts


def _pause(attempts: Attempts, now: float) -> float:
    """Seconds until the thing is due."""
    return next(wait for wait in (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 1000.0) if attempts.is_due("a", now + wait))


def test_what_was_never_tried_is_due() -> None:
    assert Attempts().is_due("a", 5.0)


def test_what_was_done_is_not_done_again_before_its_effect_can_be_seen() -> None:
    attempts = Attempts()
    attempts.succeeded("a", 5.0)
    assert _pause(attempts, 5.0) == 1.0
    assert attempts.is_due("b", 5.0)


def test_the_pauses_after_failures_double_up_to_half_a_minute() -> None:
    attempts = Attempts()
    pauses = []
    for _ in range(8):
        attempts.failed("a", 5.0)
        pauses.append(_pause(attempts, 5.0))
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_a_success_ends_the_row_of_failures() -> None:
    attempts = Attempts()
    assert [attempts.failed("a", 5.0), attempts.failed("a", 5.0)] == [1, 2]
    attempts.succeeded("a", 5.0)
    assert attempts.failed("a", 5.0) == 1


def test_what_is_not_needed_any_more_is_forgotten() -> None:
    attempts = Attempts()
    attempts.failed("a", 5.0)
    attempts.failed("b", 5.0)
    attempts.keep_only(["b", "c"])
    assert (attempts.is_due("a", 5.0), attempts.is_due("b", 5.0)) == (True, False)
