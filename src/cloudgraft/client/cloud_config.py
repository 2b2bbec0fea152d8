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
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import yaml

from cloudgraft.client.address import Address
from cloudgraft.sdk.duration import format_duration, parse_duration
from cloudgraft.sdk.errors import InvalidArgumentError

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
