"""The files of an mTLS connection, read and checked before anything is dialled.

gRPC's own library takes any bytes and fails later, in a handshake, with a message that names no file. The autoscaler
reads and checks them at its start, and so does this.
"""

from __future__ import annotations

from pathlib import Path

import grpc
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from cloudgraft.client.cloud_config import CloudConfig
from cloudgraft.sdk.errors import InvalidArgumentError

__all__ = ["channel_credentials"]


def channel_credentials(config: CloudConfig) -> grpc.ChannelCredentials | None:
    """The credentials from the files of a config; None for plain text.

    Raises InvalidArgumentError that names the file when one cannot be read or parsed, or when key and certificate do
    not belong together.
    """
    if not config.is_encrypted:
        return None
    ca = _read("cacert", config.cacert) if config.cacert else None
    if ca is not None:
        _certificates("cacert", config.cacert, ca)
    if not config.cert:
        return grpc.ssl_channel_credentials(root_certificates=ca)
    cert, key = _read("cert", config.cert), _read("key", config.key)
    leaf = _certificates("cert", config.cert, cert)[0]
    _check_pair(config, leaf, key)
    return grpc.ssl_channel_credentials(root_certificates=ca, private_key=key, certificate_chain=cert)


def _read(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        where = "" if Path(path).is_absolute() else f" (looked for in {Path.cwd()}, the working directory)"
        raise InvalidArgumentError(
            f"cannot read the {name} file {path}: {error.strerror or type(error).__name__}{where}"
        ) from error


def _certificates(name: str, path: str, content: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise InvalidArgumentError(f"the {name} file {path} holds no certificate in PEM form") from error


def _check_pair(config: CloudConfig, leaf: x509.Certificate, key: bytes) -> None:
    try:
        private = load_pem_private_key(key, password=None)
    except TypeError as error:  # what the library raises for a key that needs a password
        raise InvalidArgumentError(
            f"the key file {config.key} is encrypted: store it without a password, readable by this user only"
        ) from error
    except (ValueError, UnsupportedAlgorithm):
        # The cause is cut off: nothing about the content of a key belongs in a message or a traceback.
        raise InvalidArgumentError(f"the key file {config.key} holds no private key in PEM form") from None
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if private.public_key().public_bytes(*form) != leaf.public_key().public_bytes(*form):
        raise InvalidArgumentError(f"the key {config.key} does not belong to the certificate {config.cert}")
