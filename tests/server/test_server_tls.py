"""Who gets in: mTLS, allowed clients, and certificates that change while calls go on (law 9)."""

from __future__ import annotations

import asyncio
import logging
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from cloudgraft.certs.authority import create_bundle, issue_client, renew
from cloudgraft.client import CloudConfig, Connection, RemoteProvider
from cloudgraft.sdk import (
    CloudgraftError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from cloudgraft.server.clients import client_names
from cloudgraft.server.listener import Access
from cloudgraft.server.serve import ServeOptions
from cloudgraft.server.tls import ReloadingCredentials, TlsFiles
from cloudgraft.service import CloudProviderService
from cloudgraft.testing import MemoryGroup, MemoryOptions, MemoryProvider, Served, serving
from tests.conditions import until
from tests.transports import server_of

ALLOWED = "cluster-autoscaler-grpc-client"


def memory() -> MemoryProvider:
    return MemoryProvider(MemoryOptions(groups=[MemoryGroup(id="a")]))


def config(served: Served, cert: Path, key: Path, ca: Path) -> CloudConfig:
    return CloudConfig.parse(f"address: {served.address}\ncert: {cert}\nkey: {key}\ncacert: {ca}\n")


async def failure(cloud_config: CloudConfig) -> CloudgraftError:
    async with Connection(cloud_config) as connection:
        with pytest.raises(CloudgraftError) as caught:
            await RemoteProvider(connection).node_groups()
    return caught.value


async def test_all_calls_work_over_mtls_for_the_allowed_client(tmp_path: Path) -> None:
    provider = memory()
    options = ServeOptions(allowed_clients=[ALLOWED])
    async with (
        serving(provider, options, mtls_in=tmp_path) as served,
        Connection(CloudConfig.parse(served.cloud_config)) as connection,
    ):
        assert [group.id for group in await RemoteProvider(connection).node_groups()] == ["a"]


async def test_a_client_without_a_certificate_reaches_no_handler(tmp_path: Path) -> None:
    provider = memory()
    async with serving(provider, ServeOptions(allowed_clients=[ALLOWED]), mtls_in=tmp_path) as served:
        assert isinstance(await failure(CloudConfig.parse(f"address: {served.address}\n")), UnavailableError)
    assert not provider.log.calls


async def test_a_client_of_another_authority_reaches_no_handler(tmp_path: Path) -> None:
    provider = memory()
    async with serving(provider, ServeOptions(allowed_clients=[ALLOWED]), mtls_in=tmp_path / "ours") as served:
        assert served.certificates is not None
        other = create_bundle(tmp_path / "theirs", hosts=["127.0.0.1"])
        stranger = config(served, other.client_cert, other.client_key, served.certificates.ca_cert)
        assert isinstance(await failure(stranger), UnavailableError)
    assert not provider.log.calls


async def test_an_expired_client_reaches_no_handler(tmp_path: Path) -> None:
    provider = memory()
    async with serving(provider, ServeOptions(allowed_clients=[ALLOWED]), mtls_in=tmp_path) as served:
        ours = served.certificates
        assert ours is not None
        past = datetime.now(UTC) - timedelta(days=2)
        cert = issue_client(tmp_path, "old", not_before=past - timedelta(days=1), not_after=past)
        assert isinstance(await failure(config(served, *cert, ours.ca_cert)), UnavailableError)
    assert not provider.log.calls


async def test_a_client_of_our_authority_that_is_not_allowed_reaches_no_handler_and_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    provider = memory()
    async with serving(provider, ServeOptions(allowed_clients=[ALLOWED]), mtls_in=tmp_path) as served:
        assert served.certificates is not None
        cert = issue_client(tmp_path, "somebody-else")
        for _ in range(3):
            error = await failure(config(served, *cert, served.certificates.ca_cert))
            assert isinstance(error, PermissionDeniedError)
            assert "somebody-else" in error.message
        labels = {"listener": "autoscaler", "reason": "not_allowed"}
        refused = served.service.metrics.registry.get_sample_value("cloudgraft_refused_clients_total", labels)
        assert refused == 3
    assert not provider.log.calls
    told = [record for record in caplog.records if "allowedClients: somebody-else" in record.getMessage()]
    assert [record.levelno for record in told] == [logging.WARNING]  # once, not for every call


async def test_health_and_reflection_are_for_allowed_clients_too(tmp_path: Path) -> None:
    async with serving(memory(), ServeOptions(allowed_clients=[ALLOWED]), mtls_in=tmp_path) as served:
        assert served.certificates is not None
        for name, allowed in ((issue_client(tmp_path, "somebody-else"), False), (None, True)):
            cert, key = name or (served.certificates.client_cert, served.certificates.client_key)
            credentials = grpc.ssl_channel_credentials(
                served.certificates.ca_cert.read_bytes(), key.read_bytes(), cert.read_bytes()
            )
            async with grpc.aio.secure_channel(served.address, credentials) as channel:
                assert [await _code(call) for call in _other_calls(channel)] == [
                    grpc.StatusCode.OK if allowed else grpc.StatusCode.PERMISSION_DENIED
                ] * 3


def _other_calls(channel: grpc.aio.Channel) -> list[Any]:
    health = health_pb2_grpc.HealthStub(channel)
    question = reflection_pb2.ServerReflectionRequest(list_services="")
    return [
        health.Check(health_pb2.HealthCheckRequest(), timeout=10),
        health.Watch(health_pb2.HealthCheckRequest(), timeout=10),
        reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([question]), timeout=10),
    ]


