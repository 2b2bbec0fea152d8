"""Clients of AWS's APIs whose timeout is for all of an answer: see :mod:`cloudgraft.drivers.common.urllib3_limits`."""

from __future__ import annotations

from typing import Any

from botocore.awsrequest import AWSHTTPConnection, AWSHTTPConnectionPool, AWSHTTPSConnection, AWSHTTPSConnectionPool

from cloudgraft.drivers.common.urllib3_limits import LimitedResponse
from cloudgraft.sdk.errors import PreconditionError

__all__ = ["limited"]


class _Connection(AWSHTTPConnection):  # type: ignore[misc]  # botocore has no types
    response_class = LimitedResponse


class _SecureConnection(AWSHTTPSConnection):  # type: ignore[misc]  # likewise
    response_class = LimitedResponse


class _Pool(AWSHTTPConnectionPool):  # type: ignore[misc]  # likewise
    ConnectionCls = _Connection


class _SecurePool(AWSHTTPSConnectionPool):  # type: ignore[misc]  # likewise
    ConnectionCls = _SecureConnection


def limited(client: Any) -> Any:
    """The client, which has made no call yet; its read timeout is for the whole of an answer from now on."""
    session = client._endpoint.http_session  # noqa: SLF001 - there is no public way to its connections
    pools = getattr(session, "_pool_classes_by_scheme", None)  # its managers share it, also those of proxies
    if not isinstance(pools, dict):
        raise PreconditionError("this release of botocore is not known: its answers cannot be given a limit")
    pools.update({"http": _Pool, "https": _SecurePool})
    return client
