"""Parts of the rollover judge that need no programs: Kubernetes' rolling update, and the locked requirements."""

from __future__ import annotations

from e2e.rollover.previous_release import requirement_lines
from e2e.rollover.rolling_update import Step, Strategy, next_step

ROLLING = Strategy(replicas=2, max_surge=0, max_unavailable=1)
AT_ONCE = Strategy(replicas=2, max_surge=0, max_unavailable=2)


def test_an_update_ends_the_leader_once_a_new_pod_is_ready() -> None:
    assert next_step(ROLLING, [True, False], []) == Step(end=(1,))
    assert next_step(ROLLING, [True], []) == Step(start=1)
    assert next_step(ROLLING, [True], [False]) == Step()
    assert next_step(ROLLING, [True], [True]) == Step(end=(0,))
    assert next_step(ROLLING, [], [True]) == Step(start=1)
    assert next_step(ROLLING, [], [True, False]) == Step()


def test_pods_that_are_never_ready_do_not_replace_the_leader() -> None:
    """As those of release 0.1.0 that wait: the way back needs another strategy."""
    assert next_step(ROLLING, [True], [False]) == Step()
    assert next_step(AT_ONCE, [True, False], []) == Step(end=(1, 0))
    assert next_step(AT_ONCE, [], []) == Step(start=2)


def test_three_replicas_end_all_that_wait_first() -> None:
    three = Strategy(replicas=3, max_surge=0, max_unavailable=2)
    assert next_step(three, [True, False, False], []) == Step(end=(1, 2))
    assert next_step(three, [True], []) == Step(start=2)
    assert next_step(three, [True], [False, False]) == Step()
    assert next_step(three, [True], [True, False]) == Step(end=(0,))


def test_only_the_wanted_requirements_are_taken_with_their_hashes() -> None:
    text = "a==1 \\\n    --hash=sha256:1\n    # via b\nb==2 \\\n    --hash=sha256:2 \\\n    --hash=sha256:3\n# end\n"
    assert requirement_lines(text, ["b"]) == "b==2 \\\n    --hash=sha256:2 \\\n    --hash=sha256:3\n"
