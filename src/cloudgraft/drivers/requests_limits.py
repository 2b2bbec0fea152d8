"""Sessions of the library requests whose timeout is for all of an answer: see :mod:`.urllib3_limits`."""

from __future__ import annotations

from typing import Any

import requests
from requests.adapters import HTTPAdapter

from cloudgraft.drivers.urllib3_limits import POOLS

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

    def proxy_manager_for(self, *args: Any, **more: Any) -> Any:
        """Through a proxy too."""
        manager = super().proxy_manager_for(*args, **more)
        manager.pool_classes_by_scheme = POOLS
        return manager
