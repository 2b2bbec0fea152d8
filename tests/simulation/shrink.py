"""Makes a plan that fails smaller, as long as it fails in the same way (delta debugging)."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.plan import Plan, Step


def shrunk(plan: Plan, fails: Callable[[Plan], bool]) -> list[Step]:
    """The smallest plan found that still fails: first steps are dropped, many at a time, then made shorter."""
    steps = _dropped(list(plan), fails)
    for number, step in enumerate(steps):
        while (less := step.shorter()) is not None and fails([*steps[:number], less, *steps[number + 1 :]]):
            step = steps[number] = less  # noqa: PLW2901 - and shorter still
    return steps


def _dropped(steps: list[Step], fails: Callable[[Plan], bool]) -> list[Step]:
    size = len(steps)
    while size:
        start = 0
        while start < len(steps):
            fewer = [*steps[:start], *steps[start + size :]]
            if fails(fewer):
                steps = fewer
            else:
                start += size
        size //= 2
    return steps
