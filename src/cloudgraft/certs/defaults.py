"""Names the default hosts and client of certificates. Needs no cryptography, so that `certs --help` is quick."""

from __future__ import annotations

from typing import Final

DEFAULT_CLIENT: Final = "cluster-autoscaler-grpc-client"  # its name in the autoscaler's own example manifests
DEFAULT_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
