"""Reads the configuration file of a driver that dials in, and builds that driver."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cloudgraft.config import Where
from cloudgraft.config.section import convert
from cloudgraft.dock.runner import RunnerOptions, RunnerSettings, Speech, Tls
from cloudgraft.plugins.registry import arguments, driver_class
from cloudgraft.sdk.blocking import AnyDriver
from cloudgraft.sdk.driver import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectTls:
    """The files of the connection."""

    ca: Path  # the CA of the dock's certificate
    cert: Path | None = None  # the driver's own, which needs the key; None: it uses a token instead
    key: Path | None = None
    server_name: str = ""  # the name in the dock's certificate, if not the host of the address


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions:
    """The configuration file of a driver that dials in."""

    address: str  # host:port of the dock
    kind: str  # such as AcmeMachineClass
    api_version: str  # such as machine.example/v1
    driver: str = ""  # as `cloudgraft drivers` lists it
    protocol: Speech = Speech.V1
    tls: ConnectTls | None = None
    token_file: Path | None = None
    max_in_flight: int = 32
    options: Mapping[str, object] = field(default_factory=dict, repr=False)  # of the driver

    def runner_options(self) -> RunnerOptions:
        """The runner's options; raises InvalidArgumentError."""
        tls = self.tls
        return convert(
            self,
            RunnerOptions,
            tls=Tls(ca=tls.ca, cert=tls.cert or "", key=tls.key or "", server_name=tls.server_name) if tls else None,
            token_file=self.token_file or "",
            settings=RunnerSettings(name=self.driver, speech=self.protocol, max_in_flight=self.max_in_flight),
        )


def driver_of(wanted: ConnectOptions, where: Where) -> AnyDriver:
    """The driver of the file, with its options."""
    cls = driver_class(wanted.driver)
    place = dataclasses.replace(where, path=("options",))
    places = {Place.STATE_FILE: where.base_dir / f"driver-{wanted.kind}.db", Place.WORKING_DIRECTORY: where.base_dir}
    return cls(*arguments(cls, wanted.options, place, places, name=f"the driver {wanted.driver}"))