async def _code(call: Any) -> grpc.StatusCode:
    try:
        if hasattr(call, "read"):
            await call.read()  # the first message of a stream; a health watch never ends by itself
            call.cancel()
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_without_a_list_every_client_of_our_authority_may_call(tmp_path: Path) -> None:
    async with serving(memory(), mtls_in=tmp_path) as served:
        assert served.certificates is not None
        cert = issue_client(tmp_path, "somebody-else")
        async with Connection(config(served, *cert, served.certificates.ca_cert)) as connection:
            assert await RemoteProvider(connection).node_groups()


async def test_the_servers_certificate_is_rotated_under_load_without_one_failed_call(tmp_path: Path) -> None:
    failures: list[Exception] = []
    done = 0

    async def load(served: Served, stop: asyncio.Event) -> None:
        nonlocal done
        while not stop.is_set():
            # A new connection each time, so that both certificates are used, and several calls on each.
            async with Connection(CloudConfig.parse(served.cloud_config)) as connection:
                for _ in range(5):
                    try:
                        await RemoteProvider(connection).node_groups()
                    except CloudgraftError as error:
                        failures.append(error)
                    done += 1

    async def steady(served: Served, stop: asyncio.Event) -> None:
        nonlocal done
        async with Connection(CloudConfig.parse(served.cloud_config)) as connection:
            while not stop.is_set():
                try:
                    await RemoteProvider(connection).target_size("a")
                except CloudgraftError as error:
                    failures.append(error)
                done += 1

    async with serving(memory(), mtls_in=tmp_path) as served:
        stop = asyncio.Event()
        tasks = [asyncio.create_task(load(served, stop)) for _ in range(3)]
        tasks.append(asyncio.create_task(steady(served, stop)))
        for _ in range(3):
            mark = done
            await asyncio.to_thread(renew, tmp_path, what="server")
            await until(lambda mark=mark: done > mark + 40)  # type: ignore[misc]  # bound per round
        stop.set()
        await asyncio.gather(*tasks)
    assert failures == []
    assert done > 120


async def test_a_front_uses_a_client_certificate_that_was_replaced_on_disk(tmp_path: Path) -> None:
    async with serving(memory(), mtls_in=tmp_path) as served:
        assert served.certificates is not None
        async with Connection(CloudConfig.parse(served.cloud_config)) as connection:
            remote = RemoteProvider(connection)
            await remote.refresh()
            first = connection.channel()
            await remote.refresh()
            assert connection.channel() is first  # nothing changed, nothing dialled
            await asyncio.to_thread(renew, tmp_path, what="client")
            served.certificates.client_key.write_text("half a rotation")
            await remote.refresh()
            assert connection.channel() is first
            await asyncio.to_thread(renew, tmp_path, what="client")
            await asyncio.gather(remote.node_groups(), remote.refresh(), remote.node_groups())
            await remote.refresh()
            assert connection.channel() is not first


