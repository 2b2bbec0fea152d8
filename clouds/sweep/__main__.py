"""The command: ``python -m clouds.sweep``."""

from __future__ import annotations

import dataclasses
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from clouds.judge import Case, Judge
from clouds.judges import judges
from clouds.sweep.life import RECOVERY, Life, Plan, points_of
from clouds.sweep.requests_trapped import DRIVERS, Finer
from e2e.command_line import FAILED, NOT_RUN, stop_in_order, tell
from tests.crash.points import Kind, Point, When

__all__ = ["main"]

_SECONDS_CRASHES = (Kind.WRITE, Kind.LIST, Kind.CREATE, Kind.DELETE, Finer.REQUEST)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", default="ec2,libvirt", show_default=True, metavar="NAME,NAME", help="In which clouds.")
@click.option("--at-a-time", default=2, show_default=True, help="Lives that are lived at once.")
@click.option("--every", default=1, show_default=True, help="Only every so many of the moments.")
@click.option("--most", default=6, show_default=True, help="Moments of one kind in one phase, at most.")
@click.option("--keep", is_flag=True, help="Keep all logs, also when everything passes.")
def main(*, only: str, at_a_time: int, every: int, most: int, keep: bool) -> None:
    """Kill -9 an engine around every commit, call and request, while it works in a real cloud.

    After each kill the engine is started again, and in the end the cloud itself is asked: one machine for each that was
    wanted, none twice, and nothing left. Every tenth life is killed once more while it recovers. The exit codes are
    those of `python -m clouds`.

    \b
    Examples: python -m clouds.sweep
              python -m clouds.sweep --only ec2 --every 10
    """  # noqa: D301 - click wants the character, not the two
    stop_in_order()
    directory = Path(tempfile.mkdtemp(prefix="cloudgraft-sweep-"))
    codes = [_swept(name, directory / name, at_a_time, every, most) for name in only.split(",")]
    if keep or FAILED in codes:
        tell(f"logs: {directory}")
    else:
        shutil.rmtree(directory)
    sys.exit(FAILED if FAILED in codes else max(codes))


def _swept(name: str, directory: Path, at_a_time: int, every: int, most: int) -> int:
    judge: Judge | None = judges().get(name)
    if judge is None or judge.driver not in DRIVERS:
        raise click.UsageError(f"there is no sweep in {name}; there is one in: {', '.join(DRIVERS)}")
    if why := judge.missing():
        tell(f"{name} is not run: {why}")
        return NOT_RUN
    directory.mkdir()
    began = time.monotonic()
    with judge.open(directory, tell) as case:
        assert isinstance(case, Case)  # a provider has no engine to kill
        first = Life(case, directory / "life-0", Plan(number=0))
        first.live()
        plans = _plans(points_of(first.passed, most)[::every])
        tell(f"{name}: {len(plans)} lives to live, each with a kill of its own")
        with ThreadPoolExecutor(at_a_time) as pool:
            results = list(pool.map(lambda plan: _lived(name, case, directory, plan), plans))
        left = list(case.alive())
    failures = [failure for _, failure in results if failure] + [f"left in the cloud: {one}" for one in left]
    kills = sum(count for count, _ in results)
    seconds = time.monotonic() - began
    print(f"{name}, {case.judged_by}: {kills} kills in {len(plans)} lives, {len(failures)} failures, {seconds:.0f} s")
    for failure in failures:
        print(f"FAILED {failure}")
    return FAILED if failures else 0


def _plans(points: Sequence[Point]) -> list[Plan]:
    plans = [Plan(number=number, point=point) for number, point in enumerate(points, start=1)]
    for place, plan in enumerate(plans[::10]):
        kind = _SECONDS_CRASHES[place % len(_SECONDS_CRASHES)].value
        second = Point(RECOVERY, kind, When.AFTER.value if place % 2 else When.BEFORE.value, 1 + place % 3)
        plans[place * 10] = dataclasses.replace(plan, second=second)
    return plans


def _lived(name: str, case: Case, directory: Path, plan: Plan) -> tuple[int, str]:
    life = Life(case, directory / f"life-{plan.number}", plan)
    try:
        life.live()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told with its plan
        tell(f"{name}: {plan}: failed")
        return life.kills, f"{plan}: {type(error).__name__}: {error}"
    return life.kills, ""


if __name__ == "__main__":
    main()
