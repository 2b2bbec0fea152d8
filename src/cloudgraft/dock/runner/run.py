"""Runs a driver that dials in: one line for its ``main()``."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

from cloudgraft.dock.runner.options import RunnerOptions, RunnerSettings, Tls
from cloudgraft.dock.runner.runner import DockRunner
from cloudgraft.sdk.blocking import BlockingDriver
from cloudgraft.sdk.driver import Driver
from cloudgraft.sdk.errors import PreconditionError
from cloudgraft.sdk.secrecy import redacted
from cloudgraft.server.signals import StopSignals


def run(
    driver: Driver | BlockingDriver,
    *,
    address: str,
    kind: str,
    api_version: str,
    tls: Tls | None = None,
    token_file: Path | str = "",
    settings: RunnerSettings | None = None,
) -> None:
    """Connects a driver to a hub, and serves it until SIGTERM or SIGINT. Blocks; for the main thread of a program.

    ``kind`` and ``api_version`` say which machine classes the driver serves. Without ``tls`` the hub must be on this
    machine. Retries for ever when the hub is away or rejects the driver.
    """
    options = RunnerOptions(
        address=address,
        kind=kind,
        api_version=api_version,
        tls=tls,
        token_file=token_file,
        settings=settings or RunnerSettings(),
    )
    _check_no_loop()
    handler = logging.StreamHandler()
    handler.setFormatter(_WithoutSecrets("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])  # unless logging is configured
    asyncio.run(run_until_told(driver, options))


class _WithoutSecrets(logging.Formatter):
    """Redacts log lines: those of a driver, and exceptions of libraries, may quote credentials."""

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


def _check_no_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise PreconditionError("run() blocks, and an event loop runs here: await run_until_told(driver, options) instead")


async def run_until_told(driver: Driver | BlockingDriver, options: RunnerOptions) -> None:
    """The same inside an event loop of the main thread, which is the one that receives signals."""
    if threading.current_thread() is not threading.main_thread():
        raise PreconditionError("only the main thread gets signals: in another one use DockRunner, with start and stop")
    runner = DockRunner(driver, options)
    with StopSignals() as signals:
        try:
            await runner.start()
            await signals.wait()
        except asyncio.CancelledError:
            if not signals.while_starting:
                raise
        finally:
            await runner.stop()
