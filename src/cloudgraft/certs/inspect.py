"""Finds what is wrong with a certificate, before a handshake fails elsewhere with a worse message.

The checks are those that matter between cloudgraft and the autoscaler: validity, key, authority, purpose, and the
name that the Go client expects.
"""

from __future__ import annotations

import enum
import os
import shlex
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cloudgraft.certs.issue import sans
from cloudgraft.certs.names import go_accepts, server_name
from cloudgraft.certs.pem import load_certificate, load_certificates, load_key
from cloudgraft.sdk.common.files import exists, is_directory
from cloudgraft.sdk.errors import CloudgraftError, NotFoundError

SOON = timedelta(days=30)  # the warning comes this long before a certificate ends
Purpose = Literal["ca", "server", "client", "any"]
_EXPECTED: dict[str, Purpose] = {"ca.crt": "ca", "server.crt": "server", "client.crt": "client"}


class Severity(enum.StrEnum):
    """An error fails now; a warning will fail later."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem of a file, and its fix."""

    severity: Severity
    file: Path
    message: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateInfo:
    """The content of a certificate. ``common_name`` is for people: neither our clients nor Go's use it as a host."""

    file: Path
    purpose: Purpose
    common_name: str
    issuer: str
    dns_names: tuple[str, ...]
    ip_addresses: tuple[IPv4Address | IPv6Address, ...]
    not_before: datetime
    not_after: datetime
    fingerprint: str  # SHA-256, in hex

    @property
    def names(self) -> tuple[str, ...]:
        """All names and addresses that it is for."""
        return (*self.dns_names, *(str(address) for address in self.ip_addresses))

    def days_left(self, now: datetime) -> int:
        """Whole days until its end; negative when that is past."""
        return (self.not_after - now) // timedelta(days=1)

    def accepts(self, name: str) -> bool:
        """Whether the Go client accepts this certificate for a server of that name."""
        return go_accepts(name, self.dns_names, self.ip_addresses)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All findings. ``server_name`` is the name that the Go client expects, when an address was given."""

    certificates: tuple[CertificateInfo, ...]
    findings: tuple[Finding, ...]
    server_name: str | None = None

    @property
    def ok(self) -> bool:
        """False when there is an error; warnings do not count."""
        return all(finding.severity is not Severity.ERROR for finding in self.findings)


def inspect_path(path: Path, *, address: str | None = None, now: datetime | None = None) -> Report:
    """Inspects one certificate file, or every ``.crt`` of a directory with its key, against the ``ca.crt`` there.

    ``address`` is the one of the autoscaler's cloud-config: its host must be among the server's names.
    """
    wanted = server_name(address) if address is not None else None
    certificates: list[CertificateInfo] = []
    findings: list[Finding] = []
    for file, key, ca in _pairs(path):
        expect = _EXPECTED.get(file.name) if is_directory(path) else None
        info, found = inspect_pair(file, key=key, ca=ca, expect=expect, server_name=wanted, now=now)
        certificates += [info] if info else []
        findings += found
    if wanted is not None and not any(info.purpose in {"server", "any"} for info in certificates):
        what = "no certificate here is for a server, so there is no name to compare"
        findings.append(_error(path, what, "name the directory or file with the server's certificate"))
    return Report(certificates=tuple(certificates), findings=tuple(findings), server_name=wanted)


def inspect_pair(
    file: Path,
    *,
    key: Path | None = None,
    ca: Path | None = None,
    expect: Purpose | None = None,
    server_name: str | None = None,
    now: datetime | None = None,
) -> tuple[CertificateInfo | None, list[Finding]]:
    """Inspects one certificate, with its key and its authority where these are given.

    ``expect`` is what it will be used for; ``server_name`` is compared when it may be a server's. The information is
    None when the file cannot be read.
    """
    try:
        chain = load_certificates(file)
    except CloudgraftError as error:
        return None, [_error(file, str(error), "bring it back, or make a new set with `cloudgraft certs init`")]
    info = _describe(file, chain[0])
    findings = list(_check_time(info, now or datetime.now(UTC)))
    if expect not in {None, info.purpose} and "any" not in {expect, info.purpose}:
        message = f"is a certificate for {info.purpose!r} where one for {expect!r} is needed"
        findings.append(_error(file, message, "use the right file, or have it issued with the right key usage"))
    if key is not None:
        findings += _check_key(info, chain[0], key)
    if ca is not None:
        findings += _check_chain(info, chain, ca)
    if info.purpose in {"server", "any"}:
        findings += _check_names(info, server_name)
    return info, findings


def _pairs(path: Path) -> list[tuple[Path, Path | None, Path | None]]:
    """Each certificate file with its key and authority, as far as they are known."""
    if not exists(path):
        raise NotFoundError(f"{path} does not exist; `cloudgraft certs init {path}` makes certificates there")
    if not is_directory(path):
        return [(path, None, None)]
    files = sorted(path.glob("*.crt"))
    if not files:
        raise NotFoundError(f"there is no .crt file in {path}; `cloudgraft certs init {path}` makes some")
    ca = path / "ca.crt"
    pairs: list[tuple[Path, Path | None, Path | None]] = []
    for file in files:
        key = file.with_suffix(".key")
        if file == ca:  # the authority's key belongs on another machine, so it may well be missing
            pairs.append((file, key if exists(key) else None, None))
        else:
            pairs.append((file, key, ca if ca in files else None))
    return pairs


def _describe(file: Path, certificate: x509.Certificate) -> CertificateInfo:
    dns_names, addresses = sans(certificate)
    return CertificateInfo(
        file=file,
        purpose=_purpose(certificate),
        common_name=_common_name(certificate.subject),
        issuer=_common_name(certificate.issuer),
        dns_names=tuple(dns_names),
        ip_addresses=tuple(addresses),
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(),
    )


def _purpose(certificate: x509.Certificate) -> Purpose:
    if _is_authority(certificate):
        return "ca"
    try:
        usages = set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return "any"
    serves = ExtendedKeyUsageOID.SERVER_AUTH in usages
    if serves == (ExtendedKeyUsageOID.CLIENT_AUTH in usages):
        return "any"
    return "server" if serves else "client"


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _common_name(name: x509.Name) -> str:
    values = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(values[0].value) if values else name.rfc4514_string()


def _check_time(info: CertificateInfo, now: datetime) -> Iterator[Finding]:
    fix = _again(info.file, info.purpose)
    if now > info.not_after:
        yield _error(info.file, f"expired on {info.not_after:%Y-%m-%d %H:%M} UTC", fix)
    elif now < info.not_before:
        message = f"is not valid before {info.not_before:%Y-%m-%d %H:%M} UTC"
        yield _error(info.file, message, "set this machine's clock, or wait")
    elif info.not_after - now < SOON:
        yield _warning(info.file, f"ends in {info.days_left(now)} days, on {info.not_after:%Y-%m-%d}", fix)


def _check_key(info: CertificateInfo, certificate: x509.Certificate, path: Path) -> Iterator[Finding]:
    try:
        key = load_key(path)
        mode = path.stat().st_mode
    except (CloudgraftError, OSError) as error:
        yield _error(path, str(error), f"put the key of {info.file} there, readable by the server's user only")
        return
    if key.public_key() != certificate.public_key():
        yield _error(path, f"is not the key of {info.file}", _again(info.file, info.purpose))
    if stat.S_IMODE(mode) & 0o007:
        yield _warning(
            path, f"can be read by everybody (mode {stat.S_IMODE(mode):04o})", f"chmod 600 {shlex.quote(str(path))}"
        )


def _check_chain(info: CertificateInfo, chain: Sequence[x509.Certificate], path: Path) -> Iterator[Finding]:
    """The certificate must be signed by the authority, directly or through others in its own file."""
    try:
        ca = load_certificate(path)
    except CloudgraftError:
        return  # the authority has its own finding
    if not _is_authority(ca):
        yield _error(
            path, "is not an authority's certificate, so no client accepts what it signs", "use the right ca.crt"
        )
    for child, parent in zip(chain, [*chain[1:], ca], strict=True):
        try:
            child.verify_directly_issued_by(parent)
        except (ValueError, TypeError, InvalidSignature):
            message = f"was not signed by {path} ({_common_name(ca.subject)}) but by {info.issuer}"
            yield _error(info.file, message, f"use the ca.crt of {info.issuer}, or: {_again(info.file, info.purpose)}")
            return
    if ca.not_valid_after_utc < info.not_after:
        message = f"its authority ends sooner than itself, on {ca.not_valid_after_utc:%Y-%m-%d}"
        yield _warning(info.file, message, _again(path, "ca"))


def _check_names(info: CertificateInfo, wanted: str | None) -> Iterator[Finding]:
    renewing = _again(info.file, info.purpose)
    if not info.names:
        if info.purpose == "server" or wanted is not None:
            message = "has no SAN, and the common name is not looked at: no client accepts it for any host"
            yield _error(info.file, message, renewing)
    elif wanted is not None and "%" in wanted:
        message = f"the Go client looks for {wanted!r}, and cannot match an address with a zone"
        yield _error(info.file, message, "use a host name, or an address without %zone, in `address`")
    elif wanted is not None and not info.accepts(wanted):
        message = f"is not for {wanted!r}, which the Go client will look for; it is for {', '.join(info.names)}"
        addition = f" --host {wanted}" if renewing.endswith("--what server") else ""
        yield _error(info.file, message, f"{renewing}{addition}")


def _again(file: Path, purpose: Purpose) -> str:
    """The fix that replaces this certificate with a new one."""
    directory = file.parent
    if purpose == "ca":
        return "make a new authority with `cloudgraft certs init` in another directory, and hand out its ca.crt"
    if os.access(directory / "ca.key", os.R_OK) and os.access(file, os.F_OK):
        what = "server" if file.name == "server.crt" else "client"
        return f"cloudgraft certs renew {shlex.quote(str(directory))} --what {what}"
    return "have it issued again by its authority"


def _error(file: Path, message: str, fix: str) -> Finding:
    return Finding(severity=Severity.ERROR, file=file, message=message, fix=fix)


def _warning(file: Path, message: str, fix: str) -> Finding:
    return Finding(severity=Severity.WARNING, file=file, message=message, fix=fix)