def test_new_files_are_used_and_half_a_pair_is_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bundle = create_bundle(tmp_path / "a", hosts=["localhost"], days=10)
    fresh = create_bundle(tmp_path / "b", hosts=["localhost"], days=20)
    files = TlsFiles(cert=bundle.server_cert, key=bundle.server_key, client_ca=bundle.ca_cert)
    credentials = ReloadingCredentials(files)
    first = credentials.expires
    assert not credentials.reload()
    shutil.copy(fresh.server_cert, bundle.server_cert)
    with caplog.at_level(logging.WARNING):
        assert not credentials.reload()  # the key is still the old one
        assert not credentials.reload()
    assert len(caplog.records) == 1  # told once, not at every connection
    assert credentials.expires == first
    shutil.copy(fresh.server_key, bundle.server_key)
    assert credentials.expires > first  # looking at it is enough
    assert not credentials.reload()
    assert credentials._fetch() is not None  # and gRPC still gets to know
    assert credentials._fetch() is None


def test_files_that_vanish_keep_the_old_certificate(tmp_path: Path) -> None:
    bundle = create_bundle(tmp_path, hosts=["localhost"])
    files = TlsFiles(cert=bundle.server_cert, key=bundle.server_key, client_ca=bundle.ca_cert)
    credentials = ReloadingCredentials(files)
    bundle.server_cert.unlink()
    assert not credentials.reload()


@pytest.mark.parametrize("spoiled", ["server.crt", "server.key", "ca.crt"])
def test_files_that_cannot_be_used_are_refused_at_start_and_keys_are_not_shown(tmp_path: Path, spoiled: str) -> None:
    bundle = create_bundle(tmp_path, hosts=["localhost"])
    (tmp_path / spoiled).write_text("-----BEGIN nonsense hunter2")
    files = TlsFiles(cert=bundle.server_cert, key=bundle.server_key, client_ca=bundle.ca_cert)
    with pytest.raises(InvalidArgumentError, match=spoiled) as caught:
        ReloadingCredentials(files)
    assert "hunter2" not in str(caught.value)
    (tmp_path / spoiled).unlink()
    with pytest.raises(NotFoundError, match=spoiled):
        ReloadingCredentials(files)


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.com:0"])
def test_without_tls_only_loopback_is_served(listen: str) -> None:
    service = CloudProviderService(memory())
    with pytest.raises(InvalidArgumentError, match="refusing to serve"):
        server_of(service, Access(listen=listen))
    server_of(service, Access(listen=listen, insecure=True))


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "127.8.8.8:0", "[::1]:0", "localhost:0", "unix:/tmp/x.sock"])
def test_loopback_is_served_without_tls(listen: str) -> None:
    server_of(CloudProviderService(memory()), Access(listen=listen))


@pytest.mark.parametrize("listen", ["", "8086", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:70000"])
def test_an_address_that_is_none_is_refused(listen: str) -> None:
    with pytest.raises(InvalidArgumentError, match="host:port"):
        server_of(CloudProviderService(memory()), Access(listen=listen))


def test_one_name_in_place_of_a_list_of_allowed_clients_is_refused(tmp_path: Path) -> None:
    bundle = create_bundle(tmp_path, hosts=["localhost"])
    files = TlsFiles(cert=bundle.server_cert, key=bundle.server_key, client_ca=bundle.ca_cert)
    with pytest.raises(InvalidArgumentError, match="a list of names"):
        Access(listen="127.0.0.1:0", tls=files, allowed_clients="abc")


def test_names_come_from_the_certificate_and_not_from_what_grpc_cuts_them_to() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "good\0.evil")]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")]))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName("a.example"), x509.UniformResourceIdentifier("spiffe://b")]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(Encoding.PEM)
    context = {"x509_common_name": [b"good"], "x509_pem_cert": [pem]}
    assert client_names(context) == ("a.example", "spiffe://b")
    assert client_names({}) == ()


def test_allowed_clients_without_tls_make_no_sense_and_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="allowedClients needs TLS"):
        server_of(CloudProviderService(memory()), Access(listen="127.0.0.1:0", allowed_clients=["x"]))
