"""Records creates whose error says that nothing was done, to find machines that exist all the same."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence

from cloudgraft.sdk.driver import Machine
from cloudgraft.sdk.errors import CloudgraftError, OutOfStockError, QuotaExceededError

FULL = (QuotaExceededError, OutOfStockError)


def denies(error: BaseException | None) -> bool:
    """Whether the error says that nothing was done: the engine then creates again, or gives up, without a list."""
    return isinstance(error, CloudgraftError) and not error.leaves_open


class Denials:
    """Names of which every create so far was denied. One that may have made the machine ends that for its name."""

    def __init__(self) -> None:
        self.last = 0.0  # when the last one was noted
        self._denied: dict[str, str] = {}
        self._possible: set[str] = set()  # names of which a create may have made a machine
        self._proven: dict[str, str] = {}  # denied, and seen in a list
        self._running: Counter[str] = Counter()  # creates that have not ended, by name
        self._unsettled: dict[str, float] = {}  # when each denial ended that no list has settled yet
        self._taken: set[str] = set()  # ids of machines that were given out to be deleted

    def began(self, name: str) -> None:
        """Notes that a create of this name runs: until it ends, a list proves nothing about the name."""
        self._running[name] += 1

    def ended(self, name: str, error: BaseException | None) -> None:
        """Notes how one create ended; None for an answer."""
        self._running[name] -= 1
        if denies(error) and name not in self._possible:
            self._denied[name] = repr(error)
            self.last = time.monotonic()
            if not isinstance(error, FULL):  # a check that waits for room would wait for its own attempts
                self._unsettled[name] = self.last
        elif isinstance(error, asyncio.CancelledError) or not denies(error):
            self._exclude(name)

    def forget(self, names: Iterable[str]) -> None:
        """Leaves these out: a check looks at them itself."""
        for name in names:
            self._exclude(name)
            self._proven.pop(name, None)

    def seen(self, listed: object) -> Sequence[Machine]:
        """Looks for denied names in what a list answered, which may be anything. Returns each machine once."""
        found = list[Machine]()
        for machine in listed if isinstance(listed, Sequence) else ():
            if isinstance(machine, Machine) and machine.name in self._denied and not self._running[machine.name]:
                self._proven[machine.name] = self._denied[machine.name]
                if machine.machine_id not in self._taken:
                    self._taken.add(machine.machine_id)
                    found.append(machine)
        return found

    def settle(self, before: float) -> None:
        """Notes that a list had to show everything that ended before this moment."""
        self._unsettled = {name: ended for name, ended in self._unsettled.items() if ended > before}

    @property
    def unsettled(self) -> int:
        """How many machines may exist although their creates were denied: no list has settled that yet."""
        return len(self._unsettled)

    @property
    def proven(self) -> Sequence[str]:
        """The denied creates that made a machine, for a message."""
        return [f"{name} ({error})" for name, error in self._proven.items()]

    def __len__(self) -> int:
        return len(self._denied)

    def _exclude(self, name: str) -> None:
        self._possible.add(name)
        self._denied.pop(name, None)
        self._unsettled.pop(name, None)
