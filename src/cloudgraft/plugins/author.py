"""Serves a driver or provider from its author's process: as a plugin of a host, or as a separate server."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import os
import secrets
import signal
import stat
import sys
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn

import grpc
from prometheus_client import CollectorRegistry

from cloudgraft.net.connections import ListenerMetrics
from cloudgraft.plugins import handshake
from cloudgraft.plugins.handshake import Handshake, format_line
from cloudgraft.plugins.throwaway_tls import KeyPair, make_key_pair
from cloudgraft.sdk.blocking import BlockingDriver, BlockingProvider, as_driver, as_provider
from cloudgraft.sdk.driver import Driver
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError
from cloudgraft.sdk.provider import Provider
from cloudgraft.server.driver_calls import DriverCalls
from cloudgraft.server.grpc_server import GrpcServer
from cloudgraft.server.listener import Access, Listener
from cloudgraft.server.signals import StopSignals
from cloudgraft.server.tls import TlsFiles
from cloudgraft.service import CloudProviderService
from cloudgraft.wire.driver import SERVICE, decode_settings

# -- The gRPC listener -------------------------------------------------------------------------------------------------


log = logging.getLogger("cloudgraft.driver")

_LONGEST_MESSAGE: Final = 16 * 1024 * 1024  # user data is part of a request


class DriverServer:
    """One listening address for one driver. The caller starts and closes the driver itself."""

    def __init__(self, driver: Driver, access: Access) -> None:
        """Prepares a listener; :meth:`start` opens it."""
        self._service = DriverCalls(lambda _: driver, log=log, whose="the driver's")
        self._listener = Listener(
            self._service.handler(),
            replace(access, limits=replace(access.limits, message_bytes=_LONGEST_MESSAGE)),
            service_name=SERVICE,
            name="driver",
            metrics=ListenerMetrics(CollectorRegistry()),
        )

    @property
    def address(self) -> str:
        """The address it listens on, with the real port."""
        return self._listener.address

    async def start(self) -> None:
        """Opens the port and begins to serve; raises UnavailableError when the port cannot be opened."""
        await self._listener.start()

    async def stop(self, grace: float) -> None:
        """Refuses new calls, lets those in flight end for at most ``grace`` seconds, then closes."""
        await self._listener.stop(grace)
        await self._service.drain(grace)


# -- Child process of a host -------------------------------------------------------------------------------------------


Plugin = Provider | BlockingProvider | Driver | BlockingDriver
_CLASSES: Final = (Provider, BlockingProvider, Driver, BlockingDriver)
_GRACE: Final = 3.0  # seconds for calls in flight; shorter than the host waits
_LOOK_FOR_PARENT: Final = 1.0


def make_plugin(plugin: Plugin | type[Plugin]) -> Plugin:
    """Returns the object itself, or constructs the class with the options from the environment."""
    if not isinstance(plugin, type):
        found: object = plugin
    elif issubclass(plugin, _CLASSES):
        # The import takes a third of a plugin's start, and an object does not need it.
        from cloudgraft.plugins.registry import construct  # noqa: PLC0415

        found = construct(plugin, decode_settings(os.environ.get(handshake.OPTIONS, "")))
    else:
        found = None
    if not isinstance(found, _CLASSES):
        raise InvalidArgumentError(f"{plugin!r} is neither a Provider nor a Driver of cloudgraft.sdk")
    return found


def serve_as_plugin(plugin: Plugin | type[Plugin]) -> None:
    """Serves until the host stops it or is gone. Blocks; exits when the program was not started by a host."""
    if os.environ.get(handshake.COOKIE_KEY) != handshake.COOKIE_VALUE:
        _give_up(_explanation(plugin))
    client = os.environ.get(handshake.CLIENT_CERT)
    if not client:
        _give_up("the host sent no certificate (PLUGIN_CLIENT_CERT), and a cloudgraft plugin never serves without TLS")
    with _stdout_for_handshake() as stdout:
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")  # to stderr
        try:
            asyncio.run(_serve(make_plugin(plugin), client.encode("ascii"), stdout))
        except CloudgraftError as error:
            _give_up(f"{type(error).__name__}: {error.message}")


async def _serve(plugin: Plugin, client_certificate: bytes, stdout: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    serving = asyncio.create_task(_serve_for_ever(plugin, client_certificate, stdout))
    stopping = asyncio.create_task(stop.wait())
    watch = asyncio.create_task(_stop_without_host(stop))
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    for task in (serving, stopping, watch):
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):  # we cancelled it ourselves
        await serving


async def _serve_for_ever(plugin: Plugin, client_certificate: bytes, stdout: int) -> None:
    own = make_key_pair()
    served = as_driver(plugin) if isinstance(plugin, (Driver, BlockingDriver)) else as_provider(plugin)
    with _socket_directory() as directory:
        path = directory / f"plugin-{secrets.token_hex(4)}"
        server = _listener(served, f"unix:{path}", _credentials(own, client_certificate))
        await served.start()
        try:
            await server.start()
            line = format_line(Handshake(network="unix", address=str(path), certificate=own.der))
            # On its own line, even after output that did not end with a newline.
            os.write(stdout, f"\n{line}\n".encode())
            await asyncio.Event().wait()
        finally:
            await server.stop(_GRACE)
            await served.close()


def _listener(plugin: Provider | Driver, listen: str, credentials: grpc.ServerCredentials) -> DriverServer | GrpcServer:
    if isinstance(plugin, Driver):
        return DriverServer(plugin, Access(listen=listen, credentials=credentials))
    return GrpcServer(CloudProviderService(plugin), Access(listen=listen, credentials=credentials))


def _credentials(own: KeyPair, client_certificate: bytes) -> grpc.ServerCredentials:
    return grpc.ssl_server_credentials(
        [(own.key, own.certificate)], root_certificates=client_certificate, require_client_auth=True
    )


async def _stop_without_host(stop: asyncio.Event) -> None:
    """Sets ``stop`` when the host is gone: its end of our stdin is closed, or we have another parent."""
    parent = os.getppid()
    if _is_pipe(0):
        asyncio.get_running_loop().add_reader(0, _read_to_end, stop)
    while os.getppid() == parent:  # noqa: ASYNC110 - the kernel sends no event for it
        await asyncio.sleep(_LOOK_FOR_PARENT)
    stop.set()


def _is_pipe(descriptor: int) -> bool:
    """Returns False for a terminal, a file or /dev/null: their end does not mean that the host is gone."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _read_to_end(stop: asyncio.Event) -> None:
    with contextlib.suppress(OSError):
        if os.read(0, 4096):
            return
    asyncio.get_running_loop().remove_reader(0)
    stop.set()


