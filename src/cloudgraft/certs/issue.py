"""Makes certificates in memory: an authority, and servers and clients that it signs. Touches no file.

All keys are ECDSA on P-256, which Go's ``crypto/tls`` and gRPC's BoringSSL both accept and verify quickly.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv6Address
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes, CertificatePublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cloudgraft.certs.names import Host
from cloudgraft.sdk.errors import InvalidArgumentError

CLOCK_SKEW = timedelta(minutes=5)  # how far behind another machine's clock may be and still accept a new certificate
_MAX_DAYS = 36_500
Usage = Literal["server auth", "client auth"]
_USAGES: dict[Usage, x509.ObjectIdentifier] = {
    "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
    "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """The time in which a certificate is valid."""

    not_before: datetime
    not_after: datetime

    def __post_init__(self) -> None:
        if self.not_before.tzinfo is None or self.not_after.tzinfo is None:
            raise InvalidArgumentError("a certificate's times need a time zone: use datetime.now(UTC)")
        if self.not_after <= self.not_before:
            raise InvalidArgumentError(f"a certificate cannot end ({self.not_after}) before it begins")

    @classmethod
    def days(cls, days: int, now: datetime | None = None) -> Validity:
        """Valid for ``days``, and since a few minutes ago, because clocks differ."""
        if not 1 <= days <= _MAX_DAYS:
            raise InvalidArgumentError(f"{days} days is not between 1 and {_MAX_DAYS}")
        start = (now or datetime.now(UTC)).replace(microsecond=0)
        return cls(not_before=start - CLOCK_SKEW, not_after=start + timedelta(days=days))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: CertificateIssuerPrivateKeyTypes = field(repr=False)

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as it goes into a file."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The key as it goes into a file, without a passphrase: a server must start unattended."""
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def new_authority(validity: Validity) -> Pair:
    """A new certificate authority that may sign servers and clients, but no further authorities.

    Its name has a random part: two authorities of the same name are easily confused.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = subject_named(f"cloudgraft CA {secrets.token_hex(4)}")
    return Pair(certificate=_sign(_authority_builder(name, key.public_key(), validity), key), key=key)


def renewed_authority(old: Pair, validity: Validity) -> Pair:
    """The same authority for a new time: with its key and name, so that what it has signed stays valid."""
    subject, key = old.certificate.subject, old.key
    builder = _authority_builder(subject, key.public_key(), validity)
    return Pair(certificate=_sign(builder, key), key=key)


def peer_pair(ca: Pair, name: str, hosts: Sequence[Host], usages: Sequence[Usage], validity: Validity) -> Pair:
    """A certificate of that common name for these names and addresses, to serve with, to call with, or for both."""
    names = [x509.DNSName(host) if isinstance(host, str) else x509.IPAddress(host) for host in hosts]
    return _leaf(ca, subject_named(name), names, [_USAGES[usage] for usage in usages], validity, None)


def server_pair(
    ca: Pair, hosts: Sequence[Host], validity: Validity, key: CertificateIssuerPrivateKeyTypes | None = None
) -> Pair:
    """A server's certificate for these names and addresses."""
    names = [x509.DNSName(host) if isinstance(host, str) else x509.IPAddress(host) for host in hosts]
    usage = [ExtendedKeyUsageOID.SERVER_AUTH]
    return _leaf(ca, subject_named("cloudgraft server"), names, usage, validity, key)


def client_pair(ca: Pair, name: str, validity: Validity, key: CertificateIssuerPrivateKeyTypes | None = None) -> Pair:
    """A client's certificate; its name is both common name and DNS name, so that a server may check either."""
    return _leaf(ca, subject_named(name), [x509.DNSName(name)], [ExtendedKeyUsageOID.CLIENT_AUTH], validity, key)


def reissue(
    ca: Pair,
    old: x509.Certificate,
    validity: Validity,
    *,
    add_hosts: Sequence[Host] = (),
    key: CertificateIssuerPrivateKeyTypes | None = None,
) -> Pair:
    """A certificate like ``old``: same subject, names and purposes, for a new time. A new key unless one is given."""
    dns_names, addresses = sans(old)
    hosts: list[Host] = [*dns_names, *addresses, *add_hosts]
    names = [x509.DNSName(host) if isinstance(host, str) else x509.IPAddress(host) for host in dict.fromkeys(hosts)]
    try:
        usages = list(old.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        usages = []
    return _leaf(ca, old.subject, names, usages, validity, key)


def sans(certificate: x509.Certificate) -> tuple[list[str], list[IPv4Address | IPv6Address]]:
    """The DNS names and the IP addresses that a certificate is for."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return [], []
    addresses = names.get_values_for_type(x509.IPAddress)
    return names.get_values_for_type(x509.DNSName), [a for a in addresses if isinstance(a, IPv4Address | IPv6Address)]


def usages_of(certificate: x509.Certificate) -> set[Usage]:
    """What a certificate may be used for, of the usages known here."""
    try:
        given = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return set()
    return {usage for usage, oid in _USAGES.items() if oid in given}


def _leaf(
    ca: Pair,
    subject: x509.Name,
    names: Sequence[x509.GeneralName],
    usages: Sequence[x509.ObjectIdentifier],
    validity: Validity,
    key: CertificateIssuerPrivateKeyTypes | None,
) -> Pair:
    own = key or ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(subject, ca.certificate.subject, own.public_key(), validity)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(own.public_key()), critical=False)
        .add_extension(_authority_key(ca.certificate), critical=False)
    )
    if usages:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return Pair(certificate=_sign(builder, ca.key), key=own)


def _authority_builder(
    name: x509.Name, public_key: CertificatePublicKeyTypes, validity: Validity
) -> x509.CertificateBuilder:
    return (
        _builder(name, name, public_key, validity)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: CertificatePublicKeyTypes, validity: Validity
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(validity.not_before)
        .not_valid_after(validity.not_after)
    )


def _sign(builder: x509.CertificateBuilder, key: CertificateIssuerPrivateKeyTypes) -> x509.Certificate:
    has_own_hash = isinstance(key, ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey)
    return builder.sign(key, None if has_own_hash else hashes.SHA256())


def subject_named(common_name: str) -> x509.Name:
    """The subject of a certificate: a common name alone."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _authority_key(ca: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    try:
        own = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        public_key = ca.public_key()
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(public_key)  # type: ignore[arg-type]  # a CA's key signs
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)
