"""Records creates whose error says that nothing was done, to find machines that exist all the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence

from cloudgraft.sdk.driver import Machine
from cloudgraft.sdk.errors import AlreadyExistsError, CloudgraftError, Retry


def denies(error: BaseException | None) -> bool:
    """Whether the error says that nothing was done: the engine then creates again, or gives up, without a list."""
    if not isinstance(error, CloudgraftError) or isinstance(error, AlreadyExistsError):
        return False
    return error.retry is not Retry.SETTLE_FIRST


class Denials:
    """Names of which every create so far was denied. One that may have made the machine ends that for its name."""

    def __init__(self) -> None:
        self.last = 0.0  # when the last one was noted
        self._denied: dict[str, str] = {}
        self._possible: set[str] = set()  # names of which a create may have made a machine
        self._proven: dict[str, str] = {}  # denied, and seen in a list

    def ended(self, name: str, error: BaseException | None) -> None:
        """Notes how one create ended; None for an answer."""
        if denies(error) and name not in self._possible:
            self._denied[name] = repr(error)
            self.last = time.monotonic()
        elif isinstance(error, asyncio.CancelledError) or not denies(error):
            self._possible.add(name)
            self._denied.pop(name, None)

    def forget(self, names: Iterable[str]) -> None:
        """Leaves these out: a check looks at them itself."""
        for name in names:
            self._denied.pop(name, None)
            self._proven.pop(name, None)
            self._possible.add(name)

    def seen(self, listed: object) -> None:
        """Looks for denied names in what a list answered, which may be anything."""
        for machine in listed if isinstance(listed, Sequence) else ():
            if isinstance(machine, Machine) and machine.name in self._denied:
                self._proven[machine.name] = self._denied[machine.name]

    @property
    def proven(self) -> Sequence[str]:
        """The denied creates that made a machine, for a message."""
        return [f"{name} ({error})" for name, error in self._proven.items()]

    def __len__(self) -> int:
        return len(self._denied)
