"""Options of a runner: the hub's address, the driver's identity, and timeouts."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cloudgraft._version import __version__
from cloudgraft.client.cloud_config import Address, CloudConfig
from cloudgraft.dock.protocol.messages import Key
from cloudgraft.sdk.errors import InvalidArgumentError

_LONGEST_KEEPALIVE: Final = 86_400.0  # seconds


class Speech(enum.Enum):
    """The protocol to use. Those of 2018 are for hubs that support no other: they lose the results that v1 resends."""

    V1 = "v1"
    V0 = "v0"  # service.Servicegrpc
    V0_INFRA = "v0-infra"  # the same under its older name, infra.Infragrpc


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The files of the connection. They are read at every connect, so a rotation needs no restart."""

    ca: Path | str = ""  # the authority of the hub's certificate; empty: the public ones
    cert: Path | str = ""  # the driver's certificate; empty: it authenticates by token
    key: Path | str = ""
    server_name: str = ""  # the name in the hub's certificate, if it is not the address's host


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerSettings:
    """Settings that rarely need another value. Times are in seconds."""

    name: str = ""  # the program's name, for people; empty: that of the driver's class
    version: str = __version__
    speech: Speech = Speech.V1
    max_in_flight: int = 32  # concurrent creates and deletes, and as many reads
    grace: float = 10.0  # for running operations after a signal to stop
    first_wait: float = 1.0  # the first backoff limit; it doubles
    longest_wait: float = 30.0
    stable_after: float = 60.0  # a connection that lasted this long resets the backoff
    handshake: float = 10.0
    # v0 only: silence after which the runner pings. Servers of 2018 treat more frequent pings as an attack.
    keepalive: float = 330.0
    kept_results: int = 1000  # that no hub has acknowledged yet
    kept_bytes: int = 1 << 20  # they are sent in one message
    instance_id: str = ""  # id of this process, for the hub; empty: generated

    def __post_init__(self) -> None:
        """Rejects values that can never work."""
        if self.max_in_flight < 1:
            raise InvalidArgumentError(f"max_in_flight is {self.max_in_flight}: at least one operation must be allowed")
        if not 0 < self.first_wait <= self.longest_wait:
            raise InvalidArgumentError("first_wait must be more than zero, and at most longest_wait")
        if not 0 < self.keepalive <= _LONGEST_KEEPALIVE:
            raise InvalidArgumentError(f"keepalive must be more than zero, and at most {_LONGEST_KEEPALIVE:g} s")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerOptions:
    """All settings of a runner, except its driver."""

    address: str  # host:port, or unix:/path
    kind: str  # such as "AcmeMachineClass"
    api_version: str  # such as "machine.example/v1"
    tls: Tls | None = None  # None: plain text, on this machine only
    token_file: Path | str = ""  # read at every connect
    settings: RunnerSettings = field(default_factory=RunnerSettings)

    def __post_init__(self) -> None:
        """Rejects what no hub accepts, and plain text to another machine (law 9)."""
        where = Address.parse(self.address)
        for name, value in (("kind", self.kind), ("api_version", self.api_version)):
            if not value.strip():
                raise InvalidArgumentError(f"{name} is empty: it says which machine classes this driver is for")
        if self.settings.speech is not Speech.V1 and self.api_version.count("/") != 1:
            raise InvalidArgumentError(
                f'api_version is {self.api_version!r}: in v0 it is group/version, such as "machine.example/v1"'
            )
        if self.tls is None and not where.is_loopback:
            raise InvalidArgumentError(
                f"{self.address} is another machine, and there the connection must be TLS: give tls=Tls(ca=…), "
                "with cert and key or with a token file"
            )
        self.config()

    @property
    def key(self) -> Key:
        """The key that the driver registers under."""
        return Key(kind=self.kind, api_version=self.api_version)

    def config(self) -> CloudConfig:
        """The same options for the client of the autoscaler's protocol."""
        address = Address.parse(self.address)
        if self.tls is None:
            return CloudConfig(address=address)
        if self.tls.key and not self.tls.cert:
            raise InvalidArgumentError("a key is given but no cert: add the certificate that belongs to it")
        return CloudConfig(
            address=address,
            tls=True,
            cacert=str(self.tls.ca),
            cert=str(self.tls.cert),
            key=str(self.tls.key),
            server_name=self.tls.server_name,
        )
