"""`cloudgraft dock connect`: connects any installed driver to a dock."""

from __future__ import annotations

from pathlib import Path

import click

from cloudgraft.cli import names
from cloudgraft.cli.terminal import config_option, log_options


@click.command("connect")
@config_option("The driver's file.", default=Path("driver.yaml"))
@click.option(
    "--driver",
    "name",
    default="",
    shell_complete=names.drivers,
    help="The driver, as `cloudgraft drivers` lists it; over the file's.",
)
@click.option("--address", default="", help="host:port of the dock; over the file's.")
@click.option("--check", is_flag=True, help="Only check the file: exit code 0 when it is good.")
@log_options
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
    import asyncio

    from cloudgraft.app import logs
    from cloudgraft.app.dock_connect import ConnectOptions, driver_of
    from cloudgraft.app.memory_dumps import forbid_memory_dumps
    from cloudgraft.config import ConfigError, Where, parse_options
    from cloudgraft.dock.runner import run_until_told
    from cloudgraft.sdk.errors import CloudgraftError
    from cloudgraft.validation.document import read_mapping

    if not check:
        forbid_memory_dumps()
    document, data = read_mapping(path, "address: 127.0.0.1:5000")
    overrides = {"driver": name, "address": address}
    data = data | {key: value for key, value in overrides.items() if value}
    where = Where(document=document, base_dir=path.absolute().parent, path=())
    wanted = parse_options(ConnectOptions, data, where)
    if not wanted.driver:
        raise click.UsageError("say which driver: --driver NAME, or driver: NAME in the file")
    try:
        options = wanted.runner_options()
        driver = driver_of(wanted, where)
    except ConfigError:
        raise
    except CloudgraftError as error:
        raise ConfigError([document.problem((), error.message)]) from error
    if check:
        click.echo(f"{path}: good (driver {wanted.driver} for {options.key})")
        return
    logs.configure(2 if verbosity is None else verbosity, log_format or "console")
    asyncio.run(run_until_told(driver, options))
