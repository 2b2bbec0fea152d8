"""Commands of a server's author: real processes, ended when they must be, left alone when they may go on."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from cloudgraft.conformance.check import Need
from cloudgraft.conformance.hooks import HookRunner
from cloudgraft.conformance.kit import KitConfig
from cloudgraft.sdk.errors import CloudgraftError
from tests.conditions import until


def runner(limit: str = "20s", **hooks: object) -> HookRunner:
    return HookRunner(KitConfig.model_validate({"hooks": hooks, "patience": {"hook": limit}}))


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


def is_alive(pid: int) -> bool:
    """Whether it runs; a process that has ended and that nobody waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_begin_runs_before_the_block_and_end_after_it_also_when_it_fails(tmp_path: Path) -> None:
    log = tmp_path / "log"
    hooks = runner(stockOut={"begin": shell(f"echo begin >>{log}"), "end": shell(f"echo end >>{log}")})

    async def fail() -> None:
        async with hooks.during(Need.STOCK_OUT):
            assert log.read_text() == "begin\n"
            raise ValueError("within")

    with pytest.raises(ValueError, match="within"):
        await fail()
    assert log.read_text() == "begin\nend\n"


async def test_end_runs_also_when_the_kit_is_cancelled(tmp_path: Path) -> None:
    log = tmp_path / "log"
    hooks = runner(slowCloud={"begin": ["true"], "end": shell(f"echo end >>{log}")})
    inside = asyncio.Event()

    async def judge() -> None:
        async with hooks.during(Need.SLOW_CLOUD):
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(judge())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log.read_text() == "end\n"


async def test_a_failed_command_is_reported_with_what_it_wrote() -> None:
    with pytest.raises(CloudgraftError, match=r"restart .* ended with 3: no such unit"):
        await runner(restart=shell("echo no such unit >&2; exit 3")).restart()
    with pytest.raises(CloudgraftError, match="cannot be started"):
        await runner(restart=["/no/such/program"]).restart()


async def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"trap '' TERM; sleep 600 & echo $! >{pids}; echo $$ >>{pids}; wait"
    with pytest.raises(CloudgraftError, match="did not end within 1s"):
        await runner("1s", restart=shell(script)).restart()
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 2
    await until(lambda: not any(map(is_alive, started)), what="both processes are gone")


async def test_what_a_command_leaves_running_on_purpose_is_not_waited_for_nor_ended(tmp_path: Path) -> None:
    """A restart leaves a server behind, which keeps the command's output open."""
    pid = tmp_path / "pid"
    await runner(restart=shell(f"sleep 600 & echo $! >{pid}")).restart()
    left = int(pid.read_text())
    try:
        assert is_alive(left)
    finally:
        os.kill(left, signal.SIGKILL)


async def test_the_lost_machine_is_named_to_its_command(tmp_path: Path) -> None:
    file = tmp_path / "id"
    await runner(lostMachine=shell(f"echo '{{id}}' >{file}")).lose("sim://m-1")
    assert file.read_text() == "sim://m-1\n"
