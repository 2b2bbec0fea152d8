"""A page as a reader follows it: files that are written, and commands that are typed, in one directory.

How a page is read:
- a fenced block with ``file=NAME`` in its first line is written to that file;
- in a ``console`` block each line that begins with ``$ `` is a command; what follows it is a sample of its output, and
  each line of that must appear in what the command prints, where ``…`` stands for anything, and one space for several;
- a command that only looks is made again for a while, if it does not show yet what the page says: machines take their
  time, and a reader looks again too;
- a command must end with code 0, unless the sample of its output ends with "command terminated with exit code 1", as
  kubectl exec prints it: then with that one;
- a command that ends in ``&`` is started in the background and must say that it serves; it is stopped with the page, or
  by ``kill %1``, or ``kill %1; wait %1``, where the numbers are those that a shell would give;
- ``make`` is checked to have the target, not run: a test suite must not run itself. Only ``make demo`` with a sample
  of its output is run, as the command that it stands for.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
LOOKS = re.compile(
    "cloudgraft (status|dock drivers|explain|orphans list|db check|call (--wait )?NodeGroup(Nodes|TargetSize))"
    "|curl -s (?!.*-[dX])|kubectl .*\\b(get|describe) |kubectl .* -- cloudgraft (status|explain|doctor)"
    "|[^ ]*labctl list"
)
SERVES = re.compile("serving|Waiting for caches to sync")  # cloudgraft, and the autoscaler
SECONDS = 100  # for one command; `cloudgraft test-driver` waits for the list of a cloud many times


@dataclass
class Command:
    text: str
    expected: list[str] = field(default_factory=list)


@dataclass
class File:
    name: str
    content: str


def steps(page: str) -> Iterator[Command | File]:
    for match in FENCE.finditer(page):
        language, *attributes = match["info"].split() or [""]
        names = [attribute.removeprefix("file=") for attribute in attributes if attribute.startswith("file=")]
        if names:
            yield File(names[0], match["body"])
        elif language == "console":
            yield from commands(match["body"])


def commands(block: str) -> Iterator[Command]:
    current: Command | None = None
    for line in block.splitlines():
        if line.startswith("$ "):
            if current:
                yield current
            current = Command(line.removeprefix("$ "))
        elif current and current.text.endswith("\\"):
            current.text = current.text[:-1] + line.strip()
        elif current and line.strip():
            current.expected.append(line.rstrip())
    if current:
        yield current


class Terminal:
    """Runs a page's commands as a reader would, in one directory."""

    def __init__(
        self,
        directory: Path,
        *,
        programs: Mapping[str, Path] | None = None,
        patience: float = 30.0,
        longest: float = SECONDS,
    ) -> None:
        """``programs`` are found by these names beside what the system has; ``patience`` is for what only looks.

        ``longest`` is how many seconds one command may take.
        """
        self.directory = directory
        self.patience = patience
        self.longest = longest
        self.jobs: dict[int, subprocess.Popen[str]] = {}
        found = [str(Path(sys.executable).parent), os.environ["PATH"]]
        if programs:
            found.insert(0, str(self._linked(programs)))
        if shutil.which("curl") is None:
            found.append(str(self._own_curl()))
        self.environment = {
            **os.environ,
            "PATH": ":".join(found),
            "HOME": str(directory),
            "COLUMNS": "120",
            "NO_COLOR": "1",
        }

    def _linked(self, programs: Mapping[str, Path]) -> Path:
        directory = self._beside()
        for name, path in programs.items():
            (directory / name).symlink_to(path)
        return directory

    def _own_curl(self) -> Path:
        """A directory with a program by that name."""
        directory = self._beside()
        program = directory / "curl"
        small_curl = Path(__file__).with_name("small_curl.py")
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{small_curl}" "$@"\n')
        program.chmod(0o755)
        return directory

    def _beside(self) -> Path:
        directory = self.directory.with_name(f"{self.directory.name}-programs")
        directory.mkdir(exist_ok=True)
        return directory

    def follow(self, page: str) -> None:
        """Does all that a page says."""
        for step in steps(page):
            self.do(step)

    def do(self, step: Command | File) -> None:
        """Writes a file, or types a command."""
        if isinstance(step, File):
            path = self.directory / step.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step.content)
        else:
            self.run(step)

    def run(self, command: Command) -> None:
        killed = re.fullmatch(r"kill (?:-(\w+) )?%(\d+)(?:; wait %\2)?", command.text)
        if command.text.startswith("make "):
            target = shlex.split(command.text)[1]
            subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True, timeout=SECONDS)
            if target == "demo" and command.expected:
                options = command.text.partition("ARGS_DEMO=")[2]
                self._try(Command(f"cloudgraft demo {options}", command.expected))
        elif command.text.endswith("&"):
            self._start(command.text.removesuffix("&").strip())
        elif killed:
            self._end(int(killed[2]), signal.SIGKILL if killed[1] in ("9", "KILL") else signal.SIGTERM)
        else:
            self._try(command)

    def _try(self, command: Command) -> None:
        """Runs it, and looks at what it prints; again, if it only looks."""
        deadline = time.monotonic() + (self.patience if LOOKS.match(command.text) else 0)
        ended = re.fullmatch(r"command terminated with exit code (\d+)", "".join(command.expected[-1:]))
        expected_code = int(ended[1]) if ended else 0
        while True:
            code, output = self.output(command.text)
            lacking = [line for line in command.expected if not is_shown(line, output)]
            if code == expected_code and not lacking:
                return
            if time.monotonic() >= deadline:
                lacks = "".join(f"\nlacks: {line}" for line in lacking)
                raise AssertionError(f"$ {command.text}\nended with {code}{lacks}\n{output}")
            time.sleep(1)  # a reader looks again no sooner either

    def output(self, text: str) -> tuple[int, str]:
        """Runs a command, and gives its exit code and what it printed."""
        done = subprocess.run(
            ["bash", "-c", text],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=self.longest,
            check=False,
        )
        return done.returncode, done.stdout

    def _start(self, text: str) -> None:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {text}"],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.jobs[max(self.jobs, default=0) + 1] = process
        assert process.stdout is not None
        seen = []
        for line in process.stdout:
            seen.append(line)
            if SERVES.search(line):
                # Whatever else it says must not fill the pipe.
                threading.Thread(target=process.stdout.read, daemon=True).start()
                return
        raise AssertionError(f"$ {text} & ended without serving:\n{''.join(seen)}")

    def _end(self, number: int, how: signal.Signals) -> None:
        process = self.jobs.pop(number)
        os.killpg(process.pid, how)
        process.wait(SECONDS)
        if process.stdout is not None:
            process.stdout.close()

    def close(self) -> None:
        for number in list(self.jobs):
            self._end(number, signal.SIGTERM)


def is_shown(line: str, output: str) -> bool:
    """Whether the output has this line, or part of a line; "…" stands for anything."""
    parts = [re.escape(" ".join(part.split())) for part in line.split("…")]
    found = re.compile(".*".join(parts).replace(".*\\ ", ".* ?").replace("\\ .*", " ?.*"))
    return any(found.search(" ".join(shown.split())) for shown in output.splitlines())