@contextlib.contextmanager
def _stdout_for_handshake() -> Iterator[int]:
    """Keeps the real stdout for the handshake line, and redirects all other output to stderr."""
    sys.stdout.flush()
    real = os.dup(1)
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a pipe would buffer it, and a kill would lose it
    try:
        yield real
    finally:
        sys.stdout.flush()
        os.dup2(real, 1)
        os.close(real)


@contextlib.contextmanager
def _socket_directory() -> Iterator[Path]:
    """Yields the host's private directory, or creates one when the host has none."""
    given = os.environ.get(handshake.SOCKET_DIR)
    if given:
        yield Path(given)
        return
    with tempfile.TemporaryDirectory(prefix="cloudgraft-plugin-") as own:
        yield Path(own)


def _give_up(message: str) -> NoReturn:
    sys.stderr.write(message.rstrip() + "\n")
    sys.exit(1)


def _explanation(plugin: Plugin | type[Plugin]) -> str:
    cls = plugin if isinstance(plugin, type) else type(plugin)
    command = ", ".join([Path(sys.executable).name, *(json.dumps(argument) for argument in _own_arguments())])
    if issubclass(cls, (Driver, BlockingDriver)):
        kind, config = "driver", f"clouds:\n  my-cloud:\n    driver: plugin\n    command: [{command}]"
    else:
        kind, config = "provider", f"providers:\n  - type: plugin\n    command: [{command}]"
    return (
        f"This program is a cloudgraft plugin: the {kind} {cls.__name__}. It is not meant to be run by hand:\n"
        f"cloudgraft starts it when its configuration names it.\n\n{config}\n"
    )


def _own_arguments() -> list[str]:
    """Returns the arguments that started this program, after the interpreter."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if main is not None and main.name:  # python -m package
        return ["-m", main.name.removesuffix(".__main__"), *sys.argv[1:]]
    return [str(Path(sys.argv[0]).resolve()), *sys.argv[1:]]


# -- Separate server ---------------------------------------------------------------------------------------------------


_SERVER_GRACE = 10.0  # seconds for calls in flight


async def serve_driver_until_signal(
    driver: Driver, *, listen: str, tls: TlsFiles | None, allowed_clients: Collection[str]
) -> None:
    """Serves until SIGTERM or SIGINT."""
    server = DriverServer(driver, Access(listen=listen, tls=tls, allowed_clients=allowed_clients))
    with StopSignals() as signals:
        try:
            await driver.start()
            await server.start()
            log.warning("serving on %s", server.address, extra={"address": server.address, "tls": tls is not None})
            await signals.wait()
        except asyncio.CancelledError:
            if not signals.while_starting:
                raise
        finally:
            await server.stop(_SERVER_GRACE)
            await driver.close()
