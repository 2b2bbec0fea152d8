"""Secrets of drivers are shown nowhere, from the moment they are read until nobody can be using them any more."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from cloudgraft.dock.classes.declared import SecretData
from cloudgraft.sdk.secrecy import hide, unhide

__all__ = ["Hiding"]

_KEPT_FOR: Final = 3600.0  # seconds; an operation that began with the old one has long ended


class Hiding:
    """What is hidden at present (see :mod:`cloudgraft.sdk.secrecy`)."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._new: list[SecretData] = []
        self._retired: deque[tuple[float, SecretData]] = deque()

    def begin(self, data: SecretData) -> None:
        """Has a secret's values hidden by the next :meth:`apply`, as they are and as Kubernetes writes them."""
        self._new.append(data)

    def end(self, data: SecretData) -> None:
        """Shows them again, but not yet: operations that are under way have them."""
        self._retired.append((self._clock() + _KEPT_FOR, data))

    def apply(self) -> None:
        """Hides what is new, and shows again what has had its time. All at once: each call sorts all secrets."""
        hide(*(form for data in self._new for form in _forms(data)))
        self._new.clear()
        ended: list[SecretData] = []
        while self._retired and self._retired[0][0] <= self._clock():
            ended.append(self._retired.popleft()[1])
        if ended:
            unhide(*(form for data in ended for form in _forms(data)))


def _forms(data: SecretData) -> Iterator[str]:
    for value in data.values():
        text = value.decode("utf-8", "backslashreplace")
        yield text
        yield text.strip()
        yield base64.b64encode(value).decode()
        if "-----BEGIN" in text:  # a message may quote a line of a key
            yield from (line for line in text.splitlines() if line and not line.startswith("-----"))
