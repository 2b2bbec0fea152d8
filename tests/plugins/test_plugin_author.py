"""The author's one line: what a program does that calls ``cloudgraft.plugin.serve``."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cloudgraft.plugin import serve
from cloudgraft.plugins.author import make_plugin
from cloudgraft.plugins.handshake import COOKIE_KEY, COOKIE_VALUE
from cloudgraft.plugins.host.process import PluginSpec, launch
from cloudgraft.plugins.host.remote import PluginProvider
from cloudgraft.plugins.host.supervisor import PluginState
from cloudgraft.sdk import InvalidArgumentError, NodeGroup
from cloudgraft.server import TlsFiles
from cloudgraft.testing import MemoryProvider
from tests.conditions import until
from tests.plugins.plugin_programs import DRIVER, PROVIDER, TIMING, provider_spec, shell, with_packages
from tests.plugins.processes import alive

BLOCKING = """
from cloudgraft.plugin import serve
from cloudgraft.sdk import BlockingProvider, NodeGroup

class Plain(BlockingProvider):
    def start(self):
        print("started")
    def close(self):
        print("closed")
    def node_groups(self):
        return [NodeGroup(id="plain", min_size=1, max_size=2)]
    node_group_for_node = target_size = instances = increase_size = delete_nodes = decrease_target_size = None

print("before", end="")
serve(Plain())
"""
MEMORY = "from cloudgraft.plugin import serve; from cloudgraft.testing import MemoryProvider; serve(MemoryProvider)"


@asynccontextmanager
async def started(spec: PluginSpec) -> AsyncIterator[PluginProvider]:
    provider = PluginProvider(spec, timing=TIMING)
    await provider.start()
    try:
        yield provider
    finally:
        await provider.close()


@pytest.mark.parametrize(
    ("program", "kind", "config"),
    [
        (PROVIDER, "the provider PoolProvider", "providers:\n  - type: plugin\n    command: ["),
        (DRIVER, "the driver FileDriver", "clouds:\n  my-cloud:\n    driver: plugin\n    command: ["),
    ],
)
def test_run_by_hand_it_says_what_it_is_and_how_to_configure_it(program: Path, kind: str, config: str) -> None:
    result = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1
    assert result.stdout == ""
    assert kind in result.stderr
    assert config in result.stderr
    assert f'"{program}"' in result.stderr


def test_without_a_certificate_from_its_host_it_does_not_serve() -> None:
    """Fail closed: there is no way to make it serve in plain text."""
    env = {**os.environ, COOKIE_KEY: COOKIE_VALUE}
    result = subprocess.run(
        [sys.executable, str(PROVIDER)], capture_output=True, text=True, timeout=60, check=False, env=env
    )
    assert result.returncode == 1
    assert "never serves without TLS" in result.stderr
    assert result.stdout == ""


async def test_a_blocking_provider_is_served_and_what_it_prints_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Also a print without a newline before serve(), which would otherwise stand in front of the handshake."""
    caplog.set_level(logging.INFO, "cloudgraft.plugins")
    async with started(PluginSpec(name="plain", command=with_packages(BLOCKING))) as provider:
        assert provider.status.state is PluginState.RUNNING, provider.status.last_error
        assert await provider.node_groups() == [NodeGroup(id="plain", min_size=1, max_size=2)]
        await until(lambda: "started" in caplog.messages)  # while it runs, not only when it ends
    assert "closed" in caplog.messages  # it was stopped in order, not killed


@pytest.mark.thorough
async def test_a_class_is_made_with_the_options_of_the_configuration() -> None:
    options = {"groups": [{"id": "a", "maxSize": 3, "cpu": "8"}, {"id": "b"}]}
    async with started(PluginSpec(name="memory", command=with_packages(MEMORY), options=options)) as provider:
        assert [(group.id, group.max_size) for group in await provider.node_groups()] == [("a", 3), ("b", 10)]


