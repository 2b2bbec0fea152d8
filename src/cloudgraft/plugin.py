"""Serves a provider or driver with one line in the author's ``main()``.

>>> from cloudgraft.plugin import serve
>>> if __name__ == "__main__":  # doctest: +SKIP
...     serve(MyProvider())
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from cloudgraft.plugins.author import Plugin, make_plugin, serve_as_plugin, serve_driver_until_signal
from cloudgraft.sdk.blocking import BlockingDriver, as_driver, as_provider
from cloudgraft.sdk.common.library_warnings import warnings_never_raise
from cloudgraft.sdk.driver import Driver
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.server.serve import ServeOptions, serve_until_signal
from cloudgraft.server.tls import TlsFiles

__all__ = ["serve"]


def serve(
    plugin: Plugin | type[Plugin],
    *,
    listen: str | None = None,
    tls: TlsFiles | None = None,
    allowed_clients: Collection[str] = (),
) -> None:
    """Serves a provider or a driver, async or blocking. Blocks until its host or a signal stops it.

    Without ``listen`` it runs as a child process of cloudgraft: its output goes to cloudgraft's log, and the program
    ends with its host. Run by hand it prints what it is and how to configure it, and exits with code 1.

    With ``listen`` (``host:port``) it runs as a separate server: with ``tls``, or on loopback only. ``allowed_clients``
    lists the certificate names of clients that may call it.

    A class instead of an object is constructed with the options of cloudgraft's configuration: ``cls(options)`` when it
    has an ``Options`` attribute (a dataclass or a pydantic model), else ``cls()``.
    """
    warnings_never_raise()
    if listen is None:
        if tls is not None or allowed_clients:
            raise InvalidArgumentError("tls and allowed_clients belong to a server of its own: say where to listen")
        serve_as_plugin(plugin)
        return
    made = make_plugin(plugin)
    if isinstance(made, (Driver, BlockingDriver)):
        asyncio.run(serve_driver_until_signal(as_driver(made), listen=listen, tls=tls, allowed_clients=allowed_clients))
    else:
        options = ServeOptions(listen=listen, tls=tls, allowed_clients=allowed_clients)
        asyncio.run(serve_until_signal(as_provider(made), options))
