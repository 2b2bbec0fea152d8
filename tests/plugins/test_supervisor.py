"""A plugin is kept running, whatever it does; its callers hear at once when it is away."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cloudgraft.plugins.host.process import CannotStartError, PluginSpec, Timing
from cloudgraft.plugins.host.remote import PluginProvider
from cloudgraft.plugins.host.supervisor import PluginState, PluginStatus, Supervisor
from cloudgraft.sdk import CloudgraftError, NodeGroup, UnavailableError
from cloudgraft.service.snapshot import SnapshotProvider, SnapshotSettings
from tests.conditions import until
from tests.plugins.plugin_programs import GO_LIKE, PROVIDER, ROOT, TIMING, provider_spec, shell, with_packages
from tests.plugins.processes import below, came_after

POOL = NodeGroup(id="pool", min_size=0, max_size=5, debug="pretended machines")
SERVED_PLAINLY = ROOT / "tests" / "plugins" / "served_plainly.py"
SLOW = f"""
import asyncio, sys
sys.path.insert(0, {str(PROVIDER.parent)!r})
from plugin_provider import PoolProvider
from cloudgraft.plugin import serve

class Slow(PoolProvider):
    async def refresh(self):
        print("refreshing", flush=True)
        await asyncio.sleep(600)

serve(Slow())
"""


@asynccontextmanager
async def supervised(command: list[str], timing: Timing = TIMING) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(PluginSpec(name="p", command=command), timing=timing, jitter=lambda: 0.0)
    await supervisor.start()
    try:
        yield supervisor
    finally:
        await supervisor.stop()


@asynccontextmanager
async def started(spec: PluginSpec, timing: Timing = TIMING) -> AsyncIterator[PluginProvider]:
    provider = PluginProvider(spec, timing=timing)
    await provider.start()
    try:
        yield provider
    finally:
        await provider.close()


async def reaches(supervisor: Supervisor, condition: Callable[[PluginStatus], bool]) -> PluginStatus:
    return await asyncio.wait_for(supervisor.wait_for(condition), 30)


def runs_again(status: PluginStatus) -> bool:
    return status.state is PluginState.RUNNING and status.restarts >= 1


def backs_off(after: int) -> Callable[[PluginStatus], bool]:
    return lambda status: status.restarts == after and status.state is PluginState.BACKING_OFF


def kill(status: PluginStatus, number: int = signal.SIGKILL) -> None:
    assert status.pid is not None
    os.kill(status.pid, number)


async def test_a_plugin_answers_and_is_stopped_cleanly(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cloudgraft.plugins")
    others = below(os.getpid())
    async with started(provider_spec()) as provider:
        assert provider.status.state is PluginState.RUNNING
        assert await provider.node_groups() == [POOL]
        await provider.increase_size("pool", 2)
        assert await provider.target_size("pool") == 2
        family = came_after(others)
        assert provider.status.pid in {process.pid for process in family}
    assert provider.status == PluginStatus(state=PluginState.STOPPED)
    assert not any(process.is_alive for process in family)
    assert "2 more machines" in caplog.messages  # what it printed is in our log
    with pytest.raises(UnavailableError, match="the plugin 'pool' is stopped"):
        await provider.node_groups()


async def test_a_plugin_killed_with_9_is_back_within_its_backoff_at_another_address() -> None:
    async with started(provider_spec()) as provider:
        before = provider.supervisor.connection()
        kill(provider.status)
        status = await reaches(provider.supervisor, runs_again)
        assert status.restarts == 1
        assert status.last_error == "it was ended by SIGKILL"
        assert provider.supervisor.connection() is not before
        assert await provider.node_groups() == [POOL]


async def test_while_a_plugin_is_away_every_call_fails_at_once() -> None:
    async with started(provider_spec(), replace(TIMING, backoff_first=600, backoff_max=600)) as provider:
        kill(provider.status)
        await reaches(provider.supervisor, lambda status: status.state is PluginState.BACKING_OFF)
        with pytest.raises(UnavailableError, match="is backing off: it was ended by SIGKILL"):
            await asyncio.wait_for(provider.node_groups(), 5)
        began = time.monotonic()
    assert time.monotonic() - began < 60  # the end does not wait for the backoff


@pytest.mark.thorough
async def test_behind_a_snapshot_its_groups_are_never_gone() -> None:
    """Law 6: a child killed with -9 changes nothing in the answers of the reads."""
    plugin = PluginProvider(provider_spec(), timing=TIMING)
    snapshot = SnapshotProvider(plugin, name="pool", settings=SnapshotSettings(refresh_every=0.02))
    await snapshot.start()
    try:
        await snapshot.increase_size("pool", 3)
        for round_ in range(1, 3):
            kill(plugin.status)
            while not (plugin.status.state is PluginState.RUNNING and plugin.status.restarts == round_):
                assert await snapshot.node_groups() == [POOL]
                await snapshot.target_size("pool")
                await snapshot.refresh()
                await asyncio.sleep(0.001)
        await until(lambda: snapshot.trouble == "", what="the snapshot is fresh again")
        assert await snapshot.node_groups() == [POOL]
    finally:
        await snapshot.close()


async def test_a_plugin_that_exits_at_once_is_tried_ever_more_rarely(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    began = time.monotonic()
    async with supervised(shell(f"echo x >> {starts}; echo no config >&2; exit 1")) as supervisor:
        waits = [(await reaches(supervisor, backs_off(count))).retry_in for count in range(5)]
        assert waits == [0.05, 0.1, 0.2, 0.4, 0.4]
        status = supervisor.status
        assert status.state is PluginState.BACKING_OFF
        assert "exited with code 1 before its handshake; its stderr said: no config" in status.last_error
        assert time.monotonic() - began >= sum(waits[:-1])
        assert starts.read_text() == "x\n" * 5  # one start per wait: no busy loop


async def test_a_first_run_that_fails_is_tried_again_and_is_no_error(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    command = shell(f"if [ -e {mark} ]; then exec {sys.executable} {PROVIDER}; fi; touch {mark}; exit 1")
    async with supervised(command) as supervisor:
        status = await reaches(supervisor, lambda status: status.state is PluginState.RUNNING)
        assert status.restarts == 1


async def test_a_slow_first_run_does_not_hold_up_the_start(tmp_path: Path) -> None:
    """Trouble stays local: other providers must not wait for it."""
    mark = tmp_path / "mark"
    command = shell(f"while ! [ -e {mark} ]; do sleep 0.02; done; exec {sys.executable} {PROVIDER}")
    async with supervised(command, replace(TIMING, first_run=0.05)) as supervisor:
        assert supervisor.status.state is PluginState.STARTING
        with pytest.raises(UnavailableError, match="the plugin 'p' is starting"):
            supervisor.connection()
        mark.touch()
        await reaches(supervisor, lambda status: status.state is PluginState.RUNNING)


async def test_a_command_that_cannot_be_executed_is_an_error_at_the_start() -> None:
    supervisor = Supervisor(PluginSpec(name="p", command=["/no/such/plugin"]), timing=TIMING)
    with pytest.raises(CannotStartError, match="the plugin 'p': it cannot be started: No such file"):
        await supervisor.start()
    assert supervisor.status.state is PluginState.STOPPED


@pytest.mark.thorough
async def test_a_plugin_that_hangs_is_restarted(caplog: pytest.LogCaptureFixture) -> None:
    """Stopped with SIGSTOP it neither answers nor ends: health finds it, and SIGKILL ends it."""
    timing = replace(TIMING, health_interval=0.05, health_timeout=1.0, health_failures=2, stop_grace=0.1)
    async with started(provider_spec(), timing) as provider:
        kill(provider.status, signal.SIGSTOP)
        hung = asyncio.create_task(provider.node_groups())
        status = await reaches(provider.supervisor, runs_again)
        assert "failed 2 health checks in a row; the last: DEADLINE_EXCEEDED" in status.last_error
        with pytest.raises(CloudgraftError):
            await hung
        assert await provider.node_groups() == [POOL]


@pytest.mark.parametrize("end", ["kill", "close"])
async def test_a_call_under_way_when_the_plugin_ends_is_an_error_and_not_a_cancellation(
    end: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cloudgraft.plugins")
    async with started(PluginSpec(name="slow", command=with_packages(SLOW))) as provider:
        call = asyncio.create_task(provider.refresh())
        await until(lambda: "refreshing" in caplog.messages, what="the call has reached the plugin")
        if end == "kill":
            kill(provider.status)
        else:
            await provider.close()
        with pytest.raises(CloudgraftError):
            await asyncio.wait_for(call, 20)
        assert not call.cancelled()


async def test_a_caller_that_is_cancelled_is_cancelled() -> None:
    async with started(PluginSpec(name="slow", command=with_packages(SLOW))) as provider:
        call = asyncio.create_task(provider.refresh())
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


async def test_to_stop_does_not_wait_for_a_handshake_that_never_comes() -> None:
    supervisor = Supervisor(PluginSpec(name="p", command=shell("exec sleep 600")), timing=TIMING)
    starting = asyncio.create_task(supervisor.start())
    await until(lambda: any("sleep 600" in process.command for process in below(os.getpid())))
    await asyncio.wait_for(supervisor.stop(), 20)
    with pytest.raises(CannotStartError, match="it was stopped before it ran"):
        await starting
    assert not any("sleep 600" in process.command for process in below(os.getpid()))


async def test_a_plugin_may_listen_on_loopback_with_the_certificate_that_was_made_for_it() -> None:
    async with supervised([sys.executable, str(SERVED_PLAINLY), "given"]) as supervisor:
        assert supervisor.status.state is PluginState.RUNNING


@pytest.mark.parametrize("mode", ["none", "other"])
async def test_a_plugin_without_the_tls_of_its_handshake_is_never_talked_to(mode: str) -> None:
    timing = replace(TIMING, connect=1.0, backoff_first=600, backoff_max=600)
    async with supervised([sys.executable, str(SERVED_PLAINLY), mode], timing) as supervisor:
        assert supervisor.status.state is PluginState.BACKING_OFF
        assert "with mutual TLS" in supervisor.status.last_error
        with pytest.raises(UnavailableError):
            supervisor.connection()


async def test_a_plugin_made_with_go_plugin_works(caplog: pytest.LogCaptureFixture) -> None:
    """Its certificate is on a curve that grpcio does not take, and it sends its output as a stream."""
    caplog.set_level(logging.INFO, "cloudgraft.plugins")
    spec = PluginSpec(name="go", command=[sys.executable, str(GO_LIKE)])
    async with started(spec, replace(TIMING, health_interval=0.02)) as provider:
        assert await provider.node_groups() == [NodeGroup(id="go", min_size=0, max_size=5)]
        await until(lambda: "printed by Go" in caplog.messages, what="its output is in our log")
        kill(provider.status)
        await reaches(provider.supervisor, runs_again)
        assert await provider.node_groups() == [NodeGroup(id="go", min_size=0, max_size=5)]