async def test_the_host_gets_the_errors_of_wrong_options() -> None:
    options = {"groups": [{"id": "a", "maxSise": 3}]}
    async with started(PluginSpec(name="memory", command=with_packages(MEMORY), options=options)) as provider:
        assert "exited with code 1 before its handshake" in provider.status.last_error
        assert "groups[0].maxSise" in provider.status.last_error
        assert "maxSize" in provider.status.last_error  # what it should have been


async def test_an_error_of_a_providers_start_reaches_the_host() -> None:
    code = BLOCKING.replace('print("started")', 'raise RuntimeError("no route to the cloud")')
    async with started(PluginSpec(name="plain", command=with_packages(code))) as provider:
        assert provider.status.state is not PluginState.RUNNING
        assert "no route to the cloud" in provider.status.last_error


async def test_to_be_stopped_while_it_starts_does_not_wait_for_the_start(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cloudgraft.plugins")
    code = BLOCKING.replace('print("started")', 'print("starting", flush=True); import time; time.sleep(600)')
    spec = PluginSpec(name="plain", command=with_packages(code))
    provider = PluginProvider(spec, timing=replace(TIMING, first_run=0.01, stop_grace=60))
    await provider.start()
    await until(lambda: "starting" in caplog.messages, what="its start hangs")
    await asyncio.wait_for(provider.close(), 30)  # half of what it would have until SIGKILL


async def test_it_ends_by_itself_when_its_input_does(tmp_path: Path) -> None:
    """The last line of defence, should watchdog and host both be killed at once."""
    # Not a pipe of ours in /proc: a worker that has run a server's command is closed to other processes.
    os.mkfifo(tmp_path / "input")
    held = os.open(tmp_path / "input", os.O_RDWR)  # also to read, so that neither we nor the shell wait for each other
    spec = provider_spec()
    command = shell(f"{spec.command[0]} {spec.command[1]} < {tmp_path / 'input'}")
    child = await launch(PluginSpec(name="held", command=command), TIMING)
    try:
        os.close(held)
        assert "exited with code 0" in await asyncio.wait_for(child.wait(), 20)
    finally:
        await child.stop()


async def test_it_ends_by_itself_when_its_parent_does() -> None:
    """A wrapper that is killed leaves a plugin whose input is not a pipe; the watchdog is kept out of it here."""
    spec = provider_spec()
    argv = shell(f"{spec.command[0]} {spec.command[1]} < /dev/null & echo $!; wait")
    env = {**os.environ, COOKIE_KEY: COOKIE_VALUE, "PLUGIN_CLIENT_CERT": make_certificate()}
    wrapper = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE, env=env)
    assert wrapper.stdout is not None
    plugin = alive(int(await wrapper.stdout.readline()))
    assert await wrapper.stdout.readline() == b"\n"
    assert (await wrapper.stdout.readline()).startswith(b"1|1|unix|")
    assert plugin is not None
    wrapper.kill()
    await until(lambda: not plugin.is_alive, what="the plugin has ended")
    assert await wrapper.stdout.read() == b""
    await wrapper.wait()


def make_certificate() -> str:
    from cloudgraft.plugins.throwaway_tls import make_key_pair

    return make_key_pair().certificate.decode()


def test_what_is_neither_provider_nor_driver_is_refused() -> None:
    for wrong in (object(), object, 7):
        with pytest.raises(InvalidArgumentError, match="neither a Provider nor a Driver"):
            make_plugin(wrong)  # type: ignore[arg-type]


def test_tls_files_belong_to_a_server_of_its_own() -> None:
    files = TlsFiles(cert=Path("a"), key=Path("b"), client_ca=Path("c"))
    with pytest.raises(InvalidArgumentError, match="say where to listen"):
        serve(MemoryProvider, tls=files)


async def test_library_warning_in_a_plugin_is_never_raised() -> None:
    code = BLOCKING.replace(
        "        return", '        import warnings; warnings.warn("old", DeprecationWarning)\n        return'
    )
    spec = PluginSpec(name="old", command=with_packages(code), env={"PYTHONWARNINGS": "error"})
    async with started(spec) as provider:
        assert [group.id for group in await provider.node_groups()] == ["plain"]
