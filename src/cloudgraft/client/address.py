"""Parses a server's address as the autoscaler's cloud-config writes it.

The autoscaler accepts what Go's ``net.SplitHostPort`` accepts: ``host:port``, ``host%zone:port``, ``[host]:port`` and
``[host%zone]:port``, and therefore ``unix:/path`` too. So does this module, with clearer errors for the rest.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from urllib.parse import quote

from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.hosts import is_loopback_host

_FORMS = "write it as host:port, for example 'provider.kube-system.svc:8086' or '[::1]:8086'"


def split_host_port(text: str) -> tuple[str, str]:
    """Splits an address exactly as Go's ``net.SplitHostPort`` does: the port may be empty or a name."""
    last = text.rfind(":")
    if last < 0:
        raise _bad(text, "the port is missing")
    start = end = 0  # where the search for stray brackets begins
    if text.startswith("["):
        close = text.find("]")
        if close < 0:
            raise _bad(text, "the ']' is missing")
        if close + 1 == len(text):
            raise _bad(text, "the port is missing")
        if close + 1 != last:
            raise _bad(text, "there are too many colons" if text[close + 1] == ":" else "the port is missing")
        host, start, end = text[1:close], 1, close + 1
    else:
        host = text[:last]
        if ":" in host:
            raise _bad(text, "there are too many colons (an IPv6 address goes in brackets)")
    if "[" in text[start:]:
        raise _bad(text, "there is a '[' where none belongs")
    if "]" in text[end:]:
        raise _bad(text, "there is a ']' where none belongs")
    return host, text[last + 1 :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A server's address, split.

    ``host`` is what the server's certificate must be valid for: the Go client checks it against nothing else.
    """

    text: str  # as it was written
    host: str
    port: str  # a number; for a unix socket, the path

    @classmethod
    def parse(cls, text: str) -> Address:
        """Reads an address; raises InvalidArgumentError that says what to write instead."""
        if not text:
            raise InvalidArgumentError(f"the address is missing: {_FORMS}")
        if "://" in text and not text.startswith("unix"):
            raise _bad(text, "it is a URL; leave the scheme and the path out")
        host, port = split_host_port(text)
        if host in {"unix", "unix-abstract"}:
            if not port:
                raise _bad(text, "the path of the socket is missing")
            return cls(text=text, host=host, port=port)
        # Go connects an empty host to the local machine, and checks the certificate for that name.
        return cls(text=text, host=host or "localhost", port=_port_number(port, text))

    @property
    def is_unix(self) -> bool:
        """True for a unix socket."""
        return self.host in {"unix", "unix-abstract"}

    @property
    def is_loopback(self) -> bool:
        """True when the server is on this machine by the address alone."""
        return self.is_unix or is_loopback_host(self.host)

    @property
    def target(self) -> str:
        """The address for gRPC's own library: with a scheme, so that no host name is mistaken for one."""
        if self.is_unix:
            return self.text
        if ":" in self.host:
            return f"ipv6:{quote(f'[{self.host}]:{self.port}', safe='[]:')}"
        return f"dns:///{quote(f'{self.host}:{self.port}', safe=':')}"

    def __str__(self) -> str:
        """As it was written."""
        return self.text


def _port_number(port: str, text: str) -> str:
    if not port:
        raise _bad(text, "the port is empty")
    if port.isascii() and port.isdigit():
        if len(port.lstrip("0")) > 5 or int(port) > 65535:
            raise _bad(text, "the port is above 65535")
        return str(int(port))
    try:
        return str(socket.getservbyname(port, "tcp"))  # Go accepts the names of services too
    except (OSError, ValueError):
        raise _bad(text, f"the port {port!r} is neither a number nor the name of a service") from None


def _bad(text: str, reason: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"the address {text!r} cannot be used, {reason}: {_FORMS}")
