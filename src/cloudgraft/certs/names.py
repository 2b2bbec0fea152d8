"""Compares the host names and addresses in certificates as the autoscaler does.

The autoscaler takes the host of ``address`` in its cloud-config as the name it expects (rule R9) and leaves the
comparison to Go's ``crypto/x509``. :func:`server_name` and :func:`go_accepts` do the same here, so that a wrong name
is found before the first connection fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from cryptography import x509
from cryptography.x509.oid import NameOID

from cloudgraft.sdk.errors import InvalidArgumentError

Host = str | IPv4Address | IPv6Address

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")


def parse_host(text: str) -> Host:
    """A name or address as it goes into a certificate: an IP address, or a DNS name in lower case.

    A wildcard is accepted as the whole first label only, as Go does.
    """
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    address = _ip(bare)
    if address is not None:
        return address
    name = bare.lower().removesuffix(".")
    if not name.isascii():
        raise InvalidArgumentError(f"{text!r} is not an ASCII name: give it in its xn-- form")
    if re.fullmatch(r".+:[0-9]+", name) or "/" in name:
        raise InvalidArgumentError(f"{text!r} is not a host: give the name or address alone, without scheme and port")
    labels = name.removeprefix("*.").split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise InvalidArgumentError(f"{text!r} is neither a host name nor an IP address")
    if labels[-1].isdigit():
        raise InvalidArgumentError(f"{text!r} looks like an IP address, but is none")
    return name


def parse_hosts(texts: Iterable[str]) -> tuple[Host, ...]:
    """All of them in the same order, each once; at least one is needed."""
    hosts = tuple(dict.fromkeys(parse_host(text) for text in texts))
    if not hosts:
        raise InvalidArgumentError("a server certificate needs at least one host name or IP address")
    return hosts


def parse_client_name(text: str) -> str:
    """A client's name, which becomes both common name and DNS name of its certificate, and a file name."""
    name = text.lower()
    if len(name) > 64 or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise InvalidArgumentError(
            f"{text!r} cannot be a client's name: use at most 64 letters, digits, hyphens and dots, "
            "such as cluster-autoscaler-grpc-client"
        )
    return name


def server_name(address: str) -> str:
    """The name that the Go client will look for in the server's certificate: the host of ``address``.

    ``address`` is what the cloud-config says: ``host:port``, ``host%zone:port``, ``[host]:port`` or
    ``[host%zone]:port``.
    """
    match = re.fullmatch(r"\[([^\[\]]*)\]:([^:\[\]]*)|([^:\[\]]*):([^:\[\]]*)", address)
    if match is None:
        hint = "put an IPv6 address into brackets, [::1]:8086" if address.count(":") > 1 else "write host:port"
        raise InvalidArgumentError(f"{address!r} is not an address that the Go client can use: {hint}")
    host = match.group(1) if match.group(1) is not None else match.group(3)
    if not host:
        raise InvalidArgumentError(f"{address!r} has no host, so no name to look for in a certificate: write host:port")
    return host


def go_accepts(name: str, dns_names: Iterable[str], addresses: Iterable[IPv4Address | IPv6Address]) -> bool:
    """Whether Go's TLS client accepts a certificate with these SANs for ``name``. The common name does not count."""
    bare = name[1:-1] if len(name) > 2 and name.startswith("[") and name.endswith("]") else name
    address = _ip(bare)
    if address is not None:  # compared with IP SANs only; an IPv4 address equals its form inside IPv6
        return any(_plain(address) == _plain(candidate) for candidate in addresses)
    wanted = _lower(name)
    return any(_matches(_lower(candidate), wanted) for candidate in dns_names)


def join_host_port(host: str, port: int) -> str:
    """``host:port``, with brackets where the host is an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _matches(pattern: str, wanted: str) -> bool:
    """Wildcards and a final dot count only between proper host names; anything else must be the same text."""
    host = wanted.removesuffix(".")
    if not (_is_hostname(host, pattern=False) and _is_hostname(pattern, pattern=True)):
        return pattern == wanted and wanted not in {"", "."}
    ours, theirs = pattern.split("."), host.split(".")
    if ours[0] == "*":
        return len(ours) == len(theirs) and ours[1:] == theirs[1:]
    return ours == theirs


def _is_hostname(text: str, *, pattern: bool) -> bool:
    if text == "*":
        return False
    labels = text.split(".")
    if pattern and labels[0] == "*":
        labels = labels[1:]
    return all(re.fullmatch(r"[a-z0-9_][a-z0-9_-]*", label) for label in labels)


def _lower(text: str) -> str:
    """Only ASCII letters: others are no part of a host name, and Go leaves them alone."""
    return text.encode(errors="surrogatepass").lower().decode(errors="surrogatepass")


def _ip(text: str) -> IPv4Address | IPv6Address | None:
    """An address as Go's net.ParseIP reads it: without a zone."""
    if "%" in text:
        return None
    try:
        return ip_address(text)
    except ValueError:
        return None


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


# -- names in client certificates --------------------------------------------------------------------------------------
# The server identifies a client by them.


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
