"""Serves drivers to remote engines: ``cloudgraft.driver.v1.Driver``, one driver behind each key.

The metadata of a call selects its driver; see :mod:`cloudgraft.dock.slot`, the client. Only an engine may
call, and only for the kinds that the configuration grants it.
"""

from __future__ import annotations

import logging
import math
from datetime import timedelta
from typing import Final

from cloudgraft.dock.access import CallerAccess, Context, admit_engine
from cloudgraft.dock.classes.store import MachineClasses
from cloudgraft.dock.hub.hub import Hub
from cloudgraft.dock.protocol.messages import Key
from cloudgraft.dock.slot import (
    API_VERSION_KEY,
    CLASS_KEY,
    KIND_KEY,
    MAX_IN_FLIGHT_KEY,
    SECONDS_KEY,
    HubSlot,
)
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.server.driver_calls import DriverCalls

_LONGEST: Final = timedelta(minutes=10)  # for a call without a deadline
_LONGEST_NAME: Final = 253
_MOST_AT_ONCE: Final = 1000


class EngineService(DriverCalls):
    """Answers engines' calls with the drivers of one hub."""

    def __init__(self, hub: Hub, classes: MachineClasses | None, access: CallerAccess) -> None:
        """``access`` says which callers are engines, and for which keys."""
        self._hub = hub
        self._classes = classes
        self._access = access
        # A list is one response: pages would need a kept copy of the list for any number of engines.
        super().__init__(self._slot, log=logging.getLogger("cloudgraft.dock"), whose="the dock's", page=None)

    def _slot(self, context: Context) -> HubSlot:
        """Returns the driver that the call selects, after authorizing the caller for it."""
        admit_engine(self._access, context)  # before any of its input is read
        metadata = {name: value for name, value in context.invocation_metadata() or () if isinstance(value, str)}
        kind, api_version, name = (_plain(metadata, each) for each in (KIND_KEY, API_VERSION_KEY, CLASS_KEY))
        key = Key(kind=kind, api_version=api_version)
        admit_engine(self._access, context, key)
        left = context.time_remaining()
        within = _LONGEST if left is None else min(_LONGEST, timedelta(seconds=max(0.0, left)))
        # An engine of an earlier release sends neither, and its deadline is all that there is.
        own = _number(metadata.get(SECONDS_KEY, ""))
        at_once = _number(metadata.get(MAX_IN_FLIGHT_KEY, "")) or 1.0
        if own:
            within = min(within, timedelta(seconds=own))
        return HubSlot(self._hub, self._classes, key, name, within, max_in_flight=int(min(at_once, _MOST_AT_ONCE)))


def _number(text: str) -> float | None:
    """A positive number; None for anything else."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number > 0 else None


def _plain(metadata: dict[str, str], name: str) -> str:
    value = metadata.get(name, "")
    if not value or len(value) > _LONGEST_NAME or not value.isprintable():
        raise InvalidArgumentError(f"the call does not say which driver it is for: its metadata lacks a good {name}")
    return value
