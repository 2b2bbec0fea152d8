"""Limits the answers that sessions of the library requests read: see :mod:`.urllib3_limits`."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import requests
from requests.adapters import HTTPAdapter

from cloudgraft.drivers.common.urllib3_limits import LARGEST_ANSWER, POOLS
from cloudgraft.sdk.errors import InternalError

__all__ = ["LimitedAdapter", "limit_answers"]


def limit_answers(session: requests.Session) -> None:
    """From now on, a read timeout of this session is for the whole of an answer."""
    for prefix in ("https://", "http://"):
        session.mount(prefix, LimitedAdapter())


class LimitedAdapter(HTTPAdapter):
    """Sends requests whose read timeout is for the whole of an answer."""

    def init_poolmanager(self, *args: Any, **more: Any) -> None:
        """With connections that know it."""
        super().init_poolmanager(*args, **more)
        self.poolmanager.pool_classes_by_scheme = POOLS

    def build_response(self, req: requests.PreparedRequest, resp: Any) -> requests.Response:
        """With a limit on what comes out when it is unpacked: a few bytes may be packed gigabytes."""
        read, itself = type(resp).stream, weakref.ref(resp)  # weak: its connection is to be closed with the last user
        resp.stream = lambda *args, **more: _unpacked(read(itself(), *args, **more))
        return super().build_response(req, resp)

    def proxy_manager_for(self, *args: Any, **more: Any) -> Any:
        """Through a proxy too."""
        manager = super().proxy_manager_for(*args, **more)
        manager.pool_classes_by_scheme = POOLS
        return manager


def _unpacked(pieces: Iterator[bytes]) -> Iterator[bytes]:
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > LARGEST_ANSWER:
            raise InternalError(f"an answer of the cloud has more than {LARGEST_ANSWER >> 20} MiB, unpacked")
        yield piece
