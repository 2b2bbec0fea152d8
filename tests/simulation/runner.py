"""The command: one seed or many, in several processes, resumable; failures are shrunk and can be replayed."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.simulation import faults_cloud, faults_server, planted
from tests.simulation.invariants import INVARIANTS
from tests.simulation.plan import KINDS, Plan, draw_plan, parse_plan, show_plan
from tests.simulation.playing import Result, run
from tests.simulation.progress import Progress
from tests.simulation.setting import draw_setting
from tests.simulation.shrink import shrunk

REGISTERED = (faults_cloud, faults_server)  # importing them fills the table of kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What holds for all runs of one command."""

    hours: float = 24.0
    without: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()
    planted: str = ""
    replicas: int = 1

    def command(self, seed: int, plan: Plan | None) -> str:
        """What a person types to see one run again."""
        words = [f"--seed {seed}", f"--hours {self.hours:g}"]
        words += [f"--without {','.join(sorted(self.without))}"] if self.without and plan is None else []
        words += [f"--ignore {','.join(sorted(self.ignored))}"] if self.ignored else []
        words += [f"--planted {self.planted}"] if self.planted else []
        words += [f"--replicas {self.replicas}"] if self.replicas > 1 else []
        words += [f"--plan='{show_plan(plan)}'"] if plan is not None else []
        return f'make simulate ARGS_SIMULATE="{" ".join(words)}"'


def play(seed: int, options: Options, plan: Plan | None = None, *, is_shown: bool = False) -> tuple[Plan, Result]:
    """One run, with the plan of its seed or another."""
    setting = draw_setting(seed)
    if plan is None:
        journal = "postgresql" if options.replicas > 1 else "sqlite"
        plan = draw_plan(setting, options.hours, without=options.without, journal=journal)
    echo = print if is_shown else None
    with planted.planted(options.planted):
        return plan, run(setting, plan, options.hours, replicas=options.replicas, ignored=options.ignored, echo=echo)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 when an invariant did not hold."""
    given = _parser().parse_args(arguments)
    options = Options(
        hours=given.hours or given.days * 24,
        without=_names(given.without, KINDS),
        ignored=_names(given.ignore, INVARIANTS),
        planted=given.planted,
        replicas=given.replicas,
    )
    if given.seeds:
        return _many(given, options)
    asked = None if given.plan is None else parse_plan(given.plan)
    began = time.perf_counter()
    plan, result = play(given.seed, options, asked, is_shown=given.trace)
    took = time.perf_counter() - began
    print(f"plan: {show_plan(plan) or 'nothing goes wrong'}")
    print(f"digest {result.digest}; {result.lines} lines, {result.steps} steps, {took:.1f} s")
    if result.violation is None:
        print("every invariant holds")
        return 0
    _report(given.seed, options, plan, result, is_shrunk=not given.no_shrink)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="one run")
    parser.add_argument("--seeds", default="", help="many runs: 1-100")
    parser.add_argument("--days", type=float, default=1.0, help="virtual days per run")
    parser.add_argument("--hours", type=float, default=0.0, help="virtual hours per run, instead of days")
    parser.add_argument("--plan", default=None, help="steps, instead of those that the seed gives")
    parser.add_argument("--without", default="", help=f"kinds of steps to leave out: {', '.join(KINDS)}")
    parser.add_argument("--ignore", default="", help=f"invariants to leave out: {', '.join(INVARIANTS)}")
    parser.add_argument("--planted", default="", help=f"a planted fault: {', '.join(planted.FAULTS)}")
    parser.add_argument("--replicas", type=int, default=1, help="servers; several share a simulated PostgreSQL")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--done", type=Path, default=None, help="a file with the seeds that were run; they are skipped")
    parser.add_argument("--trace", action="store_true", help="print every line of the trace")
    parser.add_argument("--no-shrink", action="store_true", help="report a failure as it is")
    parser.add_argument("--keep-going", action="store_true", help="run all seeds, also after a failure")
    return parser


def _names(text: str, known: Iterable[str]) -> frozenset[str]:
    names = frozenset(name for name in text.split(",") if name)
    unknown = names - set(known)
    if unknown:
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; there is: {', '.join(known)}")
    return names


# -- many seeds --------------------------------------------------------------------------------------------------------


def _many(given: argparse.Namespace, options: Options) -> int:
    done = _read_done(given.done)
    seeds = [seed for seed in _range(given.seeds) if seed not in done]
    progress = Progress(len(seeds), sys.stdout)
    found: Counter[str] = Counter()
    for seed, digest, said in _results(seeds, given, options):
        if given.done is not None:
            with given.done.open("a") as file:
                file.write(f"{seed} {digest} {said or 'ok'}\n")
        if said:
            found[said.partition(":")[0]] += 1
            progress.clear()
            print(f"seed {seed}: {said}\n  {options.command(seed, None)}", flush=True)
        progress.step(has_failed=bool(said))
        if said and not given.keep_going:
            break
    progress.clear()
    days, pace = options.hours / 24, progress.per_minute
    total = f"{progress.done} runs, {progress.done * days:.1f} virtual days"
    print(f"{total}; {pace:.1f} runs and {pace * days:.1f} days per minute")
    for invariant, times in found.most_common():
        print(f"{times:5} {invariant}: {INVARIANTS[invariant]}")
    return 1 if found else 0


def _results(seeds: Sequence[int], given: argparse.Namespace, options: Options) -> Iterator[tuple[int, str, str]]:
    if given.jobs <= 1:
        for seed in seeds:
            _, result = play(seed, options)
            yield seed, result.digest, str(result.violation or "")
        return
    chunks = [seeds[number :: given.jobs] for number in range(given.jobs)]
    words = [f"--hours={options.hours}", "--planted", options.planted, "--keep-going", "--no-shrink"]
    words += [f"--replicas={options.replicas}"]
    words += [f"--without={','.join(options.without)}", f"--ignore={','.join(options.ignored)}", "--done=/dev/stdout"]
    programs = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.simulation", "--seeds", ",".join(map(str, chunk)), *words],
            stdout=subprocess.PIPE,
            text=True,
        )
        for chunk in chunks
        if chunk
    ]
    try:
        streams = [iter(program.stdout) for program in programs if program.stdout]
        for lines in itertools.zip_longest(*streams, fillvalue=""):
            for line in lines:
                words = line.rstrip("\n").split(" ", 2)
                if len(words) == 3 and words[0].isdigit() and len(words[1]) == 64:
                    yield int(words[0]), words[1], "" if words[2] == "ok" else words[2]
    finally:
        for program in programs:
            with contextlib.suppress(ProcessLookupError):
                program.terminate()
            program.wait()


def _range(text: str) -> list[int]:
    seeds: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return seeds


def _read_done(path: Path | None) -> set[int]:
    if path is None or not path.is_file():
        return set()
    return {int(line.split(" ", 1)[0]) for line in path.read_text().splitlines() if line.endswith(" ok")}


def _report(seed: int, options: Options, plan: Plan, result: Result, *, is_shrunk: bool) -> None:
    violation = result.violation
    assert violation is not None
    for line in list(result.latest)[-40:]:
        print(f"  {line[:300]}")
    print(f"{violation}\n{options.command(seed, plan)}")
    if is_shrunk and plan:
        small = shrunk(plan, lambda other: _fails_alike(seed, options, other, violation.invariant))
        print(f"shrunk from {len(plan)} steps to {len(small)}:\n{options.command(seed, small)}")


def _fails_alike(seed: int, options: Options, plan: Plan, invariant: str) -> bool:
    _, result = play(seed, options, plan)
    return result.violation is not None and result.violation.invariant == invariant
