"""`cloudgraft demo` as a person starts it: a process of its own."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from click.testing import CliRunner

from cloudgraft.cli.demo import command
from tests.needs import needs_terminal

COMMAND = [sys.executable, "-m", "cloudgraft.cli", "demo"]
PATIENCE = 50.0  # seconds; the demo takes two, but the machine may be busy


def environment(tmp_path: Path) -> dict[str, str]:
    """The caller's, with a directory for temporary files that can be looked into, and a terminal of 80x24."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("FORCE_COLOR", "TTY_"))}
    return {**plain, "TMPDIR": str(tmp_path), "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}


def run(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *options],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def in_order(text: str, *parts: str) -> None:
    position = 0
    for part in parts:
        found = text.find(part, position)
        assert found >= 0, f"{part!r} is missing after position {position} in:\n{text}"
        position = found + len(part)


@pytest.mark.thorough
def test_in_a_pipe_events_are_printed_in_plain_lines(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    in_order(
        done.stdout,
        "over mTLS",
        "07:00  work        the shop opens: 6 pods of 0.5 cpu",
        "07:00  scale-up    small 0 → 2, from zero",
        "register    small-1 and small-2 registered",
        "12:00  scale-up    small 2 → 8",
        "12:05  no stock    small is out of stock",
        "12:05  fallback    falling back from small to large 0 → 1, in the same loop",
        "register    large-1 registered",
        "scale-up    gpu 0 → 1, from zero",
        "14:00  crash       cloudgraft dies: an order is placed, its answer not seen",
        "14:00  restart     back from the journal: 6 machines, 0 lost, 0 doubled",
        "register    gpu-1 registered",
        "scale-down  gpu-1 is empty",
        "scale-down  large-1",
        "is drained",
        "night       every group is back at zero",
        "machines failed",
        "lost 0, doubled 0",
        "Try next:",
        "cloudgraft serve",
        "cloudgraft status",
        "cloudgraft explain",
    )
    assert list(tmp_path.iterdir()) == [], "the throw-away journal and certificates are still there"


@pytest.mark.parametrize("speed", ["0", "-1", "nan", "inf", "fast"])
def test_a_speed_that_makes_no_sense_is_refused(speed: str) -> None:
    result = CliRunner().invoke(command, ["--speed", speed])
    assert result.exit_code == 2
    assert "--speed" in result.output


# -- interrupted -------------------------------------------------------------------------------------------------------


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def started(tmp_path: Path, speed: str = "0.1", **more: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """The demo in a pipe, by default so slow that it does not end by itself, and what it prints."""
    with subprocess.Popen(
        [*COMMAND, "--plain", "--speed", speed],
        env={**environment(tmp_path), **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout
        finally:
            process.kill()


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_stops_its_server_and_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path) as (process, lines):
        match = re.search(r"serving on 127\.0\.0\.1:(\d+) ", lines.readline())
        assert match is not None
        port = int(match[1])
        assert accepts(port)
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number
    assert errors == "interrupted; the server is stopped\n"
    assert not accepts(port)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_an_output_that_knows_no_arrows_gets_question_marks(tmp_path: Path) -> None:
    with started(tmp_path, "1000", PYTHONIOENCODING="ascii") as (_, lines):
        told = next((line for line in lines if "scale-up" in line), "")
    assert "small 0 ? 2" in told


# -- on a terminal -----------------------------------------------------------------------------------------------------


@contextmanager
def on_a_terminal(tmp_path: Path, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The demo with a terminal for its output, and the other end of that terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, *options], env=environment(tmp_path), stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        try:
            yield process, ours
        finally:
            process.kill()
            os.close(ours)


def read_until(terminal: int, expected: bytes | None = None) -> bytes:
    """What is written to the terminal, up to these bytes or to the end."""
    seen, deadline = b"", time.monotonic() + PATIENCE
    while expected is None or expected not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"timed out; last seen: {seen[-2000:]!r}"
        try:
            data = os.read(terminal, 65536)
        except OSError:  # how Linux says that the other end is closed
            return seen
        if not data:
            return seen
        seen += data
    return seen


@needs_terminal
@pytest.mark.thorough
def test_on_a_terminal_the_day_is_shown_live_and_the_summary_stays(tmp_path: Path) -> None:
    with on_a_terminal(tmp_path, "--speed", "1000") as (process, terminal):
        seen = read_until(terminal).decode()
        assert process.wait(PATIENCE) == 0
    in_order(
        seen,
        "\x1b[?1049h",
        "NO STOCK",
        "FALLBACK",
        " CRASH ",
        " closed",
        " RESTART ",
        "every group is back at zero",
        "\x1b[?1049l",
        "Try next:",
    )


@needs_terminal
def test_ctrl_c_gives_the_terminal_back(tmp_path: Path) -> None:
    with on_a_terminal(tmp_path, "--speed", "0.1") as (process, terminal):
        read_until(terminal, b"the cluster sleeps")
        process.send_signal(signal.SIGINT)
        rest = read_until(terminal).decode()
        assert process.wait(PATIENCE) == 130
    in_order(rest, "\x1b[?1049l", "interrupted; the server is stopped")
    assert list(tmp_path.iterdir()) == []
