"""Checks addresses of other programs. Connections without TLS are allowed to loopback only."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from cloudgraft.sdk.errors import InvalidArgumentError


def is_loopback_host(host: str) -> bool:
    """True when only programs on this machine can reach the host: ``localhost``, 127.0.0.0/8, ``::1``.

    An IPv6 address may stand in brackets. Any other name counts as another machine, whatever it may resolve to.
    """
    bare = host.removeprefix("[").removesuffix("]")
    if bare.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


def check_url(url: str, *, example: str, exposed: str, insecure: bool | None = None) -> None:
    """Refuses what is not the address of an HTTP API, and http to another host, where all can read what is sent.

    ``exposed`` names what they could read. ``insecure`` is the option that allows it; None: there is no such option.
    Messages do not repeat the address: it may contain a password.
    """
    not_one = InvalidArgumentError(f"is not an address; write it like {example}")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise not_one from None
    is_plain = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme not in ("http", "https") or not host or port == 0 or not is_plain:
        raise not_one
    if "@" in parts.netloc:
        raise InvalidArgumentError("must be without credentials: there are options for files with them")
    if "?" in url or "#" in url:
        raise InvalidArgumentError(f"must be without a query and a fragment; write it like {example}")
    if parts.scheme == "http" and not insecure and not is_loopback_host(host):
        why = f"is http to another host: {exposed} would be readable on the way"
        allowed = "" if insecure is None else ", or say `insecure: true` if that is really what you want"
        raise InvalidArgumentError(f"{why}; use https{allowed}")
