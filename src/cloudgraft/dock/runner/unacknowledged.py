"""Results that no hub has acknowledged: they are told again at the next connect, so that no machine is forgotten."""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cloudgraft.wire.pb import dock_pb2 as pb

__all__ = ["Keeper", "Worth"]

log = logging.getLogger("cloudgraft.dock")


class Worth(enum.IntEnum):
    """What is let go of first, when there are too many."""

    DELETED = 0  # a list shows it as well
    NOT_CREATED = 1
    CREATED = 2  # a machine that costs money


@dataclass(frozen=True, slots=True)
class _Kept:
    result: pb.Result
    worth: Worth
    size: int


class Keeper:
    """Keeps results of creates and deletes, in order, up to a number and a size.

    Those of reads are not kept: an old list is worse than none.
    """

    def __init__(self, *, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._kept: dict[tuple[str, int], _Kept] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, result: pb.Result, worth: Worth) -> None:
        """Until it is acknowledged, or until there are too many that are worth more."""
        self._drop((result.hub_id, result.id))
        self._kept[result.hub_id, result.id] = _Kept(result, worth, size := result.ByteSize())
        self._bytes += size
        while len(self._kept) > self._most or (self._bytes > self._most_bytes and len(self._kept) > 1):
            least = min(self._kept, key=lambda one: self._kept[one].worth)  # of several, the oldest
            log.warning("a result that no hub has acknowledged is given up: there are too many", extra={"id": least[1]})
            self._drop(least)

    def find(self, hub_id: str, number: int) -> pb.Result | None:
        """The result of that operation, if it is kept."""
        kept = self._kept.get((hub_id, number))
        return None if kept is None else kept.result

    def acknowledge(self, numbers: Iterable[int]) -> None:
        """The hub has these. Of two hubs' lives with one number the older is meant: it was sent first."""
        for number in numbers:
            found = next((key for key in self._kept if key[1] == number), None)
            if found is not None:
                self._drop(found)

    def waiting(self) -> Sequence[pb.Result]:
        """All that are kept, the oldest first."""
        return [kept.result for kept in self._kept.values()]

    def _drop(self, key: tuple[str, int]) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._bytes -= kept.size
