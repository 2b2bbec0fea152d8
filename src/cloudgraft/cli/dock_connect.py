"""`cloudgraft dock connect`: connects any installed driver to a dock."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click

from cloudgraft.app import logs
from cloudgraft.app.memory_dumps import forbid_memory_dumps
from cloudgraft.config import ConfigError, Where, parse_options
from cloudgraft.config.section import convert
from cloudgraft.dock.runner import RunnerOptions, RunnerSettings, Speech, Tls, run_until_told
from cloudgraft.plugins.registry import arguments, driver_class
from cloudgraft.sdk.blocking import AnyDriver
from cloudgraft.sdk.driver import Place
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.validation.document import read_mapping


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


@click.command("connect")
@click.option("-c", "--config", "path", type=click.Path(path_type=Path), required=True, help="The driver's file.")
@click.option("--driver", "name", default="", help="The driver, as `cloudgraft drivers` lists it; over the file's.")
@click.option("--address", default="", help="host:port of the dock; over the file's.")
@click.option("--check", is_flag=True, help="Only check the file: exit code 0 when it is good.")
@logs.options
def command(path: Path, name: str, address: str, verbosity: int | None, log_format: str | None, *, check: bool) -> None:
    """Connect any installed driver to a dock, and serve it until told to stop.

    \b
    The file:
      address: 127.0.0.1:5000
      kind: SimMachineClass
      apiVersion: sim.example/v1
      driver: simulated
      options: {bootTime: 5s}                     # of the driver, as in `clouds`
      tls: {ca: ca.crt, cert: tls.crt, key: tls.key}   # needed when the dock is on another host
      tokenFile: token                            # instead of cert and key, or beside them

    \b
    Examples:
      cloudgraft dock connect --config driver.yaml
      cloudgraft dock connect --driver exec --config driver.yaml --address dock.example:5000

    A dock that is away is tried again and again. SIGTERM and SIGINT let operations in flight end.
    """
    if not check:
        forbid_memory_dumps()
    document, data = read_mapping(path, "address: 127.0.0.1:5000")
    overrides = {"driver": name, "address": address}
    data = data | {key: value for key, value in overrides.items() if value}
    where = Where(document=document, base_dir=path.absolute().parent, path=())
    wanted = parse_options(ConnectOptions, data, where)
    try:
        options = wanted.runner_options()
        driver = _driver(wanted, where)
    except ConfigError:
        raise
    except CloudgraftError as error:
        raise ConfigError([document.problem((), error.message)]) from error
    if check:
        click.echo(f"{path}: good (driver {wanted.driver} for {options.key})")
        return
    logs.configure(2 if verbosity is None else verbosity, log_format or "console")
    asyncio.run(run_until_told(driver, options))


def _driver(wanted: ConnectOptions, where: Where) -> AnyDriver:
    if not wanted.driver:
        raise click.UsageError("say which driver: --driver NAME, or driver: NAME in the file")
    cls = driver_class(wanted.driver)
    place = dataclasses.replace(where, path=("options",))
    places = {Place.STATE_FILE: where.base_dir / f"driver-{wanted.kind}.db", Place.WORKING_DIRECTORY: where.base_dir}
    return cls(*arguments(cls, wanted.options, place, places, name=f"the driver {wanted.driver}"))
