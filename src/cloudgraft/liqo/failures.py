"""Defines the failure of one remote cluster, after which the next one is tried."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cloudgraft.sdk.errors import CloudgraftError

if TYPE_CHECKING:  # an extra, and slow to import
    from cloudgraft.kube.client import KubeClient

log = logging.getLogger("cloudgraft.liqo")


class ClusterError(Exception):
    """A cluster cannot be used for this machine. ``cools``: do not ask it again for a while."""

    def __init__(self, why: str, *, cools: bool = True) -> None:
        super().__init__(why)
        self.why = why
        self.cools = cools


@contextmanager
def at_cluster(what: str, client: KubeClient) -> Iterator[None]:
    """Turns every failure of that client into a ClusterError: the machine may still be created elsewhere.

    Unexpected errors too, because the remote side's responses are out of our control.
    """
    try:
        yield
    except ClusterError:
        raise
    except CloudgraftError as error:
        if not client.raised(error):
            raise
        raise ClusterError(f"{what}: {error.message}") from error
    except Exception as error:
        log.exception("what a remote cluster says could not be taken in")
        raise ClusterError(f"{what}: {type(error).__name__}") from error
