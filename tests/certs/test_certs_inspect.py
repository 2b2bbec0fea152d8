"""Each thing that can be wrong with certificates is found, and told with what mends it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from cloudgraft.certs.authority import Bundle, create_bundle, issue_client, renew
from cloudgraft.certs.inspect import Report, Severity, inspect_path
from cloudgraft.certs.issue import Pair, Validity, new_authority, server_pair
from cloudgraft.certs.pem import load_certificate, load_key
from cloudgraft.sdk.errors import InvalidArgumentError, NotFoundError

HOSTS = ["cloudgraft", "localhost", "127.0.0.1"]


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return create_bundle(tmp_path / "certs", hosts=HOSTS)


def _told(report: Report, bundle: Bundle) -> list[str]:
    """The findings as lines, with the directory shortened to D."""
    lines = [f"{f.severity}: {f.file}: {f.message} -> {f.fix}" for f in report.findings]
    return [line.replace(str(bundle.directory), "D") for line in lines]


def test_a_new_set_is_fine_and_described(bundle: Bundle) -> None:
    report = inspect_path(bundle.directory, address="cloudgraft:8086")
    assert report.findings == ()
    assert report.ok
    assert [(info.file.name, info.purpose, info.names) for info in report.certificates] == [
        ("ca.crt", "ca", ()),
        ("client.crt", "client", ("cluster-autoscaler-grpc-client",)),
        ("server.crt", "server", tuple(HOSTS)),
    ]
    assert {info.days_left(datetime.now(UTC)) for info in report.certificates} == {364, 3649}
    assert report.server_name == "cloudgraft"


@pytest.mark.parametrize("address", ["other:8086", "127.0.0.2:8086", "[::1]:1"])
def test_the_host_of_the_address_must_be_among_the_servers_names(bundle: Bundle, address: str) -> None:
    """R9. The fix that is shown mends it."""
    report = inspect_path(bundle.directory, address=address)
    name = report.server_name
    assert name is not None
    assert not report.ok
    expected = (
        f"error: D/server.crt: is not for {name!r}, which the Go client will look for; it is for cloudgraft, "
        f"localhost, 127.0.0.1 -> cloudgraft certs renew D --what server --host {name}"
    )
    assert _told(report, bundle) == [expected]
    renew(bundle.directory, what="server", add_hosts=[name])
    assert inspect_path(bundle.directory, address=address).ok


def test_an_address_with_a_zone_cannot_be_matched_by_go(bundle: Bundle) -> None:
    report = inspect_path(bundle.server_cert, address="[fe80::1%eth0]:8086")
    assert [f.fix for f in report.findings] == ["use a host name, or an address without %zone, in `address`"]


def test_an_address_that_go_cannot_read_is_refused(bundle: Bundle) -> None:
    with pytest.raises(InvalidArgumentError, match="write host:port"):
        inspect_path(bundle.directory, address="cloudgraft")


def _expired(bundle: Bundle) -> str:
    past = datetime.now(UTC) - timedelta(days=2)
    issue_client(bundle.directory, "late", not_before=past - timedelta(days=1), not_after=past)
    end = past.replace(microsecond=0)
    return f"error: D/late.crt: expired on {end:%Y-%m-%d %H:%M} UTC -> cloudgraft certs renew D --what client"


def _future(bundle: Bundle) -> str:
    start = datetime.now(UTC) + timedelta(hours=2)
    issue_client(bundle.directory, "early", not_before=start)
    return f"error: D/early.crt: is not valid before {start:%Y-%m-%d %H:%M} UTC -> set this machine's clock, or wait"


def _soon(bundle: Bundle) -> str:
    end = datetime.now(UTC) + timedelta(days=5, hours=1)
    issue_client(bundle.directory, "soon", not_after=end)
    return f"warning: D/soon.crt: ends in 5 days, on {end:%Y-%m-%d} -> cloudgraft certs renew D --what client"


def _wrong_key(bundle: Bundle) -> str:
    bundle.server_key.write_bytes(bundle.client_key.read_bytes())
    return "error: D/server.key: is not the key of D/server.crt -> cloudgraft certs renew D --what server"


def _no_key(bundle: Bundle) -> str:
    bundle.server_key.unlink()
    return (
        "error: D/server.key: D/server.key does not exist -> "
        "put the key of D/server.crt there, readable by the server's user only"
    )


def _open_key(bundle: Bundle) -> str:
    bundle.server_key.chmod(0o644)
    return "warning: D/server.key: can be read by everybody (mode 0644) -> chmod 600 D/server.key"


def _garbage(bundle: Bundle) -> str:
    bundle.server_cert.write_text("nonsense")
    return (
        "error: D/server.crt: D/server.crt holds no PEM certificate -> "
        "bring it back, or make a new set with `cloudgraft certs init`"
    )


def _key_for_certificate(bundle: Bundle) -> str:
    bundle.server_cert.write_bytes(bundle.server_key.read_bytes())
    return (
        "error: D/server.crt: D/server.crt holds no PEM certificate; it holds a private key -> "
        "bring it back, or make a new set with `cloudgraft certs init`"
    )


def _swapped(bundle: Bundle) -> str:
    bundle.server_cert.write_bytes(bundle.client_cert.read_bytes())
    bundle.server_key.write_bytes(bundle.client_key.read_bytes())
    return (
        "error: D/server.crt: is a certificate for 'client' where one for 'server' is needed -> "
        "use the right file, or have it issued with the right key usage"
    )


@pytest.mark.parametrize(
    "spoil",
    [_expired, _future, _soon, _wrong_key, _no_key, _open_key, _garbage, _key_for_certificate, _swapped],
    ids=lambda function: function.__name__.strip("_"),
)
def test_one_fault_gives_one_finding_with_its_fix(bundle: Bundle, spoil: Callable[[Bundle], str]) -> None:
    expected = spoil(bundle)
    report = inspect_path(bundle.directory)
    assert _told(report, bundle) == [expected]
    assert report.ok is (report.findings[0].severity is Severity.WARNING)


def test_certificates_of_another_authority_are_found(bundle: Bundle, tmp_path: Path) -> None:
    other = create_bundle(tmp_path / "other", hosts=HOSTS)
    bundle.ca_cert.write_bytes(other.ca_cert.read_bytes())
    bundle.ca_key.unlink()
    report = inspect_path(bundle.directory)
    assert [f.file.name for f in report.findings] == ["client.crt", "server.crt"]
    assert all("was not signed by" in f.message for f in report.findings)


def test_an_authority_of_the_same_name_but_another_key_is_found(bundle: Bundle) -> None:
    """The name alone proves nothing."""
    real = Pair(certificate=load_certificate(bundle.ca_cert), key=load_key(bundle.ca_key))
    thief = Pair(certificate=real.certificate, key=new_authority(Validity.days(10)).key)
    forged = server_pair(thief, ["cloudgraft"], Validity.days(10), load_key(bundle.server_key))
    assert forged.certificate.issuer == real.certificate.subject
    bundle.server_cert.write_bytes(forged.certificate_pem)
    assert ["was not signed by" in f.message for f in inspect_path(bundle.directory).findings] == [False, True]


def test_a_ca_file_that_holds_no_authority_is_found(bundle: Bundle) -> None:
    bundle.ca_cert.write_bytes(bundle.client_cert.read_bytes())
    messages = [f.message for f in inspect_path(bundle.directory).findings]
    assert "is a certificate for 'client' where one for 'ca' is needed" in messages
    assert "is not an authority's certificate, so no client accepts what it signs" in messages


def test_a_certificate_that_outlives_its_authority_is_a_warning(tmp_path: Path) -> None:
    bundle = create_bundle(tmp_path, hosts=HOSTS)
    now = datetime.now(UTC)
    ca = new_authority(Validity.days(100))
    bundle.ca_cert.write_bytes(ca.certificate_pem)
    bundle.ca_key.write_bytes(ca.key_pem)
    for name in ("client.crt", "client.key"):
        (tmp_path / name).unlink()
    pair = server_pair(ca, ["cloudgraft"], Validity.days(200))
    bundle.server_cert.write_bytes(pair.certificate_pem)
    bundle.server_key.write_bytes(pair.key_pem)
    report = inspect_path(tmp_path, now=now)
    assert report.ok
    assert [f.message for f in report.findings] == [
        f"its authority ends sooner than itself, on {now + timedelta(days=100):%Y-%m-%d}"
    ]


def test_a_server_certificate_without_san_is_found_because_go_ignores_the_common_name(bundle: Bundle) -> None:
    pair = server_pair(new_authority(Validity.days(100)), [], Validity.days(100))
    bundle.server_cert.write_bytes(pair.certificate_pem)
    report = inspect_path(bundle.server_cert)
    assert [f.message for f in report.findings] == [
        "has no SAN, and the common name is not looked at: no client accepts it for any host"
    ]
    assert x509.load_pem_x509_certificate(bundle.server_cert.read_bytes()).subject.rfc4514_string() != ""


def test_asking_for_an_address_where_no_server_certificate_is(bundle: Bundle) -> None:
    report = inspect_path(bundle.client_cert, address="cloudgraft:8086")
    assert [f.message for f in report.findings] == [
        "no certificate here is for a server, so there is no name to compare"
    ]


def test_the_key_of_the_authority_may_be_elsewhere(bundle: Bundle) -> None:
    bundle.ca_key.unlink()
    assert inspect_path(bundle.directory).findings == ()


def test_nothing_to_inspect_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="cloudgraft certs init"):
        inspect_path(tmp_path / "nowhere")
    with pytest.raises(NotFoundError, match=r"no \.crt file"):
        inspect_path(tmp_path)
