"""The operator's way into a running server: JSON over gRPC, on a socket of its own user, or on a TLS port."""

from cloudgraft.admin.client import AdminClient, ClientTls
from cloudgraft.admin.server import AdminServer

__all__ = ["AdminClient", "AdminServer", "ClientTls"]
