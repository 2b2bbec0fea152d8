"""The native listener's addresses, its end, and what other processes get of it."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cloudgraft.sdk import UnavailableError
from cloudgraft.server.listener import Access
from cloudgraft.server.serve import AutoscalerServer, Running, ServeOptions, running
from cloudgraft.service import CloudProviderService
from cloudgraft.testing import MemoryGroup, MemoryOptions, MemoryProvider
from cloudgraft.wire.externalgrpc import RPCS
from tests.cli.serve_process import ServeProcess
from tests.needs import needs_native
from tests.transports import server_of

pytestmark = needs_native


def memory() -> MemoryProvider:
    return MemoryProvider(MemoryOptions(groups=[MemoryGroup(id="a")]))


@asynccontextmanager
async def listening(listen: str, *, insecure: bool = False, grace: float = 0.0) -> AsyncIterator[AutoscalerServer]:
    server = server_of(CloudProviderService(memory()), Access(listen=listen, insecure=insecure))
    await server.start()
    try:
        yield server
    finally:
        await server.stop(grace)


async def answers(address: str) -> bool:
    # gRPC's library would call a unix socket by its path, which is no name of a host; Go's does as here.
    options = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        call: Any = channel.unary_unary(RPCS["NodeGroups"].path)
        return bool(await call(b"", timeout=20))


async def test_localhost_is_served_on_all_of_its_addresses() -> None:
    async with listening("localhost:0") as server:
        host, _, port = server.address.rpartition(":")
        assert host == "localhost"
        for family, *_, address in socket.getaddrinfo("localhost", None, type=socket.SOCK_STREAM):
            if _has(family, str(address[0])):
                literal = f"[{address[0]}]" if family is socket.AF_INET6 else address[0]
                assert await answers(f"{literal}:{port}")


def _has(family: int, address: str) -> bool:
    with contextlib.suppress(OSError), socket.socket(family) as attempt:
        attempt.bind((address, 0))
        return True
    return False


@pytest.mark.skipif(not _has(socket.AF_INET6, "::1"), reason="this machine has no IPv6")
@pytest.mark.parametrize("listen", ["[::]:0", "0.0.0.0:0"])
async def test_all_addresses_are_those_of_both_families(listen: str) -> None:
    async with listening(listen, insecure=True) as server:
        port = server.address.rpartition(":")[2]
        assert await answers(f"127.0.0.1:{port}")
        assert await answers(f"[::1]:{port}")


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
async def test_a_name_is_not_served_on_some_of_its_addresses(address: str) -> None:
    """Else another program would get a part of the calls."""
    host = address.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if host not in {str(one[4][0]) for one in socket.getaddrinfo("localhost", None)} or not _has(family, host):
        pytest.skip(f"localhost is not {host} here")
    with socket.socket(family) as taken:
        taken.bind((host, 0))
        taken.listen()
        server = server_of(CloudProviderService(memory()), Access(listen=f"localhost:{taken.getsockname()[1]}"))
        with pytest.raises(UnavailableError, match="is another program using it"):
            await server.start()


async def test_unix_sockets_come_and_go(tmp_path: Path) -> None:
    path = tmp_path / "s"
    for listen in (f"unix:{path}", f"unix://{path}"):
        async with listening(listen) as server:
            assert await answers(server.address)
            with pytest.raises(UnavailableError):
                await server_of(CloudProviderService(memory()), Access(listen=listen)).start()
            assert await answers(server.address)
        assert not path.exists()


async def test_a_unix_socket_that_was_left_behind_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    async with listening(f"unix:{path}") as server:
        assert await answers(server.address)


async def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("important")
    with pytest.raises(UnavailableError):
        async with listening(f"unix:{path}"):
            pass
    assert path.read_text() == "important"


async def test_a_socket_of_the_next_server_stays_when_the_last_one_ends(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with listening(f"unix:{path}"):
        path.unlink()
        next_one = server_of(CloudProviderService(memory()), Access(listen=f"unix:{path}"))
        await next_one.start()
    try:
        assert await answers(f"unix:{path}")
    finally:
        await next_one.stop(0)


async def test_abstract_sockets_are_served() -> None:
    async with listening(f"unix-abstract:cloudgraft-test-{os.getpid()}") as server:
        assert await answers(server.address)


async def test_a_stop_does_not_wait_for_those_who_have_no_call(tmp_path: Path) -> None:
    """One that says nothing, one that watches the health, and one that does not close."""
    async with contextlib.AsyncExitStack() as stack:
        server = server_of(CloudProviderService(memory()), Access(listen="127.0.0.1:0"), trouble=str)
        await server.start()
        host, _, port = server.address.rpartition(":")
        stack.enter_context(socket.create_connection((host, int(port))))
        deaf = stack.enter_context(socket.create_connection((host, int(port))))
        deaf.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.address))
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        async with asyncio.timeout(30):
            await server.stop(600)
        watch.cancel()


async def test_a_listener_that_was_never_started_stops_at_once() -> None:
    async with asyncio.timeout(30):
        await server_of(CloudProviderService(memory()), Access(listen="127.0.0.1:0")).stop(600)


# -- other processes ---------------------------------------------------------------------------------------------------


@asynccontextmanager
async def called() -> AsyncIterator[Running]:
    """A server with a connection that is open."""
    options = ServeOptions(listen="127.0.0.1:0")
    async with running(memory(), options) as up, grpc.aio.insecure_channel(up.address) as channel:
        call: Any = channel.unary_unary(RPCS["NodeGroups"].path)
        await call(b"", timeout=20)
        yield up


# What it has open, and what cannot be read any more: the descriptor with which the folder was read.
LIST_DESCRIPTORS = """
import os
for name in os.listdir("/proc/self/fd"):
    try:
        print(os.readlink(f"/proc/self/fd/{name}"))
    except OSError:
        pass
