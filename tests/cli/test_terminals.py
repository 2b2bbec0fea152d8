"""Commands in pipes and on terminals: a reader that ends, Ctrl-C, 40 columns, no colours, another encoding."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from cloudgraft.cli import pause
from cloudgraft.cli.main import cloudgraft
from cloudgraft.cli.progress import counted, working
from tests.cli.operator_rig import Operator, operating
from tests.engine.engine_rig import Rig
from tests.needs import needs_terminal

PROGRAM = [sys.executable, "-m", "cloudgraft.cli"]
PATIENCE = 50  # seconds
HTTP2_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # an empty frame, with which every HTTP/2 server begins


@pytest.fixture
async def operator(tmp_path: Path) -> AsyncIterator[Operator]:
    async with operating(Rig(tmp_path)) as made:
        yield made


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "TERM", "COLUMNS"}}
    return {**kept, **more}


# -- a reader that has ended -------------------------------------------------------------------------------------------


@pytest.fixture
def journal(tmp_path: Path) -> str:
    path = str(tmp_path / "journal.db")
    assert CliRunner().invoke(cloudgraft, ["db", "upgrade", "--store", path]).exit_code == 0
    return path


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        pytest.param("call --list", marks=pytest.mark.thorough),
        pytest.param("conformance --list -o json", marks=pytest.mark.thorough),
        "db export --store JOURNAL",
    ],
)
def test_a_reader_that_has_ended_is_no_traceback(words: str, journal: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [*PROGRAM, *words.replace("JOURNAL", journal).split()]
    # Unbuffered, Python would not find it out at its end.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(command, env=buffered, stdout=writer, stderr=subprocess.PIPE, check=False, timeout=PATIENCE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


# -- a disk that is full -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        pytest.param("status --help", marks=pytest.mark.thorough),
        pytest.param("--version", marks=pytest.mark.thorough),
        "drivers",
        "db export --store JOURNAL",
    ],
)
def test_a_full_disk_is_one_line_and_no_traceback(words: str, journal: str) -> None:
    command = [*PROGRAM, *words.replace("JOURNAL", journal).split()]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, env=buffered, stdout=full, stderr=subprocess.PIPE, check=False, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (1, b"error: cannot write the output: No space left on device\n")


# -- Ctrl-C ------------------------------------------------------------------------------------------------------------


def connected(silent: socket.socket) -> socket.socket:
    """A connection to a server that answers no call. Without this greeting gRPC would give it up after 20 seconds."""
    silent.settimeout(PATIENCE)
    connection, _ = silent.accept()
    connection.sendall(HTTP2_SETTINGS)
    return connection


def test_ctrl_c_ends_a_waiting_command_with_the_exit_code_of_shells() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [*PROGRAM, "call", "NodeGroups", "--timeout", "10m", "--address", address]
        with (
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
            connected(silent),  # from here on it waits for an answer
        ):
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (130, b"", b"interrupted\n")


# -- encodings ---------------------------------------------------------------------------------------------------------


async def test_a_terminal_that_lacks_a_character_gets_a_question_mark(operator: Operator) -> None:
    await operator.run(pause.command, "g", "--reason", "für Ü ✓")
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        "status",
        "--config",
        str(operator.config),
        env=environment(PYTHONIOENCODING="ascii"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert b"f?r ? ?" in out


# -- terminals ---------------------------------------------------------------------------------------------------------


def shown_on_a_terminal(*words: str, columns: int, **more: str) -> str:
    """What a command shows on a terminal of that width, on standard output and standard error."""
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        with subprocess.Popen(
            [*PROGRAM, *words], env=environment(**more), stdin=theirs, stdout=theirs, stderr=theirs
        ) as process:
            os.close(theirs)
            seen = b""
            while data := _read(ours):
                seen += data
        assert process.returncode == 0, seen
        return seen.decode()
    finally:
        os.close(ours)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that the other end is closed
        return b""


@needs_terminal
@pytest.mark.parametrize("more", [{"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}])
async def test_a_narrow_terminal_without_colours_gets_none(operator: Operator, more: dict[str, str]) -> None:
    await operator.run(pause.command, "g")  # which is shown in colour elsewhere
    words = ("status", "--config", str(operator.config))
    shown = await asyncio.to_thread(shown_on_a_terminal, *words, columns=40, **more)
    assert "Traceback" not in shown
    assert not re.search("\x1b\\[[0-9;]*3[0-9]", shown), shown


# -- progress ----------------------------------------------------------------------------------------------------------


def test_work_shows_nothing_in_a_pipe(capfd: pytest.CaptureFixture[str]) -> None:
    with working("reading") as show:
        show("reading more")
    assert capfd.readouterr() == ("", "")


def test_lines_are_passed_on_and_counted() -> None:
    shown: list[str] = []
    assert list(counted(range(1200), "importing", shown.append)) == list(range(1200))
    assert shown == ["importing: 500 lines", "importing: 1,000 lines"]


@needs_terminal
def test_a_command_that_waits_says_so_on_a_terminal() -> None:
    ours, theirs = pty.openpty()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [*PROGRAM, "call", "NodeGroups", "--timeout", "10m", "--address", address]
        with subprocess.Popen(command, env=environment(TERM="xterm"), stdout=theirs, stderr=theirs) as process:
            os.close(theirs)
            seen = b""
            with connected(silent):
                while b"waiting for the server" not in seen and (data := _read(ours)):
                    seen += data
                process.send_signal(signal.SIGINT)
                while data := _read(ours):
                    seen += data
    os.close(ours)
    assert b"waiting for the server" in seen
    assert process.returncode == 130, seen.decode()
