"""Creates certificates for one run of one plugin, known only to the plugin and its host.

Each side trusts exactly one certificate: the other side's. There is no certificate authority to protect, and nothing
to renew.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

HOSTNAME = "localhost"  # the name in every throw-away certificate, as in go-plugin
_LIFETIME = dt.timedelta(days=3650)  # longer than any process runs; the key is deleted long before
_SKEW = dt.timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A self-signed certificate with its key, both in PEM."""

    certificate: bytes
    key: bytes = field(repr=False)

    @property
    def der(self) -> bytes:
        """The certificate as a plugin's handshake line carries it, before base64."""
        return x509.load_pem_x509_certificate(self.certificate).public_bytes(serialization.Encoding.DER)


def make_key_pair() -> KeyPair:
    """Creates a key on P-256, the one curve that every TLS library accepts, and a certificate for ``localhost``."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "cloudgraft plugin"),
            x509.NameAttribute(NameOID.COMMON_NAME, HOSTNAME),
        ]
    )
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder(
        issuer_name=name,
        subject_name=name,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - _SKEW,
        not_valid_after=now + _LIFETIME,
    )
    for extension, critical in _extensions():
        builder = builder.add_extension(extension, critical=critical)
    return KeyPair(
        certificate=builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
        key=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )


def _extensions() -> tuple[tuple[x509.ExtensionType, bool], ...]:
    local = (ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1"))
    names = [x509.DNSName(HOSTNAME), *(x509.IPAddress(address) for address in local)]
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    return (
        (x509.SubjectAlternativeName(names), False),
        (x509.BasicConstraints(ca=True, path_length=0), True),  # every library must accept it as a trust anchor
        (_key_usage(), True),
        (x509.ExtendedKeyUsage(usages), False),
    )


def _key_usage() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTls:
    """The certificates for one run of a plugin: cloudgraft's own, and one that the plugin may use."""

    client: KeyPair = field(default_factory=make_key_pair)
    server: KeyPair = field(default_factory=make_key_pair)

    def write(self, directory: Path) -> None:
        """Writes the three files for a plugin that cannot make a certificate, into a new directory."""
        directory.mkdir(mode=0o700)
        for name, content in (
            ("server.crt", self.server.certificate),
            ("server.key", self.server.key),
            ("client-ca.crt", self.client.certificate),
        ):
            descriptor = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
