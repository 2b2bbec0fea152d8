"""Several scenarios at a time, each process with a control plane of its own: most of their time is waiting.

The one who gives out the work starts ``python -m e2e.side_by_side`` once for each. Such a process reads from standard
input what to run, a release and a number on each line, and writes each result to standard output as a line of JSON.
"""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click

from e2e.command_line import binaries_option, stop_in_order, tell
from e2e.modules import AUTOSCALERS, CONTROL_PLANES
from e2e.runner import Outcome, Result, Runner
from e2e.scenarios import SCENARIOS

__all__ = ["main", "run_side_by_side"]

Work = tuple[str, int]  # a release, and a scenario


def run_side_by_side(
    work: Sequence[Work], count: int, *, control_plane: str, directory: Path, binaries: Mapping[str, Path]
) -> list[Result]:
    """Runs everything in ``count`` processes, and gives the results in the order of the work."""
    todo: queue.SimpleQueue[Work] = queue.SimpleQueue()
    for item in sorted(
        work, key=lambda item: -SCENARIOS[item[1]].seconds
    ):  # the long ones first, else one is left over
        todo.put(item)
    results: dict[Work, Result] = {}
    with _workers(count, control_plane, directory, binaries) as workers:
        threads = [threading.Thread(target=_feed, args=(worker, todo, results), daemon=True) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():  # in short steps, so that a signal is noticed
                thread.join(0.5)
    return [results.get(item) or _lost(item, control_plane) for item in work]


@contextmanager
def _workers(
    count: int, control_plane: str, directory: Path, binaries: Mapping[str, Path]
) -> Iterator[list[subprocess.Popen[str]]]:
    given = [word for name, path in binaries.items() for word in ("--binary", f"{name}={path}")]
    started = []
    for number in range(count):
        where = ("--control-plane", control_plane, "--directory", str(directory / f"part-{number + 1}"))
        command = [sys.executable, "-m", "e2e.side_by_side", *where, *given]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    try:
        yield started
    finally:
        for worker in started:  # those that are done have ended by now; the others stop in order
            if worker.poll() is None:
                worker.send_signal(signal.SIGTERM)
        for worker in started:
            worker.wait()


def _feed(worker: subprocess.Popen[str], todo: queue.SimpleQueue[Work], results: dict[Work, Result]) -> None:
    """Gives a process one thing after the other, until there is no more, or no process."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    while True:
        try:
            item = todo.get_nowait()
        except queue.Empty:
            worker.stdin.close()  # then it ends
            worker.wait()
            return
        try:
            worker.stdin.write(f"{item[0]} {item[1]}\n")
            worker.stdin.flush()
        except OSError:
            return
        line = worker.stdout.readline()
        if not line:
            return
        answer = json.loads(line)
        results[item] = Result(**{**answer, "outcome": Outcome(answer["outcome"])})


def _lost(item: Work, control_plane: str) -> Result:
    message = "the process that ran it has ended"
    return Result(
        release=item[0], scenario=item[1], control_plane=control_plane, outcome=Outcome.FAILED, message=message
    )


@click.command()
@click.option("--control-plane", type=click.Choice(list(CONTROL_PLANES)), required=True)
@click.option("--directory", type=click.Path(path_type=Path), required=True)
@binaries_option
def main(control_plane: str, directory: Path, binary: dict[str, Path]) -> None:
    """Run what standard input says."""
    stop_in_order()
    directory.mkdir(parents=True)
    runner = Runner(CONTROL_PLANES[control_plane], directory, tell, given=binary)
    try:
        for line in sys.stdin:
            release, number = line.split()
            result = runner.run_one(AUTOSCALERS[release], SCENARIOS[int(number)])
            print(json.dumps(asdict(result)), flush=True)
    finally:
        runner.close()


if __name__ == "__main__":
    main()
