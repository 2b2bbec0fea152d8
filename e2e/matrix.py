"""The command ``python -m e2e.matrix``, or ``make e2e-matrix``: every release, cell by cell, in several sittings.

Each cell (a control plane, a release, a scenario) that was judged is written down at once, in a file outside the tree.
The next sitting goes on with what is missing, and two may sit side by side, with a control plane each. At the end of
each, the table is written.
"""

from __future__ import annotations

import fcntl
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Final

import click

from e2e.build import cache_directory
from e2e.command_line import NOT_RUN, binaries_option, exit_code, stop_in_order, tell
from e2e.modules import AUTOSCALERS, CONTROL_PLANES, NEWEST_CONTROL_PLANE, NEWEST_RELEASE
from e2e.runner import Outcome, Result, Runner
from e2e.scenarios import SCENARIOS

__all__ = ["BEGIN", "END", "Cell", "State", "cells", "main", "table", "with_table"]

_ALWAYS: Final = (1, 2, 3, 8)
_ALL: Final = range(1, 13)  # those that are about the autoscaler; the others are about machines that join
_IN_FULL: Final = ("1.28", "1.31", NEWEST_RELEASE)
_PLANES: Final = ("1.31", "1.34", NEWEST_CONTROL_PLANE)
_SHOWN: Final = {Outcome.PASSED: "passed", Outcome.FAILED: "**failed**", Outcome.NOT_RUN: "not built"}
_GIVEN: Final = " \\*"
_LEGEND: Final = (
    "A release marked \\* was not to be had as a Go module where this was run: its binary was built from the source of "
    "that release, and given with `--binary`. An empty field is not planned, or still to be judged. "
    "Autoscalers from 1.35 on need an API that Kubernetes has since 1.34 (`resource.k8s.io/v1`): on an older one they "
    "wait for it for ever, whatever their provider does, so they are not run there."
)
BEGIN: Final = "<!-- The table below is written by `make e2e-matrix`. -->"
END: Final = "<!-- The end of that table. -->"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cell:
    """One thing to be judged."""

    control_plane: str
    release: str
    scenario: int

    @property
    def key(self) -> str:
        """In the file."""
        return f"{self.control_plane}/{self.release}/{self.scenario}"


def cells() -> Iterator[Cell]:
    """All of them, so that a control plane and a release are used for as long as possible.

    Each release is judged on the oldest control plane that it runs on, and on the newest.
    """
    for plane in _PLANES:
        for release, about in AUTOSCALERS.items():
            oldest = next(one for one in _PLANES if about.runs_on(one))
            if plane not in (oldest, NEWEST_CONTROL_PLANE):
                continue
            for scenario in _ALL if release in _IN_FULL else _ALWAYS:
                yield Cell(control_plane=plane, release=release, scenario=scenario)


