"""Admin service of a running server: JSON over gRPC, on a unix socket for its own user, or on a TLS port."""

from cloudgraft.admin.client import AdminClient, ClientTls
from cloudgraft.admin.server import AdminServer

__all__ = ["AdminClient", "AdminServer", "ClientTls"]
