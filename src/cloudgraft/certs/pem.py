"""Reads certificates and keys in PEM form. No error contains a key."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes

from cloudgraft.sdk.errors import InvalidArgumentError, NotFoundError, PreconditionError

Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsMaterial:
    """One side of an mTLS connection: certificate, key, and the authority of the other side. They fit together."""

    cert: bytes
    key: bytes = field(repr=False)
    ca: bytes | None  # None: the public authorities
    expires: float  # when the certificate ends, in seconds since the epoch


def load_tls(cert: Path, key: Path, ca: Path | None) -> TlsMaterial:
    """Reads them all; raises an error that names the file when one cannot be used or they do not fit together."""
    cert_pem, key_pem, ca_pem = _read(cert), _read(key), load_authority(ca) if ca else None
    leaf = _parse_certificates(cert_pem, cert)[0]
    if leaf.public_key() != _parse_key(key_pem, key).public_key():
        raise InvalidArgumentError(f"the key {key} does not belong to the certificate {cert}")
    return TlsMaterial(cert=cert_pem, key=key_pem, ca=ca_pem, expires=leaf.not_valid_after_utc.timestamp())


def load_authority(path: Path) -> bytes:
    """The content of a file of authorities; an error if it holds none."""
    content = _read(path)
    _parse_certificates(content, path)
    return content


def stamp(*paths: Path) -> Stamp | None:
    """A value that changes when one of the files does; None while one is missing.

    The inode too: a rotation by rename may keep time and size. Symbolic links are followed, because that is how
    Kubernetes replaces a Secret's files.
    """
    try:
        stats = [path.stat() for path in paths]
    except OSError:
        return None
    return tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats)


def load_certificates(path: Path) -> list[x509.Certificate]:
    """All certificates of a PEM file, the leaf first; there is at least one."""
    return _parse_certificates(_read(path), path)


def load_certificate(path: Path) -> x509.Certificate:
    """The first certificate of a PEM file."""
    return load_certificates(path)[0]


def load_key(path: Path) -> CertificateIssuerPrivateKeyTypes:
    """The private key of a PEM file."""
    return _parse_key(_read(path), path)


def _parse_certificates(content: bytes, path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError:
        hint = "; it holds a private key" if b"PRIVATE KEY-----" in content else ""
        raise InvalidArgumentError(f"{path} holds no PEM certificate{hint}") from None


def _parse_key(content: bytes, path: Path) -> CertificateIssuerPrivateKeyTypes:
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except TypeError:
        raise InvalidArgumentError(f"{path} is protected by a passphrase: store it without one, mode 0600") from None
    except (ValueError, UnsupportedAlgorithm):
        # The cause is cut off: nothing about the content of a key belongs in a message or a traceback.
        raise InvalidArgumentError(f"{path} holds no PEM private key that can be read") from None
    kinds = (rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey, ed25519.Ed25519PrivateKey, ed448.Ed448PrivateKey)
    if isinstance(key, kinds):
        return key
    raise InvalidArgumentError(f"{path}: a key of this kind cannot be used for TLS; use ECDSA or RSA")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        where = "" if path.is_absolute() else f" (looked for in {Path.cwd()}, the working directory)"
        raise NotFoundError(f"{path} does not exist{where}") from None
    except OSError as error:
        raise PreconditionError(f"cannot read {path}: {error.strerror}") from error
