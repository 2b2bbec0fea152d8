"""Every command in the documentation is run, page by page, in an empty directory.

How a page is read:
- a fenced block with ``file=NAME`` in its first line is written to that file;
- in a ``console`` block each line that begins with ``$ `` is a command; what follows it is a sample of its output and
  every line of it that does not contain ``…`` must appear in what the command prints;
- a command that ends in ``&`` is started in the background and must say that it serves; it is stopped with the page;
- ``make`` is checked to have the target, not run: a test suite must not run itself.
The ports 8086 and 8087 of the pages are replaced by free ones, so that pages can be run at the same time.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
SECONDS = 50


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
        self.background: list[subprocess.Popen[str]] = []
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(directory),
            "COLUMNS": "120",
            "NO_COLOR": "1",
        }

    def run(self, command: Command) -> None:
        if command.text.startswith("make "):
            target = shlex.split(command.text)[1]
            subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True, timeout=SECONDS)
        elif command.text.endswith("&"):
            self._start(command.text.removesuffix("&").strip())
        else:
            done = subprocess.run(
                ["bash", "-c", command.text],
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=SECONDS,
                check=False,
            )
            assert done.returncode == 0, f"$ {command.text}\n{done.stdout}"
            for line in command.expected:
                assert "…" in line or line.strip() in done.stdout, f"$ {command.text}\nlacks: {line}\n{done.stdout}"

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
        self.background.append(process)
        assert process.stdout is not None
        seen = []
        for line in process.stdout:
            seen.append(line)
            if "serving" in line:
                # Whatever else it says must not fill the pipe.
                threading.Thread(target=process.stdout.read, daemon=True).start()
                return
        raise AssertionError(f"$ {text} & ended without serving:\n{''.join(seen)}")

    def close(self) -> None:
        for process in self.background:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(SECONDS)
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path)
    yield opened
    opened.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
@pytest.mark.timeout(240)
def test_every_command_of_the_page_works(page: Path, terminal: Terminal) -> None:
    text = page.read_text()
    for number, port in zip((8086, 8087, 9086), free_ports(3), strict=True):
        text = text.replace(str(number), str(port))
    for step in steps(text):
        if isinstance(step, File):
            path = terminal.directory / step.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step.content)
        else:
            terminal.run(step)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text())
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []
