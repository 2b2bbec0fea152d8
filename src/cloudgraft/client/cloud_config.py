"""Reads the autoscaler's ``--cloud-config`` file as the autoscaler does, and the URL of its proposal.

    address: provider.kube-system.svc:8086     # required
    key: /etc/ssl/client/tls.key               # all three, or none
    cert: /etc/ssl/client/tls.crt
    cacert: /etc/ssl/client/ca.crt
    grpc_timeout: 5s                           # a Go duration; 5s unless said

Unknown keys are ignored and upper and lower case do not matter, as in the autoscaler. Paths are relative to the
working directory of the process, not to the file: that too is how the autoscaler does it.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

import yaml

from cloudgraft.sdk.duration import format_duration, parse_duration
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.hosts import is_loopback_host

# -- Addresses ---------------------------------------------------------------------------------------------------------
# The autoscaler accepts what Go's ``net.SplitHostPort`` accepts: ``host:port``, ``host%zone:port``, ``[host]:port`` and
# ``[host%zone]:port``, and therefore ``unix:/path`` too. So does this code, with clearer errors for the rest.


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


DEFAULT_TIMEOUT: Final = timedelta(seconds=5)
_PORTS: Final = {"https": 443, "http": 80}
_KEYS: Final = ("address", "key", "cert", "cacert", "grpc_timeout")
_MAX_FILE_BYTES: Final = 1 << 20
_log = logging.getLogger("cloudgraft.client")


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudConfig:
    """How to reach a server. Make it with :meth:`load`, :meth:`parse` or :meth:`from_url`, or by hand.

    With ``cert`` the connection is mTLS, and ``key`` and ``cacert`` must be there too. Without it the connection is
    plain text, whatever the other two say. ``tls`` asks for TLS without a client certificate, which no cloud-config
    file can say, only an https URL; the server is then checked against ``cacert``, or else against public CAs.
    """

    address: Address
    key: str = ""
    cert: str = ""
    cacert: str = ""
    grpc_timeout: timedelta = DEFAULT_TIMEOUT
    tls: bool = False
    server_name: str = ""  # the name in the server's certificate, if it is not the address's host

    def __post_init__(self) -> None:
        if self.grpc_timeout <= timedelta(0):
            raise InvalidArgumentError(
                f"grpc_timeout is {format_duration(self.grpc_timeout)}, so every call would be given up before it "
                "starts: make it longer than 0s, or leave it out for 5s"
            )
        if self.cert and not self.key:
            raise InvalidArgumentError("cert is set but key is not: add the path of the certificate's private key")
        if self.cert and not self.cacert and not self.tls:
            raise InvalidArgumentError("cert is set but cacert is not: add the path of the server's CA certificate")

    @property
    def is_encrypted(self) -> bool:
        """Whether TLS is used at all."""
        return self.tls or bool(self.cert)

    def with_timeout(self, timeout: timedelta) -> CloudConfig:
        """The same server with another time limit per call."""
        return replace(self, grpc_timeout=timeout)

    @classmethod
    def load(cls, path: str | Path) -> CloudConfig:
        """Reads a cloud-config file; every error names the file."""
        try:
            with Path(path).open("rb") as file:
                content = file.read(_MAX_FILE_BYTES + 1)
            text = content.decode()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise InvalidArgumentError(f"cannot read the cloud-config {path}: {reason}") from error
        except UnicodeDecodeError as error:
            raise InvalidArgumentError(f"the cloud-config {path} is not a text file in UTF-8") from error
        if len(content) > _MAX_FILE_BYTES:
            raise InvalidArgumentError(f"the cloud-config {path} is larger than 1 MiB: is it the right file?")
        try:
            return cls.parse(text)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"cloud-config {path}: {error.message}") from error

    @classmethod
    def parse(cls, text: str) -> CloudConfig:
        """Reads the text of a cloud-config file."""
        values = _fields(text)
        timeout = values.get("grpc_timeout")
        config = cls(
            address=Address.parse(values.get("address", "")),
            key=values.get("key", ""),
            cert=values.get("cert", ""),
            cacert=values.get("cacert", ""),
            grpc_timeout=DEFAULT_TIMEOUT if timeout is None else _timeout(timeout),
        )
        if not config.cert and (config.key or config.cacert):
            _log.warning(
                "the cloud-config has a key or cacert but no cert: the connection is plain text, as it would be for "
                "the autoscaler; add cert to encrypt it"
            )
        return config

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        key: str = "",
        cert: str = "",
        cacert: str = "",
        grpc_timeout: timedelta = DEFAULT_TIMEOUT,
    ) -> CloudConfig:
        """Reads ``https://host[:port]``, as in the proposal's ``--cloud-provider-url``.

        https means TLS, on port 443 unless said, with a client certificate when ``cert`` and ``key`` are given;
        http means plain text, on port 80 unless said. A path has no meaning: a gRPC call goes to
        ``/package.Service/Method`` and nowhere else. It is ignored with a warning and not refused, because the
        proposal's own example has one.
        """
        encrypted, address = _split_url(url)
        if not encrypted and (key or cert or cacert):
            raise InvalidArgumentError(f"{url} is plain text, but a key or certificate is given: use https:// instead")
        if key and not cert:
            raise InvalidArgumentError("a key is given but no cert: add the certificate that belongs to it")
        return cls(address=address, key=key, cert=cert, cacert=cacert, grpc_timeout=grpc_timeout, tls=encrypted)


class _PlainScalars(yaml.SafeLoader):
    """Leaves every plain value but null as it is written.

    Go's YAML library knows where a string is wanted and puts the text there; PyYAML by itself would take ``1:30`` for
    a number of seconds and ``2024-01-01`` for a date.
    """


_PlainScalars.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.endswith((":null", ":merge"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _fields(text: str) -> dict[str, str]:
    """The known keys of the file with their texts; null counts as absent."""
    try:
        # The first document only: Go's library ignores the others.
        document = next(yaml.load_all(text, _PlainScalars), None)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"it is not valid YAML: {_yaml_problem(error)}") from error
    if document is None:
        return {}
    if not isinstance(document, Mapping):
        raise InvalidArgumentError("it must be a mapping with at least one line 'address: host:port'")
    found: dict[str, str] = {}
    # In this order the lower-case spelling wins over the others, as it does in Go.
    for key in sorted(key for key in document if isinstance(key, str)):
        name, value = key.casefold(), document[key]
        if name not in _KEYS or value is None:
            continue
        if isinstance(value, bytes | Mapping | list | set):
            raise InvalidArgumentError(f"{key} must be a text")
        found[name] = str(value)
    return found


def _yaml_problem(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return str(error)


def _timeout(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InvalidArgumentError(f"grpc_timeout: {error}") from error


def _split_url(url: str) -> tuple[bool, Address]:
    """Whether the URL asks for TLS, and the address in it."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise InvalidArgumentError(f"the URL cannot be read ({error}): write it as https://host:port") from error
    if parts.username is not None or parts.password is not None:
        # Not repeated in the message: it may be a password.
        raise InvalidArgumentError("the URL has a user name or password in it, which gRPC cannot send: leave it out")
    if parts.scheme not in _PORTS or not host:
        raise InvalidArgumentError(f"the URL {url!r} cannot be used: write it as https://host:port")
    if parts.query or parts.fragment:
        raise InvalidArgumentError(f"the URL {url!r} has a query or fragment, which gRPC cannot send: leave it out")
    if parts.path.strip("/"):
        _log.warning("gRPC has no path prefix: the path %s of the URL is ignored", parts.path)
    shown = f"[{host}]" if ":" in host else host
    return parts.scheme == "https", Address.parse(f"{shown}:{_PORTS[parts.scheme] if port is None else port}")
