"""The command: ``python -m e2e.chart``, or ``make e2e-chart``."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from e2e.build import CannotBuildError, build_all
from e2e.chart import bad_values, installed, objects, releases, rendered_values
from e2e.chart.configurations import Configurations
from e2e.chart.modes import Combination, combinations, covering, of_the_page
from e2e.command_line import FAILED, NOT_RUN, stop_in_order, tell
from e2e.control_plane import control_plane
from e2e.helm import Helm, HelmError
from e2e.modules import CONTROL_PLANES, NEWEST_CONTROL_PLANE
from e2e.processes import ProgramError
from scripts.render_manifests import stale

__all__ = ["main"]

Check = Callable[[], Iterator[str]]


def main() -> int:
    """Judges the chart. The exit code is 0 when all is well, 1 when something is not, 3 when helm cannot be built."""
    stop_in_order()
    directory = Path(tempfile.mkdtemp(prefix="cloudgraft-chart-"))
    try:
        helm = Helm.built(tell)
        programs = build_all(tell, CONTROL_PLANES[NEWEST_CONTROL_PLANE])
        cases = list(combinations())
        results = [
            _judge("the manifests of deploy/ are what the chart renders", lambda: map(str, stale(helm))),
            _judge(f"{len(cases)} combinations of modes", lambda: _rendered(helm, cases, directory)),
            _judge("helm lint", lambda: _linted(helm)),
            _judge("the values of the page", lambda: _rendered(helm, [of_the_page()], directory)),
            _judge(f"{len(bad_values.BAD_VALUES)} bad values are refused", lambda: bad_values.problems(helm)),
            _judge(
                "`cloudgraft deploy render` for every configuration", lambda: rendered_values.problems(helm, directory)
            ),
            _judge("rights and flags of the autoscaler's releases", lambda: releases.problems(helm)),
        ]
        with control_plane(programs, directory / "plane") as plane:
            installed.define_kinds(plane, directory)
            results.append(
                _judge("install, upgrade, rollback, uninstall", lambda: installed.play(helm, plane, directory, tell))
            )
    except CannotBuildError as error:
        tell(f"not run: {error}")
        return NOT_RUN
    if not all(results):
        tell(f"logs: {directory}")
        return FAILED
    shutil.rmtree(directory)
    return 0


def _judge(what: str, check: Check) -> bool:
    begin = time.monotonic()
    try:
        problems = list(check())
    except (HelmError, ProgramError, AssertionError) as error:
        problems = [str(error)]
    for problem in problems:
        print(f"{what}: {problem}")
    tell(f"{what}: {'failed' if problems else 'passed'} ({time.monotonic() - begin:.0f} s)")
    return not problems


def _linted(helm: Helm) -> Iterator[str]:
    for case in (of_the_page(), *covering()):
        try:
            helm.lint(case.values)
        except HelmError as error:
            yield f"{case.name}: {error}"


def _rendered(helm: Helm, cases: list[Combination], directory: Path) -> Iterator[str]:
    configurations = Configurations(Path(tempfile.mkdtemp(dir=directory)))
    with ThreadPoolExecutor(2) as pool:
        for case, output in zip(cases, pool.map(lambda one: _output(helm, one), cases), strict=True):
            if isinstance(output, HelmError):
                if not case.refusal or case.refusal not in str(output):
                    yield f"{case.name}: {output}"
                continue
            if case.refusal:
                yield f"{case.name}: is not refused"
                continue
            made = [one for one in yaml.safe_load_all(output) if one]
            has_certificates = case.values.get("certificates", {}).get("mode") != "existing"
            for problem in objects.problems(made, has_certificates=has_certificates):
                yield f"{case.name}: {problem}"
            for problem in configurations.problems(made):
                yield f"{case.name}: {problem}"


def _output(helm: Helm, case: Combination) -> str | HelmError:
    try:
        return helm.template_of(case.values)
    except HelmError as error:
        return error


if __name__ == "__main__":
    sys.exit(main())
