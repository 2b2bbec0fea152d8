"""Many lives, each with its own crash, several at a time."""

from __future__ import annotations

import itertools
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

from cloudgraft.sdk.driver import Idempotency
from tests.crash.life import RECOVERY, Plan, Stage, lived
from tests.crash.points import Kind, Point, When
from tests.crash.script import SCRIPT
from tests.crash.setting import Variant

VARIANTS = (
    Variant(),
    Variant(idempotency=Idempotency.UNIQUE_NAME, list_lag=0.06),
    Variant(idempotency=Idempotency.NONE, list_lag=0.06),
)
_PLACES = {phase.name: place for place, phase in enumerate(SCRIPT)}


@dataclass(frozen=True, slots=True)
class Result:
    """How one life went."""

    plan: Plan
    seconds: float
    crashes: int = 0
    was_exact: bool = True  # False: the moment did not come, and the process was killed at the end of the phase
    failure: str = ""
    directory: Path | None = None  # kept after a failure


class Campaign:
    """Lives in one kind of cloud. The script is gone through once without a crash; a crash in one of its phases then
    begins where that phase began.
    """

    def __init__(self, directory: Path, variant: Variant) -> None:
        """Goes through the script, and counts the moments at which it could have crashed."""
        self.variant = variant
        self.points: list[Point] = []
        self._directory = directory
        self._numbers = itertools.count()
        self._stages = [Stage()]
        for place, phase in enumerate(SCRIPT):
            life = lived(directory / f"stage-{place}", Plan(variant=variant), [phase], self._stages[place])
            self._stages.append(life.stage)
            kinds = sorted(life.passed.items())
            self.points += [replace(kind, count=n) for kind, times in kinds for n in range(1, times + 1)]

    def run(self, plans: Sequence[Plan], at_a_time: int, on_result: Callable[[Result], None]) -> list[Result]:
        """Lives all of these lives."""
        results = []
        with ThreadPoolExecutor(at_a_time) as pool:
            for job in as_completed([pool.submit(self._live, plan) for plan in plans]):
                results.append(job.result())
                on_result(results[-1])
        return results

    def _live(self, plan: Plan) -> Result:
        began = time.monotonic()
        directory = self._directory / f"life-{next(self._numbers)}"
        first = _PLACES[plan.point.phase] if plan.point else 0
        try:
            life = lived(directory, plan, SCRIPT[first:], self._stages[first])
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told with its plan
            message = f"{type(error).__name__}: {error}"
            return Result(plan, time.monotonic() - began, failure=message, directory=directory)
        shutil.rmtree(directory)
        return Result(plan, time.monotonic() - began, crashes=life.crashes, was_exact=life.was_exact)


def sample(points: Sequence[Point], count: int, seed: int) -> list[Point]:
    """Some of them: at least one of each kind, the others evenly over the whole life; another seed, other ones."""
    dice = random.Random(seed)
    kinds = sorted({(point.kind, point.when) for point in points})
    chosen = {dice.choice([point for point in points if (point.kind, point.when) == kind]) for kind in kinds}
    step = max(1, len(points) // max(1, count - len(chosen)))
    chosen.update(points[dice.randrange(step) :: step])
    return sorted(chosen, key=points.index)


def second_crashes(seed: int) -> Iterator[Point]:
    """Moments of the recovery after a crash, without end."""
    dice = random.Random(seed)
    kinds = (Kind.WRITE, Kind.WRITE, Kind.LIST, Kind.CREATE, Kind.DELETE)
    while True:
        yield Point(RECOVERY, dice.choice(kinds).value, dice.choice(list(When)).value, dice.randint(1, 3))
