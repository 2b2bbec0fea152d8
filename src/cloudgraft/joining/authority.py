"""The hashes by which a joining machine knows the cluster's authority, as the tools want them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from cloudgraft.sdk.errors import InvalidArgumentError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

__all__ = ["bundle_hash", "public_key_hashes"]


def public_key_hashes(pem: str) -> list[str]:
    """``sha256:…`` of each certificate's public key, for kubeadm. Raises InvalidArgumentError."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat  # noqa: PLC0415 - slow to import

    return [
        "sha256:"
        + hashlib.sha256(
            certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        ).hexdigest()
        for certificate in _certificates(pem)
    ]


def bundle_hash(pem: str) -> str:
    """The hash in a k3s or RKE2 token: of the file as it is, or, in a chain, of the root. Raises InvalidArgumentError.

    So every byte of the file counts: it must be the one that the server itself has.
    """
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415 - slow to import

    certificates = _certificates(pem)
    if len(certificates) > 1:
        issuers = {certificate.subject: certificate for certificate in certificates}
        top = certificates[0]
        for _ in certificates:
            top = issuers.get(top.issuer, top)
        if top.subject == top.issuer:
            return hashlib.sha256(top.public_bytes(Encoding.DER)).hexdigest()
    return hashlib.sha256(pem.encode()).hexdigest()


def _certificates(pem: str) -> list[Certificate]:
    from cryptography import x509  # noqa: PLC0415 - slow to import

    try:
        return x509.load_pem_x509_certificates(pem.encode())
    except ValueError as error:
        raise InvalidArgumentError(
            "the cluster's authority is not a PEM certificate: name the right file in join.caFile"
        ) from error
