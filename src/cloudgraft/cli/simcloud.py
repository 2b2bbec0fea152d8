"""`cloudgraft simcloud`: runs a simulated cloud for tests, as a separate process."""

from __future__ import annotations

import json
import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cloudgraft.cli.terminal import log_options
from cloudgraft.sdk.driver import Idempotency
from cloudgraft.sdk.duration import parse_duration
from cloudgraft.sdk.errors import InvalidArgumentError

if TYPE_CHECKING:
    from cloudgraft.simcloud.chaos import Chaos
    from cloudgraft.simcloud.cloud import SimulatedCloud
    from cloudgraft.simcloud.options import SimulatedOptions

log = logging.getLogger("cloudgraft.simcloud")

_FOR_THE_DRIVER = ("url", "timeout", "pageSize", "client", "stateFile")


def _duration(_context: click.Context, _option: click.Parameter, value: str | None) -> timedelta | None:
    try:
        return None if value is None else parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("simcloud")
@click.option("--listen", default="127.0.0.1:9400", show_default=True, help="Address; port 0 for any that is free.")
@click.option("--db", type=click.Path(path_type=Path), required=True, help="The ledger, made when it is not there.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Play the kubelet of all machines in this cluster.")
@click.option("--in-cluster", is_flag=True, help="The same in the cluster of this pod, with its service account.")
@click.option(
    "--options", "options_file", type=click.Path(path_type=Path), help="YAML with options as the driver has them."
)
@click.option("--chaos", "chaos_file", type=click.Path(path_type=Path), help="JSON as for PUT /chaos, from the start.")
@click.option(
    "--idempotency", type=click.Choice([kind.value for kind in Idempotency]), help="What a second create does."
)
@click.option("--boot-time", callback=_duration, metavar="DURATION", help="From the order to a running machine.")
@click.option("--delete-time", callback=_duration, metavar="DURATION", help="From the request to a gone machine.")
@click.option("--list-lag", callback=_duration, metavar="DURATION", help="How old the picture is that a list shows.")
@click.option("--quota", type=click.IntRange(0), help="Machines at a time.")
@click.option("--insecure", is_flag=True, help="Serve other hosts too, without authentication.")
@log_options
def command(
    listen: str,
    db: Path,
    kubeconfig: Path | None,
    options_file: Path | None,
    chaos_file: Path | None,
    verbosity: int | None,
    log_format: str | None,
    *,
    in_cluster: bool,
    insecure: bool,
    **given: Any,
) -> None:
    """Run a simulated cloud: machines with prices and a ledger, and whatever may go wrong in a real one.

    \b
    The driver uses it by its address:
      clouds: {sim: {driver: simulated, url: "http://127.0.0.1:9400"}}

    \b
    Examples:
      cloudgraft simcloud --db cloud.db
      cloudgraft simcloud --db cloud.db --idempotency none --list-lag 30s --kubeconfig ~/.kube/config
      curl -X PUT 127.0.0.1:9400/chaos -d '{"create": {"lost": {"next": 1}}, "stock": {"gpu": 0}}'
      curl 127.0.0.1:9400/ledger
    """
    from cloudgraft.app import logs
    from cloudgraft.simcloud.cloud import SimulatedCloud
    from cloudgraft.simcloud.http.server import HttpServer

    if in_cluster and kubeconfig is not None:
        raise click.UsageError("--kubeconfig and --in-cluster exclude each other")
    logs.configure(2 if verbosity is None else verbosity, log_format or "console")
    options = replace(_options(options_file, given), state_file=db)
    chaos = _chaos(chaos_file)
    with ExitStack() as stack:
        cloud = SimulatedCloud(options, chaos=chaos)
        stack.callback(cloud.close)
        server = HttpServer(cloud, listen, insecure=insecure)
        stack.callback(server.stop)
        stop = stack.enter_context(_stop_on_signal())
        if in_cluster or kubeconfig is not None:
            stack.enter_context(_kubelet(cloud, kubeconfig))
        server.start()
        log.info("serving", extra={"address": server.address, "db": str(db), "machines": len(cloud.machines())})
        stop.wait()
        log.info("stopping")
    log.info("stopped")


def _options(path: Path | None, given: dict[str, Any]) -> SimulatedOptions:
    """The options of the file, overridden by the command line."""
    from cloudgraft.simcloud.options import SimulatedOptions

    overrides = {name: value for name, value in given.items() if value is not None}
    if "idempotency" in overrides:
        overrides["idempotency"] = Idempotency(overrides["idempotency"])
    return replace(_from_file(path) if path else SimulatedOptions(), **overrides)


def _from_file(path: Path) -> SimulatedOptions:
    from cloudgraft.config import ConfigError, Where, parse_options
    from cloudgraft.simcloud.options import SimulatedOptions
    from cloudgraft.validation.document import read_mapping

    document, data = read_mapping(path, "bootTime: 5s")
    unfit = [document.problem((key,), "is for the driver, not for the cloud") for key in _FOR_THE_DRIVER if key in data]
    if unfit:
        raise ConfigError(unfit)
    return parse_options(SimulatedOptions, data, Where(document=document, base_dir=path.absolute().parent, path=()))


def _chaos(path: Path | None) -> Chaos:
    from cloudgraft.simcloud.chaos import Chaos

    if path is None:
        return Chaos()
    try:
        return Chaos.from_json(json.loads(path.read_bytes()))
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(f"{path} cannot be read as JSON: {error}") from error


@contextmanager
def _kubelet(cloud: SimulatedCloud, kubeconfig: Path | None) -> Iterator[None]:
    from cloudgraft.simcloud.kubelets.kubelet import Kubelet

    kubelet = Kubelet(cloud, kubeconfig)
    kubelet.start()
    try:
        yield
    finally:
        kubelet.stop()


@contextmanager
def _stop_on_signal() -> Iterator[threading.Event]:
    """Turns the first SIGTERM or SIGINT into a graceful stop. The second one ends the process at once, as usual."""
    stop = threading.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}

    def stop_once(*_: object) -> None:
        stop.set()
        for number in numbers:
            signal.signal(number, before[number])

    for number in numbers:
        signal.signal(number, stop_once)
    try:
        yield stop
    finally:
        stop_once()
