"""Tells loopback hosts from all others; connections without TLS are allowed to loopback only."""

from __future__ import annotations

import ipaddress


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
