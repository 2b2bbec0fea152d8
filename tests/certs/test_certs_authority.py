"""Certificates are accepted by real TLS stacks, and their files are written with care."""

from __future__ import annotations

import asyncio
import os
import ssl
import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from cloudgraft.certs.authority import Bundle, create_bundle, issue_client, locked, renew
from cloudgraft.certs.pem import load_certificate, load_key
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionError,
)
from tests.own_port import OWN_PORT

HOSTS = ["localhost", "127.0.0.1", "::1"]


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return create_bundle(tmp_path / "certs", hosts=HOSTS)


async def _handshake(server: Bundle, client: tuple[Path, Path] | None, ca: Path, host: str = "localhost") -> bytes:
    """One connection over a real socket, with client certificates required; what the server said."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    here = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(server.ca_cert))
    here.verify_mode = ssl.CERT_REQUIRED
    here.load_cert_chain(server.server_cert, server.server_key)
    there = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(ca))
    there.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT  # all that RFC 5280 asks of the extensions
    if client is not None:
        there.load_cert_chain(*client)
    listener = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=here)
    async with listener, asyncio.timeout(20):
        port = listener.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=there, server_hostname=host)
        try:
            return await reader.read()
        finally:
            writer.close()


async def _is_refused(server: Bundle, client: tuple[Path, Path], ca: Path) -> bool:
    """In TLS 1.3 a client believes itself connected until it reads: it must then find an error, or nothing."""
    try:
        return await _handshake(server, client, ca) == b""
    except (ssl.SSLError, ConnectionError):
        return True


@pytest.mark.parametrize("host", HOSTS)
async def test_server_and_client_accept_each_other_under_every_host(bundle: Bundle, host: str) -> None:
    client = (bundle.client_cert, bundle.client_key)
    assert await _handshake(bundle, client, bundle.ca_cert, host) == b"hello"


async def test_a_host_that_is_not_in_the_certificate_is_refused_by_the_client(bundle: Bundle) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=r"[Hh]ostname mismatch"):
        await _handshake(bundle, (bundle.client_cert, bundle.client_key), bundle.ca_cert, "other.example")


async def test_a_client_of_another_authority_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    other = create_bundle(tmp_path / "other", hosts=HOSTS)
    assert await _is_refused(bundle, (other.client_cert, other.client_key), bundle.ca_cert)


async def test_an_expired_client_certificate_is_refused(bundle: Bundle) -> None:
    past = datetime.now(UTC) - timedelta(days=1)
    expired = issue_client(bundle.directory, "late", not_before=past - timedelta(days=1), not_after=past)
    assert await _is_refused(bundle, expired, bundle.ca_cert)


async def test_a_server_certificate_cannot_be_used_by_a_client(bundle: Bundle) -> None:
    """Whoever steals a server's key must not become a caller with it."""
    assert await _is_refused(bundle, (bundle.server_cert, bundle.server_key), bundle.ca_cert)


