"""Whether the server is still there: a call that ends it is the worst answer of all."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import replace
from typing import Final

from cloudgraft.conformance.check import Check, Need
from cloudgraft.conformance.report import Exchange, Result, Status
from cloudgraft.conformance.rules.rule import Level
from cloudgraft.conformance.stage import Stage
from cloudgraft.sdk.errors import StatusCode

__all__ = ["comes_back", "is_broken", "with_crash"]

_AWAY: Final = (StatusCode.UNAVAILABLE, StatusCode.CANCELLED)  # the second while a server shuts down
# gRPC's own words for a connection that broke or could not be made: a server that answers UNAVAILABLE says others.
_BROKEN: Final = r"failed to connect|connection (reset|refused)|socket closed|broken pipe|GOAWAY"
# The second is what is left of a call when a server shuts down; the kit's own cancellations are told otherwise.
_CUT: Final = re.compile(rf"^UNAVAILABLE: .*({_BROKEN})|^CANCELLED: CANCELLED$", re.IGNORECASE)
_PAUSE: Final = 0.1


def is_broken(error: str) -> bool:
    """Whether an UNAVAILABLE came of a connection that could not be made or broke, and not from the server."""
    return re.search(_BROKEN, error, re.IGNORECASE) is not None


def with_crash(check: Check, result: Result) -> Result:
    """The result of a check; a failure when the server broke the connection in the middle of it."""
    cut = next((exchange for exchange in result.exchanges if _is_cut(exchange)), None)
    if cut is None or Need.RESTART in check.needs:
        return result
    message = f"the server broke the connection in answer to {cut.rpc}: it crashed, or was restarted by somebody"
    return replace(result, status=Status.FAILED, level=Level.MUST, message=message)


async def _is_away(stage: Stage) -> bool:
    """Whether nothing at all is answered."""
    answers = [(await stage.calls.node_groups()).status, (await stage.calls.refresh()).status]
    return all(status in _AWAY for status in answers)


async def comes_back(stage: Stage) -> bool:
    """Waits a while for a server that is away; whether it answers again."""
    end = time.monotonic() + stage.config.patience.restart.total_seconds()
    while await _is_away(stage):
        if time.monotonic() >= end:
            return False
        await asyncio.sleep(_PAUSE)
    return True


def _is_cut(exchange: Exchange) -> bool:
    return exchange.is_failed and _CUT.search(exchange.answered) is not None
