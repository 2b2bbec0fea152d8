"""Builds the provider of a node manager from the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgraft.config.sections.providers import NodeManagerProvider as Entry
from cloudgraft.sdk.errors import UnsupportedError

if TYPE_CHECKING:
    from cloudgraft.nodemanager.front.provider import NodeManagerProvider  # needs an extra


def make_front(name: str, entry: Entry) -> NodeManagerProvider:
    """The provider of an entry with `type: node-manager`; opens no connection yet."""
    try:
        from cloudgraft.nodemanager.front.provider import (  # noqa: PLC0415
            FrontSettings,
            ManagerLink,
            NodeManagerProvider,
        )
        from cloudgraft.web.client import ClientTls, WebClient  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise UnsupportedError(f"a node manager needs {error.name}: pip install 'cloudgraft[web]'") from error
    tls, timeout, snapshot = entry.tls, entry.timeout.total_seconds(), entry.snapshot
    client = WebClient(
        entry.address,
        tls=ClientTls(ca=tls.ca, cert=tls.cert, key=tls.key) if tls is not None else None,
        token_file=entry.token_file,
        timeout=timeout,
    )
    settings = FrontSettings(
        refresh_every=snapshot.refresh_every.total_seconds(), max_staleness=snapshot.max_staleness.total_seconds()
    )
    return NodeManagerProvider(ManagerLink(client, timeout=timeout), name=name, settings=settings)