"""


async def test_programs_that_are_started_inherit_nothing_of_the_listener() -> None:
    async with called():
        here = _run(LIST_DESCRIPTORS)
        ours = {one for one in here if one.startswith(("socket:", "anon_inode:"))}
        assert len(ours) >= 4  # the listener, a connection, both ends of the queue's socket
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", LIST_DESCRIPTORS), close_fds=False, stdout=subprocess.PIPE
        )
        output, _ = await process.communicate()
        sockets = {one for one in ours if one.startswith("socket:")}
        assert not sockets & set(output.decode().split())


def _run(code: str) -> list[str]:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(code)
    return output.getvalue().split()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
async def test_a_fork_harms_neither_side() -> None:
    async with called() as up:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                os._exit(7)
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert os.waitstatus_to_exitcode(status) == 7
            assert await answers(up.address)


def configuration(directory: Path, listen: str) -> Path:
    group = {"id": "small", "cloud": "sim", "maxSize": 5, "machine": {"shape": "small"}}
    text = {
        "cluster": "test",
        "server": {"listen": listen, "transport": "native"},
        "clouds": {"sim": {"driver": "simulated"}},
        "nodeGroups": [group],
    }
    file = directory / "cloudgraft.yaml"
    file.write_text(json.dumps(text))
    return file


async def test_a_server_that_is_killed_leaves_nothing_that_stops_the_next(tmp_path: Path) -> None:
    path = tmp_path / "s"
    file = configuration(tmp_path, f"unix:{path}")
    with ServeProcess(file) as server:
        assert server.address
        assert await answers(f"unix:{path}")
        server.send(signal.SIGKILL)
        server.wait()
    assert path.is_socket()
    with ServeProcess(file) as server:
        assert server.address
        assert await answers(f"unix:{path}")
        server.send(signal.SIGTERM)
        assert server.wait() == 0
    assert not path.exists()


@pytest.mark.thorough
async def test_a_port_of_a_server_that_was_killed_is_free_at_once(tmp_path: Path) -> None:
    with ServeProcess(configuration(tmp_path, "127.0.0.1:0")) as server:
        address = server.address
        async with grpc.aio.insecure_channel(address) as channel:
            call: Any = channel.unary_unary(RPCS["NodeGroups"].path)
            await call(b"", timeout=20)
            server.send(signal.SIGKILL)
            server.wait()
    with ServeProcess(configuration(tmp_path, address)) as server:
        assert server.address == address
        began = time.monotonic()
        server.send(signal.SIGTERM)
        assert server.wait() == 0
        assert time.monotonic() - began < 20
