"""The files of an mTLS connection, read and checked before anything is dialled.

gRPC's own library takes any bytes and fails later, in a handshake, with a message that names no file. The autoscaler
reads and checks them at its start, and so does this.
"""

from __future__ import annotations

from pathlib import Path

import grpc

from cloudgraft.certs.pem import Stamp, load_authority, load_tls, stamp
from cloudgraft.client.cloud_config import CloudConfig

__all__ = ["channel_credentials", "credentials_stamp"]


def channel_credentials(config: CloudConfig) -> grpc.ChannelCredentials | None:
    """The credentials from the files of a config; None for plain text.

    Raises an error that names the file when one cannot be read or parsed, or when key and certificate do not belong
    together.
    """
    if not config.is_encrypted:
        return None
    ca = Path(config.cacert) if config.cacert else None
    if config.cert:
        loaded = load_tls(Path(config.cert), Path(config.key), ca)
        return grpc.ssl_channel_credentials(loaded.ca, private_key=loaded.key, certificate_chain=loaded.cert)
    return grpc.ssl_channel_credentials(load_authority(ca) if ca else None)


def credentials_stamp(config: CloudConfig) -> Stamp | None:
    """Something that changes when a file of the connection is replaced."""
    return stamp(*(Path(path) for path in (config.cert, config.key, config.cacert) if path))
