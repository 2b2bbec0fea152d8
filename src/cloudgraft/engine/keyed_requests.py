"""Makes a change once for each key: a repeated request gets the first answer, and nothing is done.

The journal stores key and answer in the transaction of the change itself. A repetition after a lost connection or a
crash therefore finds either both or nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, Final

from cloudgraft.engine.engine import Engine
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.store.records import Change, RequestRecord

MOST_KEYS: Final = 50_000  # remembered keys: what a front needs in a day, even if it makes changes all the time


class KeyReusedError(InvalidArgumentError):
    """The key was used for another request before."""

    http_status = 422


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The caller and key of a change, and a fingerprint of the request. Without a key it is never repeated."""

    caller: str
    key: str
    fingerprint: str

    @classmethod
    def of(cls, caller: str, key: str, *what: object) -> Asked:
        """For a request ``what``, which is any JSON value."""
        text = json.dumps(what, sort_keys=True)
        return cls(caller=caller, key=key, fingerprint=hashlib.sha256(text.encode()).hexdigest())


def answered(engine: Engine, asked: Asked, *, key: str) -> Mapping[str, Any] | None:
    """The answer that this request got before; None for a new one. Call it in the turn of the change.

    Raises KeyReusedError when the key was used for another request; ``key`` is the word for it in the message.
    """
    known = engine.fleet.requests.get((asked.caller, asked.key)) if asked.key else None
    if known is None:
        return None
    if known.fingerprint != asked.fingerprint:
        raise KeyReusedError(f"this {key} was used for another request: use a new one for every change")
    return known.answer


def remembered(engine: Engine, change: Change, asked: Asked, answer: Mapping[str, Any]) -> Change:
    """The change together with its key and answer; drops the oldest key when there are too many."""
    if not asked.key:
        return change
    requests = engine.fleet.requests
    surplus = islice(requests, max(0, len(requests) + 1 - MOST_KEYS))
    record = RequestRecord(**asdict(asked), answer=answer, at=engine.clock.now())
    return replace(change, requests=(record,), removed_requests=tuple(surplus))