async def test_grpc_accepts_the_certificates_on_both_sides(bundle: Bundle) -> None:
    ca, cert, key = (path.read_bytes() for path in (bundle.ca_cert, bundle.server_cert, bundle.server_key))
    server = grpc.aio.server(options=OWN_PORT)
    credentials = grpc.ssl_server_credentials([(key, cert)], ca, require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    client = grpc.ssl_channel_credentials(ca, bundle.client_key.read_bytes(), bundle.client_cert.read_bytes())
    try:
        async with grpc.aio.secure_channel(f"localhost:{port}", client) as channel:
            await asyncio.wait_for(channel.channel_ready(), timeout=20)
    finally:
        await server.stop(None)


def test_the_extensions_are_those_of_an_authority_a_server_and_a_client(bundle: Bundle) -> None:
    ca, server, client = (load_certificate(p) for p in (bundle.ca_cert, bundle.server_cert, bundle.client_cert))
    constraints = [c.extensions.get_extension_for_class(x509.BasicConstraints) for c in (ca, server, client)]
    assert [(c.critical, c.value.ca, c.value.path_length) for c in constraints] == [
        (True, True, 0),
        (True, False, None),
        (True, False, None),
    ]
    usages = [c.extensions.get_extension_for_class(x509.KeyUsage).value for c in (ca, server, client)]
    assert [(u.digital_signature, u.key_cert_sign) for u in usages] == [(True, True), (True, False), (True, False)]
    assert list(server.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [
        ExtendedKeyUsageOID.SERVER_AUTH
    ]
    assert list(client.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [
        ExtendedKeyUsageOID.CLIENT_AUTH
    ]
    ski = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    for leaf in (server, client):
        aki = leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
        assert aki == ski
        assert isinstance(leaf.public_key(), ec.EllipticCurvePublicKey)


def test_a_client_carries_its_name_as_common_name_and_as_dns_name(bundle: Bundle) -> None:
    client = load_certificate(bundle.client_cert)
    names = client.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert client.subject.rfc4514_string() == "CN=cluster-autoscaler-grpc-client"
    assert names.get_values_for_type(x509.DNSName) == ["cluster-autoscaler-grpc-client"]


def test_a_new_certificate_began_some_minutes_ago_because_clocks_differ(bundle: Bundle) -> None:
    age = datetime.now(UTC) - load_certificate(bundle.server_cert).not_valid_before_utc
    assert timedelta(minutes=4) < age < timedelta(minutes=10)


def test_keys_are_for_their_owner_only_and_so_is_a_new_directory(bundle: Bundle) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in bundle.directory.iterdir()}
    assert {name: mode for name, mode in modes.items() if name.endswith(".key")} == {
        "ca.key": 0o600,
        "server.key": 0o600,
        "client.key": 0o600,
    }
    assert sorted(modes) == ["ca.crt", "ca.key", "client.crt", "client.key", "server.crt", "server.key"]
    assert stat.S_IMODE(bundle.directory.stat().st_mode) == 0o700


def test_an_existing_file_is_never_overwritten_and_nothing_else_is_written(tmp_path: Path) -> None:
    (tmp_path / "client.key").write_text("mine")
    with pytest.raises(AlreadyExistsError, match=r"client\.key: will not be overwritten"):
        create_bundle(tmp_path, hosts=HOSTS)
    assert [path.name for path in tmp_path.iterdir()] == ["client.key"]
    assert (tmp_path / "client.key").read_text() == "mine"


def test_a_place_that_cannot_be_written_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PreconditionError, match=r"cannot write .*file/certs"):
        create_bundle(tmp_path / "file" / "certs", hosts=HOSTS)


@pytest.mark.parametrize(
    ("days", "ca_days", "message"),
    [(0, 10, "0 days"), (1, 40_000, "40000 days"), (20, 10, "the authority would end before")],
)
def test_impossible_times_are_refused(tmp_path: Path, days: int, ca_days: int, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        create_bundle(tmp_path, hosts=HOSTS, days=days, ca_days=ca_days)
    assert list(tmp_path.iterdir()) == []


def test_renewing_keeps_the_authority_the_names_and_the_purpose_but_not_the_keys(bundle: Bundle) -> None:
    issue_client(bundle.directory, "ops.example", days=1)
    before = {path.name: path.read_bytes() for path in bundle.directory.iterdir()}
    renewal = renew(bundle.directory, days=30)
    after = {path.name: path.read_bytes() for path in bundle.directory.iterdir()}
    assert [path.name for path in renewal.renewed] == ["server.crt", "client.crt", "ops.example.crt"]
    assert {name for name in before if before[name] == after[name]} == {"ca.crt", "ca.key"}
    for name in ("server.crt", "client.crt", "ops.example.crt"):
        old, new = x509.load_pem_x509_certificate(before[name]), x509.load_pem_x509_certificate(after[name])
        for kind in (x509.SubjectAlternativeName, x509.ExtendedKeyUsage):
            assert old.extensions.get_extension_for_class(kind) == new.extensions.get_extension_for_class(kind)
        assert (old.subject, old.issuer) == (new.subject, new.issuer)
        assert new.not_valid_after_utc == renewal.not_after
        assert load_key(bundle.directory / name.replace(".crt", ".key")).public_key() == new.public_key()


async def test_a_renewed_server_is_accepted_by_the_old_client(bundle: Bundle) -> None:
    renew(bundle.directory, what="server", add_hosts=["cloudgraft.kube-system.svc"])
    client = (bundle.client_cert, bundle.client_key)
    assert await _handshake(bundle, client, bundle.ca_cert, "cloudgraft.kube-system.svc") == b"hello"
    assert await _handshake(bundle, client, bundle.ca_cert, "localhost") == b"hello"


def test_only_what_was_asked_for_is_renewed(bundle: Bundle) -> None:
    before = bundle.server_cert.read_bytes(), bundle.client_cert.read_bytes()
    renew(bundle.directory, what="client")
    assert bundle.server_cert.read_bytes() == before[0]
    assert bundle.client_cert.read_bytes() != before[1]


def test_when_the_authority_ends_sooner_the_certificate_is_cut_and_it_is_told(tmp_path: Path) -> None:
    bundle = create_bundle(tmp_path, hosts=HOSTS, days=10, ca_days=20)
    renewal = renew(tmp_path, days=365)
    end = load_certificate(bundle.ca_cert).not_valid_after_utc
    assert renewal.not_after == load_certificate(bundle.server_cert).not_valid_after_utc == end
    assert renewal.warnings == (
        f"the authority ends on {end:%Y-%m-%d}, so this certificate does too: plan for a new authority",
    )


@pytest.mark.parametrize("missing", ["ca.crt", "ca.key"])
def test_nothing_is_renewed_without_the_authority(bundle: Bundle, missing: str) -> None:
    (bundle.directory / missing).unlink()
    with pytest.raises(NotFoundError, match=f"{missing} does not exist, and nothing can be signed without it"):
        renew(bundle.directory)


def test_nothing_is_renewed_with_the_wrong_key_of_the_authority(bundle: Bundle, tmp_path: Path) -> None:
    other = create_bundle(tmp_path / "other", hosts=HOSTS)
    bundle.ca_key.write_bytes(other.ca_key.read_bytes())
    with pytest.raises(PreconditionError, match=r"ca\.key is not the key of"):
        renew(bundle.directory)


def test_a_pair_that_a_crash_left_half_switched_is_mended_by_the_next_renewal(bundle: Bundle) -> None:
    """Between the two renames the new key stands beside the old certificate."""
    bundle.server_key.write_bytes(bundle.client_key.read_bytes())
    left_over = bundle.directory / ".server.crt.00000000.cloudgraft-new"
    left_over.write_text("half")
    renew(bundle.directory)
    assert load_key(bundle.server_key).public_key() == load_certificate(bundle.server_cert).public_key()
    assert not left_over.exists()


def test_a_renewed_key_keeps_its_mode_but_never_for_everybody(bundle: Bundle) -> None:
    bundle.server_key.chmod(0o640)
    bundle.client_key.chmod(0o644)
    renew(bundle.directory)
    assert stat.S_IMODE(bundle.server_key.stat().st_mode) == 0o640
    assert stat.S_IMODE(bundle.client_key.stat().st_mode) == 0o640


def test_a_renewed_key_keeps_its_owner_so_that_the_server_can_still_read_it(bundle: Bundle) -> None:
    # Only root may give files away; another user at least to one of its own groups.
    owner, group = (12345, 12346) if os.geteuid() == 0 else (os.geteuid(), max(os.getgroups(), default=os.getegid()))
    os.chown(bundle.server_key, owner, group)
    renew(bundle.directory)
    status = bundle.server_key.stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (owner, group, 0o600)


def test_a_renewed_file_that_is_a_link_stays_one(bundle: Bundle, tmp_path: Path) -> None:
    real = tmp_path / "real.crt"
    bundle.server_cert.rename(real)
    bundle.server_cert.symlink_to(real)
    renew(bundle.directory)
    assert bundle.server_cert.is_symlink()
    assert load_key(bundle.server_key).public_key() == load_certificate(real).public_key()


def test_two_writers_at_the_same_time_do_not_mix_their_pairs(bundle: Bundle) -> None:
    with locked(bundle.directory), pytest.raises(ConflictError, match="try again"):
        renew(bundle.directory)
    renew(bundle.directory)


@pytest.mark.parametrize("keep_keys", [True, False])
def test_a_reader_never_sees_half_a_file_and_with_kept_keys_never_a_wrong_pair(bundle: Bundle, keep_keys: bool) -> None:
    """A reader that finds a wrong pair reads again; that it soon finds a right one is all it needs."""
    stop, broken, wrong = threading.Event(), [], []

    def read() -> None:
        while not stop.is_set():
            try:
                key, certificate = load_key(bundle.server_key), load_certificate(bundle.server_cert)
            except Exception as error:  # noqa: BLE001 - whatever it is, the test must tell it
                broken.append(error)
                return
            if key.public_key() != certificate.public_key():
                wrong.append(certificate.serial_number)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(20):
            renew(bundle.directory, what="server", keep_keys=keep_keys)
    finally:
        stop.set()
        reader.join()
    assert broken == []
    assert not keep_keys or wrong == []
    assert load_key(bundle.server_key).public_key() == load_certificate(bundle.server_cert).public_key()


@pytest.mark.parametrize("name", ["ca", "server", "client", "../x", "a/b", "", "a b", "ä", "x" * 65])
def test_a_client_name_that_cannot_be_a_name_or_a_file_is_refused(bundle: Bundle, name: str) -> None:
    with pytest.raises(InvalidArgumentError):
        issue_client(bundle.directory, name)


def test_an_encrypted_key_is_told_without_its_content(bundle: Bundle) -> None:
    key = load_key(bundle.ca_key)
    secret = serialization.BestAvailableEncryption(b"pass")
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)
    bundle.ca_key.write_bytes(pem)
    with pytest.raises(InvalidArgumentError, match="is protected by a passphrase"):
        renew(bundle.directory)


def test_a_key_that_is_not_a_key_is_told_without_its_content(bundle: Bundle) -> None:
    bundle.ca_key.write_text("-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\n")
    with pytest.raises(InvalidArgumentError, match="holds no PEM private key") as caught:
        renew(bundle.directory)
    assert "hunter2" not in repr(caught.value)
    assert caught.value.__cause__ is None
