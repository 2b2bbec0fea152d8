"""The names in a client's certificate, by which it is known."""

from __future__ import annotations

from functools import lru_cache

from cryptography import x509
from cryptography.x509.oid import NameOID

__all__ = ["names_in_der", "names_in_pem"]


@lru_cache(maxsize=256)
def names_in_pem(pem: bytes) -> tuple[str, ...]:
    """The common name and the DNS and URI names of a certificate."""
    return _names_in(x509.load_pem_x509_certificate(pem))


@lru_cache(maxsize=256)
def names_in_der(der: bytes) -> tuple[str, ...]:
    """The same of a certificate in binary form."""
    return _names_in(x509.load_der_x509_certificate(der))


def _names_in(certificate: x509.Certificate) -> tuple[str, ...]:
    # From the certificate itself: lists of names that libraries make may cut each at a NUL, so that "good\0.evil" would
    # be "good".
    names = [str(name.value) for name in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    try:
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        pass
    else:
        names += alternatives.get_values_for_type(x509.DNSName)
        names += alternatives.get_values_for_type(x509.UniformResourceIdentifier)
    return tuple(dict.fromkeys(name for name in names if name and name.isprintable()))
