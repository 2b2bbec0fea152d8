"""Runs a server for a provider: transports, TLS, allowed clients, start and stop."""

from cloudgraft.server.serve import ServeOptions, serve
from cloudgraft.server.tls import TlsFiles

__all__ = ["ServeOptions", "TlsFiles", "serve"]
