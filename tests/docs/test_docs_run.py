"""Every command in the documentation is run, page by page, in an empty directory.

How a page is read:
- a fenced block with ``file=NAME`` in its first line is written to that file;
- in a ``console`` block each line that begins with ``$ `` is a command; what follows it is a sample of its output, and
  each line of that must appear in what the command prints, where ``…`` stands for anything, and one space for several;
- a command that only looks is made again for a while, if it does not show yet what the page says: machines take their
  time, and a reader looks again too;
- a command that ends in ``&`` is started in the background and must say that it serves; it is stopped with the page, or
  by ``kill %1``, where the numbers are those that a shell would give;
- ``make`` is checked to have the target, not run: a test suite must not run itself.
The ports of the pages are replaced by free ones, so that pages can be run at the same time, and the PostgreSQL that a
page speaks of by one that is started for it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.postgres import PostgresServer, postgres  # noqa: F401 - a fixture

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
PORTS = ("8086", "8087", "8088", "9086", "9087", "9400")
DATABASE, DATABASE_URL = "127.0.0.1:5432/cloudgraft", "postgresql://cloudgraft@127.0.0.1:5432/cloudgraft"
LOOKS = re.compile(
    "cloudgraft (status|explain|orphans list|db check|call NodeGroupNodes|call NodeGroupTargetSize)|curl -s (?!.*-[dX])"
)
SECONDS = 50
PATIENCE = 30  # for a look that does not show yet what it should


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


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Terminal:
    """Runs a page's commands as a reader would, in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.jobs: dict[int, subprocess.Popen[str]] = {}
        programs = [str(Path(sys.executable).parent), os.environ["PATH"]]
        if shutil.which("curl") is None:
            programs.append(str(self._own_curl()))
        self.environment = {
            **os.environ,
            "PATH": ":".join(programs),
            "HOME": str(directory),
            "COLUMNS": "120",
            "NO_COLOR": "1",
        }

    def _own_curl(self) -> Path:
        """A directory with a program by that name."""
        programs = self.directory.with_name(f"{self.directory.name}-programs")
        programs.mkdir()
        program = programs / "curl"
        small_curl = Path(__file__).with_name("small_curl.py")
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{small_curl}" "$@"\n')
        program.chmod(0o755)
        return programs

    def run(self, command: Command) -> None:
        killed = re.fullmatch(r"kill (?:-(\w+) )?%(\d+)", command.text)
        if command.text.startswith("make "):
            target = shlex.split(command.text)[1]
            subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True, timeout=SECONDS)
        elif command.text.endswith("&"):
            self._start(command.text.removesuffix("&").strip())
        elif killed:
            self._end(int(killed[2]), signal.SIGKILL if killed[1] in ("9", "KILL") else signal.SIGTERM)
        else:
            self._try(command)

    def _try(self, command: Command) -> None:
        """Runs it, and looks at what it prints; again, if it only looks."""
        deadline = time.monotonic() + (PATIENCE if LOOKS.match(command.text) else 0)
        while True:
            code, output = self._output(command.text)
            lacking = [line for line in command.expected if not is_shown(line, output)]
            if not code and not lacking:
                return
            if time.monotonic() >= deadline:
                lacks = "".join(f"\nlacks: {line}" for line in lacking)
                raise AssertionError(f"$ {command.text}\nended with {code}{lacks}\n{output}")
            time.sleep(1)  # a reader looks again no sooner either

    def _output(self, text: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-c", text],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
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
            if "serving" in line:
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


def with_database(text: str, server: PostgresServer) -> str:
    """The page with a database that exists, in place of the one that it speaks of."""
    name = server.database().split("/")[3].split("?")[0]
    if not server.execute("SELECT 1 FROM pg_roles WHERE rolname = 'cloudgraft'"):
        server.execute("CREATE ROLE cloudgraft LOGIN")
    server.execute(f'ALTER DATABASE "{name}" OWNER TO cloudgraft')
    url = f"postgresql://cloudgraft@/{name}?host={server.directory}"
    return text.replace(DATABASE_URL, url).replace(DATABASE, f"{server.directory}/{name}")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path)
    yield opened
    opened.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
@pytest.mark.timeout(240)
def test_every_command_of_the_page_works(page: Path, terminal: Terminal, request: pytest.FixtureRequest) -> None:
    text = page.read_text()
    if DATABASE in text:
        text = with_database(text, request.getfixturevalue("postgres"))
    for number, port in zip(PORTS, free_ports(len(PORTS)), strict=True):
        text = re.sub(rf"\b{number}\b", str(port), text)
    for step in steps(text):
        if isinstance(step, File):
            path = terminal.directory / step.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step.content)
        else:
            terminal.run(step)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    """To a file that is there, and to a heading that it has. Links into the world are left alone."""
    missing = []
    for target in re.findall(r"\]\((?!https?://)([^)\s]+)", page.read_text()):
        name, _, heading = target.partition("#")
        file = page.parent / name if name else page
        if not file.exists() or (heading and heading not in headings(file.read_text())):
            missing.append(target)
    assert missing == []


def headings(text: str) -> set[str]:
    """As they are in links: lower case, a dash for each space, without anything but letters, digits and dashes."""
    found = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in found}
