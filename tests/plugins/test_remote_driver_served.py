"""A driver that is a server of its own: over TLS, with certificates that are replaced."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cloudgraft.client import Address, CloudConfig
from cloudgraft.plugins.author import DriverServer
from cloudgraft.plugins.host.remote import RemoteDriver, ServerLink
from cloudgraft.plugins.throwaway_tls import KeyPair, make_key_pair
from cloudgraft.sdk import (
    Driver,
    InvalidArgumentError,
)
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.server import TlsFiles
from cloudgraft.server.listener import Access
from cloudgraft.wire.driver import RPCS, SERVICE
from cloudgraft.wire.pb import driver_pb2 as pb
from tests.conditions import until
from tests.plugins.plugin_programs import DRIVER
from tests.plugins.scripted_driver import SPEC, Scripted


def write(directory: Path, name: str, pair: KeyPair) -> tuple[Path, Path]:
    certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    return certificate, key


@asynccontextmanager
async def over_tls(directory: Path, driver: Driver, allowed: Sequence[str] = ()) -> AsyncIterator[CloudConfig]:
    """A driver behind mutual TLS, and how its rightful client reaches it."""
    server_cert, server_key = write(directory, "server", make_key_pair())
    client_cert, client_key = write(directory, "client", make_key_pair())
    files = TlsFiles(cert=server_cert, key=server_key, client_ca=client_cert)
    server = DriverServer(driver, Access(listen="127.0.0.1:0", tls=files, allowed_clients=allowed))
    await server.start()
    port = server.address.rpartition(":")[2]
    yield CloudConfig(
        address=Address.parse(f"localhost:{port}"), cert=str(client_cert), key=str(client_key), cacert=str(server_cert)
    )
    await server.stop(0)


async def test_a_driver_as_a_server_over_tls(tmp_path: Path) -> None:
    driver = Scripted()
    async with over_tls(tmp_path, driver, allowed=["localhost"]) as config:
        remote = RemoteDriver.connect(config)
        await remote.start()
        assert (await remote.create(SPEC)).name == "m-1"
        await remote.close()


async def test_certificates_that_are_replaced_are_used_from_the_next_call_on(tmp_path: Path) -> None:
    async with over_tls(tmp_path, Scripted()) as config:
        remote = RemoteDriver.connect(config)
        await remote.start()
        server, client = make_key_pair(), make_key_pair()
        for name, pair in (("client", client), ("server", server)):
            write(tmp_path, name, pair)
            # Each half of the rotation by itself may be refused by either side; the whole must work.
            await asyncio.gather(remote.list(), return_exceptions=True)
        await until(lambda: works(remote), what="both sides use the new certificates")
        await remote.close()


async def works(remote: RemoteDriver) -> bool:
    try:
        await remote.list()
    except CloudgraftError:
        return False
    return True


async def test_a_certificate_without_its_key_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with over_tls(tmp_path, Scripted()) as config:
        remote = RemoteDriver.connect(config)
        await remote.start()
        (tmp_path / "client.key").write_bytes(make_key_pair().key)
        await remote.list()
        assert "the old ones stay" in caplog.text
        await remote.close()


@pytest.mark.parametrize("client", ["none", "another", "not allowed"])
async def test_only_the_right_client_reaches_a_driver(tmp_path: Path, client: str) -> None:
    driver = Scripted()
    allowed = ["somebody-else"] if client == "not allowed" else []
    async with over_tls(tmp_path, driver, allowed) as right:
        config = right
        if client == "none":
            config = CloudConfig(address=right.address, cacert=right.cacert, tls=True)
        elif client == "another":
            cert, key = write(tmp_path, "another", make_key_pair())
            config = CloudConfig(address=right.address, cert=str(cert), key=str(key), cacert=right.cacert)
        remote = RemoteDriver(ServerLink(config))
        await remote.link.start()
        with pytest.raises(CloudgraftError):
            await remote.list()
        await remote.close()
    assert driver.seen == []


def test_a_driver_elsewhere_is_not_talked_to_without_tls() -> None:
    with pytest.raises(InvalidArgumentError, match="without TLS"):
        ServerLink(CloudConfig(address=Address.parse("driver.example.org:8443")))


async def test_a_driver_does_not_listen_for_other_hosts_without_tls() -> None:
    with pytest.raises(InvalidArgumentError, match="without TLS"):
        DriverServer(Scripted(), Access(listen="0.0.0.0:0"))


async def test_the_example_serves_by_itself_until_a_signal(tmp_path: Path) -> None:
    argv = [sys.executable, str(DRIVER), "--listen", "127.0.0.1:0", str(tmp_path)]
    process = await asyncio.create_subprocess_exec(*argv, stderr=asyncio.subprocess.PIPE)
    try:
        assert process.stderr is not None
        address = (await process.stderr.readline()).decode().strip().removeprefix("serving on ")
        remote = RemoteDriver.connect(CloudConfig(address=Address.parse(address)))
        await remote.start()
        assert (await remote.create(SPEC)).provider_id == "file://m-1"
        await remote.close()
    finally:
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 20) == 0


def test_the_service_has_exactly_the_calls_of_its_proto_file() -> None:
    assert set(RPCS) == set(pb.DESCRIPTOR.services_by_name["Driver"].methods_by_name)
    assert pb.DESCRIPTOR.services_by_name["Driver"].full_name == SERVICE