class State:
    """What was judged so far, in a file that is written anew after every cell."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found = self._read()

    def _read(self) -> dict[str, dict[str, object]]:
        found: dict[str, dict[str, object]] = json.loads(self._path.read_text("utf-8")) if self._path.exists() else {}
        return found

    def outcome(self, cell: Cell) -> Outcome | None:
        """How it ended, or None when it is still to be judged. Another version of the same release is another thing."""
        entry = self._found.get(cell.key)
        if entry is None or entry["version"] != _version(cell):
            return None
        return Outcome(str(entry["outcome"]))

    def date(self, cell: Cell) -> str:
        """When that was."""
        return str(self._found[cell.key]["date"])

    def is_given(self, cell: Cell) -> bool:
        """Whether its autoscaler was built by somebody else."""
        return bool(self._found[cell.key].get("given"))

    def note(self, cell: Cell, result: Result, now: datetime, *, is_given: bool = False) -> None:
        """Writes a result down, beside what another sitting has written meanwhile."""
        entry = {**asdict(result), "version": _version(cell), "date": now.strftime("%Y-%m-%d"), "given": is_given}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._found = {**self._read(), cell.key: entry}
            unfinished = self._path.with_suffix(".new")
            unfinished.write_text(json.dumps(self._found, indent=1), "utf-8")
            unfinished.replace(self._path)


def _version(cell: Cell) -> str:
    return f"{AUTOSCALERS[cell.release].version} on {CONTROL_PLANES[cell.control_plane].kubernetes}"


# -- the table ---------------------------------------------------------------------------------------------------------


def table(state: State) -> str:
    """Markdown: a line for each release on each control plane that was judged at all."""
    head = ["autoscaler", "Kubernetes", *map(str, _ALL), "judged"]
    lines = [_row(head), _row(["---"] * len(head))]
    for (plane, release), group in groupby(cells(), key=lambda cell: (cell.control_plane, cell.release)):
        judged = list(group)
        outcomes = {cell.scenario: state.outcome(cell) for cell in judged}
        if not any(outcomes.values()):
            continue
        dates = [state.date(cell) for cell in judged if outcomes[cell.scenario] is not None]
        is_given = any(state.is_given(cell) for cell in judged if outcomes[cell.scenario] is not None)
        patch = AUTOSCALERS[release].patch + (_GIVEN if is_given else "")
        first = [patch, CONTROL_PLANES[plane].kubernetes.removeprefix("v")]
        lines.append(_row([*first, *(_shown(outcomes.get(number)) for number in _ALL), max(dates)]))
    legend = [f"{number}. {SCENARIOS[number].title}" for number in _ALL]
    return "\n".join([*lines, "", _LEGEND, "", "The scenarios:", "", *legend, ""])


def _row(words: Sequence[str]) -> str:
    return f"| {' | '.join(words)} |"


def _shown(outcome: Outcome | None) -> str:
    return "" if outcome is None else _SHOWN[outcome]


def with_table(page: str, text: str) -> str:
    """The page with the table between its two marks; at its end when it has none."""
    block = f"{BEGIN}\n\n{text}\n{END}"
    if BEGIN in page and END in page:
        before, _, rest = page.partition(BEGIN)
        return before + block + rest.partition(END)[2]
    return f"{page.rstrip()}\n\n{block}\n".lstrip()


# -- the command -------------------------------------------------------------------------------------------------------


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--state", "state_file", type=click.Path(path_type=Path), help="What was judged so far.")
@click.option("--table", "page", type=click.Path(path_type=Path), help="The page that the table is written into.")
@click.option("--minutes", type=click.FloatRange(min=0), help="Begin no cell after so long a time.")
@click.option("--control-plane", "planes", multiple=True, type=click.Choice(_PLANES), help="Only on these.")
@click.option("--release", "releases", multiple=True, type=click.Choice(list(AUTOSCALERS)), help="Only these.")
@click.option("--redo", is_flag=True, help="Judge again what failed.")
@binaries_option
def main(
    *,
    state_file: Path | None,
    page: Path | None,
    minutes: float | None,
    planes: Sequence[str],
    releases: Sequence[str],
    redo: bool,
    binary: dict[str, Path],
) -> None:
    """Judge every release in every scenario that is planned for it, and write the table.

    The exit code is 0 when all that is wanted has passed by now, 1 when something failed in this sitting, and 3 when
    something could not be built or the time was up.

    \b
    Examples: python -m e2e.matrix --minutes 50 --table docs/reference/compatibility.md
              python -m e2e.matrix --release 1.28 --redo
    """  # noqa: D301 - click wants the character, not the two
    stop_in_order()
    state = State(state_file or cache_directory() / "matrix.json")
    wanted = [
        cell
        for cell in cells()
        if cell.control_plane in (planes or _PLANES) and cell.release in (releases or AUTOSCALERS)
    ]
    done = {Outcome.PASSED} if redo else {Outcome.PASSED, Outcome.FAILED}
    missing = [cell for cell in wanted if state.outcome(cell) not in done]
    tell(f"{len(wanted) - len(missing)} of {len(wanted)} cells were judged before")
    try:
        results = _judge(missing, state, binary, time.monotonic() + (minutes or 1e6) * 60)
    finally:
        if page is not None:
            text = page.read_text("utf-8") if page.exists() else ""
            page.write_text(with_table(text, table(state)), "utf-8")
    sys.exit(exit_code(results) or (NOT_RUN if len(results) < len(missing) else 0))


def _judge(missing: Sequence[Cell], state: State, binary: Mapping[str, Path], deadline: float) -> list[Result]:
    results: list[Result] = []
    for plane, of_plane in groupby(missing, key=lambda cell: cell.control_plane):
        directory = Path(tempfile.mkdtemp(prefix="cloudgraft-e2e-"))
        runner = Runner(CONTROL_PLANES[plane], directory, tell, given=binary)
        try:
            for cell in of_plane:
                if time.monotonic() > deadline:
                    tell("the time is up; run it again to go on")
                    return results
                result = runner.run_one(AUTOSCALERS[cell.release], SCENARIOS[cell.scenario])
                state.note(cell, result, datetime.now(UTC), is_given=cell.release in binary)
                results.append(result)
        finally:
            runner.close()
    return results


if __name__ == "__main__":
    main()
