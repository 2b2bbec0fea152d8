"""Runs simulations: ``python -m tests.simulation --seeds 1-100 --jobs 2``."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.determinism import insist_on_hash_seed

if __name__ == "__main__":
    insist_on_hash_seed()

from tests.simulation import faults_cloud, faults_server  # noqa: E402
from tests.simulation.plan import draw_plan, parse_plan, show_plan  # noqa: E402
from tests.simulation.setting import draw_setting  # noqa: E402
from tests.simulation.world import run  # noqa: E402

assert faults_cloud, faults_server


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--plan", default=None)
    parser.add_argument("--without", default="")
    parser.add_argument("--ignore", default="")
    parser.add_argument("--trace", action="store_true")
    given = parser.parse_args()
    setting = draw_setting(given.seed)
    plan = draw_plan(setting, given.hours, without=given.without.split(",")) if given.plan is None else parse_plan(given.plan)
    began = time.perf_counter()
    print(show_plan(plan))
    result = run(setting, plan, given.hours, ignored=frozenset(given.ignore.split(",")), echo=print if given.trace else None)
    took = time.perf_counter() - began
    print(result.digest[:16], result.steps, "steps", result.lines, "lines", f"{took:.2f} s", result.violation)
    return 1 if result.violation else 0


if __name__ == "__main__":
    sys.exit(main())
