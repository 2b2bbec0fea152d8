"""The connection behaves as the autoscaler's own: deadlines, no retries, no waiting, 4 MiB, mTLS (R6, R9)."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import grpc
import grpc.aio
import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from cloudgraft.certs.issue import Pair, Validity, client_pair, new_authority, server_pair
from cloudgraft.client import Address, CloudConfig, Connection
from cloudgraft.sdk.errors import (
    CloudgraftError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from cloudgraft.wire.externalgrpc import RPCS
from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from tests.client.counting import CountingServer, StatusError

_REFRESH = RPCS["Refresh"]
_DAY = Validity.days(1)
_LONG = timedelta(seconds=30)  # for what must not depend on the speed of the machine


async def refresh(config: CloudConfig) -> None:
    async with Connection(config) as connection:
        await connection.call(_REFRESH, pb.RefreshRequest())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        assert isinstance(port, int)
        return port


# -- deadlines and servers that are away -------------------------------------------------------------------------------


async def test_a_server_that_never_answers_gives_a_deadline_error_that_names_the_limit(server: CountingServer) -> None:
    server.hang.add("Refresh")
    with pytest.raises(DeadlineError) as given_up:
        await refresh(replace(server.config, grpc_timeout=timedelta(milliseconds=200)))
    assert given_up.value.message == f"{server.address} did not answer Refresh within 200ms"


async def test_a_deadline_that_the_server_reports_keeps_the_servers_words(server: CountingServer) -> None:
    server.answers["Refresh"] = StatusError(grpc.StatusCode.DEADLINE_EXCEEDED, "the cloud took too long")
    with pytest.raises(DeadlineError, match="the cloud took too long"):
        await refresh(server.config)


async def test_the_server_gets_the_deadline(server: CountingServer) -> None:
    await refresh(server.config)
    assert 0 < server.time_remaining[0] < 6  # the default of the cloud-config; gRPC rounds up on the way
    await refresh(replace(server.config, grpc_timeout=timedelta(hours=1)))
    assert 6 < server.time_remaining[1] < 3660


async def test_a_server_that_is_down_is_unavailable_at_once_and_not_at_the_deadline() -> None:
    config = CloudConfig(address=Address.parse(f"127.0.0.1:{free_port()}"), grpc_timeout=timedelta(hours=1))
    async with asyncio.timeout(30):  # far less than the hour that the call itself may take
        with pytest.raises(UnavailableError):
            await refresh(config)


async def test_nothing_is_retried(server: CountingServer) -> None:
    server.answers["Refresh"] = StatusError(grpc.StatusCode.UNAVAILABLE, "not now")
    with pytest.raises(UnavailableError, match="not now"):
        await refresh(server.config)
    assert server.calls["Refresh"] == 1


async def test_a_server_that_comes_back_is_reached_again_over_the_same_connection() -> None:
    with CountingServer() as first:
        config, port = first.config, first.port
        connection = Connection(config)
        await connection.call(_REFRESH, pb.RefreshRequest())
    with pytest.raises(UnavailableError):
        await connection.call(_REFRESH, pb.RefreshRequest())
    with CountingServer(listen=f"127.0.0.1:{port}") as second:
        until = time.monotonic() + 30
        while not second.calls:
            assert time.monotonic() < until
            try:
                await connection.call(_REFRESH, pb.RefreshRequest())
            except UnavailableError:
                await asyncio.sleep(0.05)  # between two looks at the condition
    await connection.close()


async def test_two_connections_to_one_address_do_not_share_their_failures() -> None:
    port = free_port()
    config = CloudConfig(address=Address.parse(f"127.0.0.1:{port}"))
    failed = Connection(config)
    with pytest.raises(UnavailableError):
        await failed.call(_REFRESH, pb.RefreshRequest())
    with CountingServer(listen=f"127.0.0.1:{port}"):
        await refresh(config)  # at its first attempt
    await failed.close()


async def test_cancelling_a_call_cancels_it_and_the_connection_lives_on(server: CountingServer) -> None:
    server.hang.add("Refresh")
    async with Connection(server.config) as connection:
        call = asyncio.create_task(connection.call(_REFRESH, pb.RefreshRequest()))
        await asyncio.to_thread(server.held.acquire)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        server.release.set()
        await connection.call(_REFRESH, pb.RefreshRequest())


async def test_a_closed_connection_refuses_calls_and_may_be_closed_again(server: CountingServer) -> None:
    connection = Connection(server.config)
    await connection.close()
    await connection.close()
    with pytest.raises(InternalError, match="closed already"):
        await connection.call(_REFRESH, pb.RefreshRequest())
    assert not server.calls


async def test_a_ready_made_channel_is_used_and_closed_with_the_connection(server: CountingServer) -> None:
    channel = grpc.aio.insecure_channel(server.address)
    elsewhere = CloudConfig(address=Address.parse("nowhere.invalid:1"))
    async with Connection(elsewhere, channel=channel) as connection:
        await connection.call(_REFRESH, pb.RefreshRequest())
    assert server.calls["Refresh"] == 1
    assert channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN


async def test_a_proxy_in_the_environment_is_not_asked_for_this_machine(
    server: CountingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    await refresh(server.config)


# -- what is on the wire -----------------------------------------------------------------------------------------------


async def test_an_answer_of_nearly_4_mib_is_taken_and_a_larger_one_is_an_error_that_says_so(
    server: CountingServer,
) -> None:
    """R42."""
    rpc, request = RPCS["NodeGroupNodes"], pb.NodeGroupNodesRequest(id="a")
    async with Connection(replace(server.config, grpc_timeout=_LONG)) as connection:
        server.answers["NodeGroupNodes"] = pb.NodeGroupNodesResponse(
            instances=[pb.Instance(id="i" * (4 * 1024 * 1024 - 100))]
        )
        await connection.call(rpc, request)
        server.answers["NodeGroupNodes"] = pb.NodeGroupNodesResponse(instances=[pb.Instance(id="i" * 4 * 1024 * 1024)])
        with pytest.raises(InternalError, match="4 MiB"):
            await connection.call(rpc, request)
        await connection.call(_REFRESH, pb.RefreshRequest())  # the connection lives on


async def test_a_request_that_is_too_large_for_the_server_is_an_invalid_argument() -> None:
    with CountingServer(max_bytes=1000) as small:
        async with Connection(small.config) as connection:
            with pytest.raises(InvalidArgumentError, match="too large for the server"):
                await connection.call(RPCS["NodeGroupTargetSize"], pb.NodeGroupTargetSizeRequest(id="a" * 2000))


async def test_an_invalid_answer_is_an_internal_error(server: CountingServer) -> None:
    server.answers["NodeGroups"] = b"\xff\xff\xff"
    async with Connection(server.config) as connection:
        with pytest.raises(InternalError, match="undecodable bytes"):
            await connection.call(RPCS["NodeGroups"], pb.NodeGroupsRequest())


async def test_something_that_does_not_speak_grpc_is_an_error_of_that_call() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):  # also when the client dials once more just before the test ends
            await reader.read(1)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with listener:
        with pytest.raises(UnavailableError):
            await refresh(CloudConfig(address=Address.parse(f"127.0.0.1:{port}")))


async def test_unknown_fields_of_an_answer_are_kept(server: CountingServer) -> None:
    server.answers["Refresh"] = b"\x9a\x06\x03new"  # field 99
    async with Connection(server.config) as connection:
        answer = await connection.call(_REFRESH, pb.RefreshRequest())
    assert answer.SerializeToString() == b"\x9a\x06\x03new"


async def test_a_unix_socket_is_an_address_too(tmp_path: Path) -> None:
    """R9."""
    with CountingServer(listen=f"unix:{tmp_path}/s") as local:
        await refresh(CloudConfig.parse(f"address: unix:{tmp_path}/s"))
        assert local.calls["Refresh"] == 1


@pytest.mark.parametrize("form", ["[::1]:{}", "[::1%lo]:{}"])
async def test_an_ipv6_address_with_and_without_a_zone_is_dialled(form: str) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:  # without IPv6 it is as a server that is away
        with pytest.raises(UnavailableError):
            await refresh(CloudConfig(address=Address.parse(form.format(9))))
        return
    with CountingServer(listen="[::1]:0") as six:
        await refresh(CloudConfig(address=Address.parse(form.format(six.port))))
        assert six.calls["Refresh"] == 1


# -- mTLS --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Tls:
    """A server that wants a client certificate, and the files of a client that has one."""

    server: CountingServer
    authority: Pair
    directory: Path

    def config(self, host: str = "127.0.0.1", **files: str) -> CloudConfig:
        names = {"key": "client.key", "cert": "client.crt", "cacert": "ca.crt", **files}
        paths = {name: str(self.directory / file) for name, file in names.items()}
        return CloudConfig(address=Address.parse(f"{host}:{self.server.port}"), grpc_timeout=_LONG, **paths)  # type: ignore[arg-type]  # all strings

    def write(self, name: str, pair: Pair) -> None:
        (self.directory / f"{name}.crt").write_bytes(pair.certificate_pem)
        (self.directory / f"{name}.key").write_bytes(pair.key_pem)


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[Tls]:
    authority = new_authority(_DAY)
    pair = server_pair(authority, [ip_address("127.0.0.1")], _DAY)
    credentials = grpc.ssl_server_credentials(
        [(pair.key_pem, pair.certificate_pem)], authority.certificate_pem, require_client_auth=True
    )
    with CountingServer(credentials=credentials) as running:
        made = Tls(server=running, authority=authority, directory=tmp_path)
        made.write("ca", authority)
        made.write("client", client_pair(authority, "autoscaler", _DAY))
        yield made


async def test_mtls_works_with_the_three_files(tls: Tls) -> None:
    await refresh(tls.config())
    assert tls.server.calls["Refresh"] == 1


async def test_the_servers_certificate_must_be_for_the_host_of_the_address(tls: Tls) -> None:
    """R9: ServerName is the host of the address, and the certificate is for 127.0.0.1 only."""
    with pytest.raises(UnavailableError):
        await refresh(tls.config(host="localhost"))
    assert not tls.server.calls


async def test_a_client_without_a_certificate_or_with_a_foreign_or_expired_one_is_turned_away(tls: Tls) -> None:
    past = datetime.now(UTC) - timedelta(days=2)
    expired = Validity(not_before=past, not_after=past + timedelta(days=1))
    tls.write("expired", client_pair(tls.authority, "autoscaler", expired))
    tls.write("foreign", client_pair(new_authority(_DAY), "autoscaler", _DAY))
    for config in (
        CloudConfig(address=tls.config().address, grpc_timeout=_LONG),
        replace(tls.config(), cert="", key="", tls=True),
        tls.config(cert="expired.crt", key="expired.key"),
        tls.config(cert="foreign.crt", key="foreign.key"),
    ):
        with pytest.raises(UnavailableError):
            await refresh(config)
    assert not tls.server.calls


async def test_a_server_of_another_authority_is_not_trusted(tls: Tls) -> None:
    tls.write("other", new_authority(_DAY))
    with pytest.raises(UnavailableError):
        await refresh(tls.config(cacert="other.crt"))
    assert not tls.server.calls


async def test_an_https_url_checks_the_server_and_needs_no_client_certificate(tmp_path: Path) -> None:
    authority = new_authority(_DAY)
    pair = server_pair(authority, [ip_address("127.0.0.1")], _DAY)
    (tmp_path / "ca.crt").write_bytes(authority.certificate_pem)
    with CountingServer(credentials=grpc.ssl_server_credentials([(pair.key_pem, pair.certificate_pem)])) as running:
        url = f"https://{running.address}"
        await refresh(CloudConfig.from_url(url, cacert=str(tmp_path / "ca.crt"), grpc_timeout=_LONG))
        assert running.calls["Refresh"] == 1
        with pytest.raises(UnavailableError):  # no public authority has signed it
            await refresh(CloudConfig.from_url(url, grpc_timeout=_LONG))


async def test_relative_paths_are_relative_to_the_working_directory(tls: Tls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tls.directory)
    await refresh(replace(tls.config(), key="client.key", cert="client.crt", cacert="ca.crt"))
    with pytest.raises(NotFoundError, match="the working directory"):
        Connection(replace(tls.config(), key="nowhere.key"))


def _encrypt(tls: Tls) -> None:
    key = client_pair(tls.authority, "autoscaler", _DAY).key
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    (tls.directory / "client.key").write_bytes(encrypted)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda tls: (tls.directory / "client.key").unlink(), "client.key does not exist"),
        (lambda tls: (tls.directory / "client.crt").unlink(), "client.crt does not exist"),
        (lambda tls: (tls.directory / "ca.crt").unlink(), "ca.crt does not exist"),
        (lambda tls: (tls.directory / "client.key").write_text("secret words"), "holds no PEM private key"),
        (lambda tls: (tls.directory / "client.crt").write_text("x"), "client.crt holds no PEM certificate"),
        (lambda tls: (tls.directory / "ca.crt").write_text(""), "ca.crt holds no PEM certificate"),
        (lambda tls: (tls.directory / "client.key").write_bytes(tls.authority.key_pem), "does not belong to"),
        (_encrypt, "is protected by a passphrase"),
    ],
    ids=["no key", "no cert", "no ca", "bad key", "bad cert", "empty ca", "wrong key", "encrypted key"],
)
def test_an_unusable_file_is_an_error_before_anything_is_dialled(
    tls: Tls, damage: Callable[[Tls], object], message: str
) -> None:
    damage(tls)
    with pytest.raises(CloudgraftError, match=message) as refused:
        Connection(tls.config())
    assert str(tls.directory) in refused.value.message
    assert "secret words" not in refused.value.message


async def test_over_a_unix_socket_the_certificate_is_checked_for_the_host_of_the_address_too(
    tls: Tls, tmp_path: Path
) -> None:
    """R9: Go splits unix:/path into the host "unix" and the rest, so that is the name it looks for."""
    pair = server_pair(tls.authority, ["unix"], _DAY)
    credentials = grpc.ssl_server_credentials(
        [(pair.key_pem, pair.certificate_pem)], tls.authority.certificate_pem, require_client_auth=True
    )
    with CountingServer(credentials=credentials, listen=f"unix:{tmp_path}/s") as local:
        await refresh(replace(tls.config(), address=Address.parse(f"unix:{tmp_path}/s")))
        assert local.calls["Refresh"] == 1
