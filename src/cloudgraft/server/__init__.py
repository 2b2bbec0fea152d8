"""Transports and life cycle: how a provider is reached, and by whom."""

from cloudgraft.server.serve import ServeOptions, serve
from cloudgraft.server.tls import TlsFiles

__all__ = ["ServeOptions", "TlsFiles", "serve"]
