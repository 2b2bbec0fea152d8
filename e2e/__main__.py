"""The command: ``python -m e2e``, or ``make e2e``."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from e2e.build import CannotBuildError, build_all
from e2e.command_line import binaries_option, exit_code, stop_in_order, tell
from e2e.modules import AUTOSCALERS, CONTROL_PLANES, NEWEST_CONTROL_PLANE, NEWEST_RELEASE, ControlPlaneVersion, Release
from e2e.runner import Outcome, Result, Runner
from e2e.scenarios import SCENARIOS
from e2e.side_by_side import run_side_by_side

__all__ = ["main"]


def _scenarios(_context: click.Context, _option: click.Parameter, value: str) -> list[int]:
    if not value:
        return sorted(SCENARIOS)
    try:
        numbers = [int(word) for word in value.split(",")]
    except ValueError:
        raise click.BadParameter("say numbers, such as 1,2") from None
    unknown = [number for number in numbers if number not in SCENARIOS]
    if unknown:
        raise click.BadParameter(f"there is no scenario {unknown[0]}; see --list")
    return numbers


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--release",
    "releases",
    multiple=True,
    type=click.Choice(list(AUTOSCALERS)),
    help=f"Of the autoscaler; may be given several times.  [default: {NEWEST_RELEASE}]",
)
@click.option("--scenario", callback=_scenarios, default="", metavar="1,2", help="Which ones. All by default.")
@binaries_option
@click.option(
    "--control-plane", type=click.Choice(list(CONTROL_PLANES)), default=NEWEST_CONTROL_PLANE, show_default=True
)
@click.option(
    "--at-once", type=click.IntRange(1, 8), default=2, show_default=True, help="Scenarios at a time, on a plane each."
)
@click.option("--list", "is_list", is_flag=True, help="Only say what there is.")
@click.option("--keep", is_flag=True, help="Keep all logs, also when everything passes.")
def main(
    *,
    releases: Sequence[str],
    scenario: list[int],
    binary: dict[str, Path],
    control_plane: str,
    at_once: int,
    is_list: bool,
    keep: bool,
) -> None:
    """Let real autoscalers scale a real Kubernetes API through cloudgraft.

    The exit code is 0 when all passed, 1 when something failed, and 3 when nothing failed but something was not run,
    because there is no Go toolchain or a Go module is not to be had.

    \b
    Examples: python -m e2e
              python -m e2e --release 1.28 --scenario 1,2,3
              python -m e2e --at-once 1
              python -m e2e --release 1.31 --binary 1.31=/path/to/cluster-autoscaler --keep
    """  # noqa: D301 - click wants the character, not the two
    console = Console(width=None if sys.stdout.isatty() else 160)
    if is_list:
        _print_list(console)
        return
    stop_in_order()
    directory = Path(tempfile.mkdtemp(prefix="cloudgraft-e2e-"))
    work = [(name, number) for name in releases or (NEWEST_RELEASE,) for number in scenario]
    if min(at_once, len(work)) > 1 and _can_be_built(work, CONTROL_PLANES[control_plane], binary):
        results = run_side_by_side(work, at_once, control_plane=control_plane, directory=directory, binaries=binary)
    else:
        results = _run(work, CONTROL_PLANES[control_plane], directory, binary)
    _print_table(console, results)
    if keep or any(result.outcome is Outcome.FAILED for result in results):
        console.print(f"logs: {directory}", soft_wrap=True)
    else:
        shutil.rmtree(directory)
    sys.exit(exit_code(results))


def _can_be_built(work: Sequence[tuple[str, int]], version: ControlPlaneVersion, given: dict[str, Path]) -> bool:
    """Builds all that is needed. What cannot be had is told by whoever then runs one after the other, once."""
    wanted_ones: list[Release | ControlPlaneVersion] = [version]
    wanted_ones += [AUTOSCALERS[name] for name in {name for name, _ in work} - given.keys()]
    try:
        build_all(tell, *wanted_ones)
    except CannotBuildError:
        return False
    return True


def _run(
    work: Sequence[tuple[str, int]], version: ControlPlaneVersion, directory: Path, binary: dict[str, Path]
) -> list[Result]:
    runner = Runner(version, directory, tell, given=binary)
    try:
        return [runner.run_one(AUTOSCALERS[name], SCENARIOS[number]) for name, number in work]
    finally:
        runner.close()


def _print_list(console: Console) -> None:
    table = Table("release", "what", "version", title="autoscalers")
    for release in AUTOSCALERS.values():
        table.add_row(release.name, release.patch, release.version)
    console.print(table)
    table = Table("control plane", "Kubernetes", "etcd")
    for version in CONTROL_PLANES.values():
        table.add_row(version.name, version.kubernetes, version.etcd)
    console.print(table)
    table = Table("scenario", "what")
    for scenario in SCENARIOS.values():
        table.add_row(str(scenario.number), scenario.title)
    console.print(table)


def _print_table(console: Console, results: Sequence[Result]) -> None:
    table = Table("autoscaler", "control plane", "scenario", "what", "result", "seconds")
    for result in results:
        title = SCENARIOS[result.scenario].title
        took = f"{result.seconds:.0f}" if result.seconds else ""
        row = (AUTOSCALERS[result.release].patch, result.control_plane, str(result.scenario), title)
        table.add_row(*row, result.outcome.value, took)
    console.print(table)


if __name__ == "__main__":
    main()
