"""Listening addresses, and the rule that nothing is exposed without TLS by accident."""

from __future__ import annotations

from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.hosts import is_loopback_host


def has_port(listen: str) -> bool:
    """False for a unix socket."""
    return not listen.startswith(("unix:", "unix-abstract:"))


def is_loopback(listen: str) -> bool:
    """True when only programs on this host can reach the address."""
    return not has_port(listen) or is_loopback_host(listen.rpartition(":")[0])


def check_exposure(listen: str, *, secure: bool, insecure: bool) -> None:
    """Refuses to serve other hosts without TLS unless told so in as many words."""
    host, colon, port = listen.rpartition(":")
    if has_port(listen) and not (colon and host and port.isdigit() and int(port) <= 65535):
        raise InvalidArgumentError(f"{listen!r} is not an address of the form host:port, such as 127.0.0.1:8086")
    if not secure and not insecure and not is_loopback(listen):
        raise InvalidArgumentError(
            f"refusing to serve {listen} without TLS: whoever can reach it could create and delete machines. "
            "Set server.tls (`cloudgraft certs init DIR` makes the files), listen on 127.0.0.1, or say --insecure"
        )
