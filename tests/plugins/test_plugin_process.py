"""From a command to a handshake: what a program may do instead, and what is said of it."""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from cloudgraft.plugins.handshake import HandshakeError, PluginError
from cloudgraft.plugins.host.output import Output, OutputLog
from cloudgraft.plugins.host.process import CannotStartError, Child, PluginSpec, launch
from cloudgraft.sdk.errors import InvalidArgumentError, UnavailableError
from tests.conditions import until
from tests.plugins.plugin_programs import TIMING, python, shell
from tests.plugins.processes import below, came_after

GOOD_LINE = "1|1|unix|/nowhere|grpc|"
PATIENT = replace(TIMING, stop_grace=0.2)


def spec(
    command: list[str],
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
) -> PluginSpec:
    return PluginSpec(name="p", command=command, cwd=cwd, env=env or {}, options=options or {})


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No process and no directory, after every test here."""
    base = Path(tempfile.mkdtemp(prefix="cg-"))  # tmp_path is too long for a socket
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    yield
    assert not list(base.iterdir())
    base.rmdir()
    assert not [process for process in below(os.getpid()) if "child_guard.py" in process.command]


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (shell("exec yes garbage"), "prints and prints, but no handshake; its stdout said: garbage / garbage"),
        (shell("exec >&-; exec sleep 600"), "closed its stdout without a handshake"),
        (shell("exit 0"), "exited with code 0 before its handshake"),
        (shell("echo half; echo no module >&2; exit 3"), "exited with code 3 before its handshake"),
        (shell("echo half; echo no module >&2; exit 3"), "; its stdout said: half; its stderr said: no module"),
        (shell("kill -SEGV $$"), "was ended by SIGSEGV before its handshake"),
        (shell("echo '1|9|unix|/s|grpc|'; exec sleep 600"), "(it printed '1|9|unix|/s|grpc|')"),
    ],
)
async def test_what_is_no_handshake_is_refused_and_quoted(command: list[str], complaint: str) -> None:
    with pytest.raises(HandshakeError) as caught:
        await launch(spec(command), PATIENT)
    assert complaint in caught.value.message


@pytest.mark.parametrize(
    ("command", "seconds", "complaint"),
    [
        (python("import time; time.sleep(600)"), 0.2, "no handshake within 0.2 s; it printed nothing at all"),
        (shell("printf '1|1|unix|/s'; exec sleep 600"), 0.2, "no handshake within 0.2 s"),
        (shell("echo Listening on 8080; exec sleep 600"), 1.5, "its stdout said: Listening on 8080"),
        (shell("echo where is my config >&2; exec sleep 600"), 1.5, "its stderr said: where is my config"),
    ],
)
async def test_a_missing_handshake_is_an_error_that_quotes_the_output(
    command: list[str], seconds: float, complaint: str
) -> None:
    with pytest.raises(HandshakeError) as caught:
        await launch(spec(command), replace(PATIENT, handshake=seconds))
    assert complaint in caught.value.message


async def test_a_program_that_is_not_there_is_something_else_than_one_that_fails() -> None:
    with pytest.raises(CannotStartError, match="No such file or directory: /no/such/plugin"):
        await launch(spec(["/no/such/plugin"]), PATIENT)
    with pytest.raises(CannotStartError, match="No such file"):
        await launch(spec(shell("true"), cwd="/no/such/directory"), PATIENT)


@pytest.mark.parametrize("command", [[], [""], "python3 plugin.py"])
def test_a_command_must_be_a_list(command: list[str]) -> None:
    with pytest.raises(InvalidArgumentError, match="needs a command as a list"):
        spec(command)


async def test_stray_prints_before_the_line_do_no_harm_and_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cloudgraft.plugins")
    child = await launch(
        spec(shell(f"echo loading; echo warn >&2; echo '{GOOD_LINE}'; echo after; exec sleep 600")), TIMING
    )
    try:
        assert child.handshake.address == "/nowhere"
        await until(lambda: len(caplog.records) == 3, what="three lines in the log")
        found = {(record.getMessage(), vars(record)["stream"], vars(record)["plugin"]) for record in caplog.records}
        assert found == {("loading", "stdout", "p"), ("warn", "stderr", "p"), ("after", "stdout", "p")}
        assert {record.levelno for record in caplog.records} == {logging.INFO}
    finally:
        await child.stop()


async def test_a_plugin_may_close_its_stdout_right_after_the_line() -> None:
    for _ in range(3):
        child = await launch(spec(shell(f"echo '{GOOD_LINE}'; exec >&-; exec sleep 600")), TIMING)
        assert child.handshake.address == "/nowhere"
        await child.stop()


async def test_a_line_and_an_end_that_arrive_together_are_a_line_first() -> None:
    output, stdout, stderr = Output(OutputLog("p")), asyncio.StreamReader(), asyncio.StreamReader()
    stdout.feed_data(f"{GOOD_LINE}\n".encode())
    for stream in (stdout, stderr):
        stream.feed_eof()
    child = Child(spec(["x"]), TIMING)
    child._output = output
    output.follow(stdout, stderr)
    await child.shake_hands()
    assert child.handshake.address == "/nowhere"
    await child.stop()


async def test_a_talkative_plugin_is_never_blocked_by_a_full_pipe() -> None:
    """The whole output is read, also long after the handshake: 2 MB are thirty times what a pipe holds."""
    talk = "head -c 2000000 /dev/zero | tr '\\0' x >&2; echo; head -c 2000000 /dev/zero | tr '\\0' x"
    child = await launch(spec(shell(f"echo '{GOOD_LINE}'; {talk}; exit 5")), TIMING)
    try:
        assert "exited with code 5" in await asyncio.wait_for(child.wait(), 30)
    finally:
        await child.stop()


async def test_it_runs_with_its_own_environment_directory_and_options(tmp_path: Path) -> None:
    script = f"pwd > {tmp_path}/seen; env >> {tmp_path}/seen; ls -l $CLOUDGRAFT_PLUGIN_TLS_DIR >> {tmp_path}/seen"
    wanted = spec(
        shell(f"{script}; echo '{GOOD_LINE}'; exec sleep 600"),
        cwd=str(tmp_path),
        env={"COLOUR": "green"},
        options={"size": 3},
    )
    child = await launch(wanted, TIMING)
    try:
        seen = (tmp_path / "seen").read_text()
        assert seen.startswith(str(tmp_path))
        assert "COLOUR=green" in seen
        assert 'CLOUDGRAFT_PLUGIN_OPTIONS={"size":3}' in seen
        assert "BEGIN CERTIFICATE" in seen
        assert "PRIVATE KEY" not in seen
        assert seen.count("-rw-------") == 3
    finally:
        await child.stop()


async def test_the_secrets_of_a_plugin_are_not_in_its_repr() -> None:
    assert "hunter2" not in repr(spec(["x"], env={"PASSWORD": "hunter2"}, options={"token": "hunter2"}))


async def test_to_be_cancelled_while_it_waits_for_a_handshake_leaves_nothing_behind() -> None:
    others = below(os.getpid())
    launching = asyncio.create_task(launch(spec(shell("sleep 600 & sleep 600")), TIMING))
    await until(lambda: len(came_after(others)) >= 4, what="watchdog, shell and two sleeps")
    family = came_after(others)
    launching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await launching
    assert not any(process.is_alive for process in family if "sleep" in process.command)


async def test_a_start_interrupted_at_any_moment_leaves_nothing_behind() -> None:
    """The fixture above looks for processes and files; the moments are spread over the whole start."""
    for step in range(12):
        launching = asyncio.create_task(launch(spec(shell("sleep 600 & sleep 600")), PATIENT))
        await asyncio.sleep(0.004 * step)
        launching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(launching, 30)
    assert not [process for process in below(os.getpid()) if "sleep" in process.command]


async def test_stop_is_bounded_for_a_plugin_that_ignores_sigterm() -> None:
    stubborn = python(
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"print({GOOD_LINE!r}, flush=True)\n"
        "time.sleep(600)"
    )
    child = await launch(spec(stubborn), replace(TIMING, stop_grace=0.2))
    await asyncio.wait_for(child.stop(), 20)
    assert await child.wait() == "was ended by SIGKILL"


async def test_a_plugin_has_its_whole_grace_period_to_end(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = f"trap 'sleep 2; touch {mark}; exit 0' TERM; echo '{GOOD_LINE}'; while :; do sleep 0.05; done"
    child = await launch(spec(shell(script)), replace(TIMING, stop_grace=60))
    await child.stop()
    assert mark.exists()
    assert (await child.wait()).startswith("exited with code 0")


async def test_stop_may_be_said_twice_and_after_the_end() -> None:
    child = await launch(spec(shell(f"echo '{GOOD_LINE}'")), TIMING)
    await child.wait()
    await child.stop()
    await child.stop()


async def test_when_the_watchdog_is_killed_the_rest_is_ended_by_us() -> None:
    others = below(os.getpid())
    child = await launch(spec(shell(f"sleep 600 & echo '{GOOD_LINE}'; wait")), TIMING)
    try:
        family = came_after(others)
        (dog,) = [process for process in family if "child_guard.py" in process.command]
        os.kill(dog.pid, 9)
        assert "SIGKILL" in await asyncio.wait_for(child.wait(), 20)
        await until(lambda: not any(process.is_alive for process in family), what="nobody is left")
    finally:
        await child.stop()


async def test_a_directory_for_sockets_has_a_short_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(long))
        child = Child(spec(["x"]), TIMING)
    try:
        assert len(str(child.directory)) < 60
    finally:
        await child.stop()


def test_a_plugin_error_tells_the_caller_to_try_again() -> None:
    assert issubclass(PluginError, UnavailableError)
