"""The hub that is measured, and those who call it: ``python -m bench.dock_hub_server``.

The callers are in the hub's process, as the engine is, so their work counts as the hub's. Each waits for its answer,
and looks whether it is the answer to what it asked.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench.dock_child import obey
from bench.dock_words import TAGS, key_of
from cloudgraft.app import logs
from cloudgraft.dock.access import CallerAccess
from cloudgraft.dock.classes.store import MachineClasses
from cloudgraft.dock.hub.hub import Hub, HubSettings
from cloudgraft.dock.hub.listener import DockListener
from cloudgraft.dock.protocol.codes import Verb
from cloudgraft.dock.protocol.messages import ClassRef, Key, MachineClass, Operation, Secret
from cloudgraft.sdk.driver import Machine, MachineSpec
from cloudgraft.server.serve import settle

__all__: list[str] = []

_CLASS = ClassRef(name="small", revision=1)
_TIMEOUT = timedelta(seconds=60)
_SETTINGS = {"flavor": "c2-m8", "image": "ubuntu-24.04"}


class OneClass(MachineClasses):
    """A store with one machine class of each kind, the same for all."""

    def __init__(self) -> None:
        super().__init__([])

    def get(self, name: str, key: Key) -> MachineClass:
        """Always there."""
        json = f'{{"kind":"{key.kind}","apiVersion":"{key.api_version}","metadata":{{"name":"{name}"}}}}'
        return MachineClass(name=name, key=key, revision=_CLASS.revision, json=json)

    def secret(self, machine_class: MachineClass) -> Secret | None:
        """It needs none."""
        return None

    def ref(self, name: str, key: Key) -> ClassRef:
        """As it is for ever."""
        return _CLASS

    def on_changed(self, callback: Callable[[Key, Sequence[str], Sequence[str]], None]) -> None:
        """Nothing ever changes."""


class Callers:
    """Those who need machines: as many at a time as there are to be operations in flight."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._numbers = itertools.count(1)
        self.answered = self.wrong = 0

    async def all(self, drivers: int, operations: int, in_flight: int) -> None:
        """So many operations of each driver, so many in flight at a time."""
        each, rest = divmod(operations, in_flight)
        async with asyncio.TaskGroup() as group:
            for driver in range(drivers):
                for place in range(in_flight):
                    group.create_task(self.call(key_of(driver), each + (place < rest)))

    async def call(self, key: Key, operations: int) -> None:
        """So many, one after the other."""
        hub, group, settings = self._hub, "general-purpose", _SETTINGS
        for _ in range(operations):
            name = f"{group}-{next(self._numbers)}"
            spec = MachineSpec(name=name, group=group, settings=settings, tags=TAGS)
            answer = await hub.call(key, Operation(verb=Verb.CREATE, class_ref=_CLASS, timeout=_TIMEOUT, spec=spec))
            self.answered += 1
            if not isinstance(answer, Machine) or answer.provider_id != f"bench:///{name}":
                self.wrong += 1


async def main() -> None:
    """Serves, and calls when it is told to, until its input ends."""
    settings = HubSettings()
    access = CallerAccess(secure=False)
    hub = Hub(access=access, classes=OneClass(), settings=settings)
    listener = DockListener(hub.handlers(), listen="127.0.0.1:0", tls=None, settings=settings, access=access)
    await listener.open()
    callers = Callers(hub)

    async def command(told: dict[str, Any]) -> dict[str, Any]:
        began = time.perf_counter()
        callers.answered = callers.wrong = 0
        await callers.all(told["drivers"], told["operations"], told["in_flight"])
        return {
            "seconds": time.perf_counter() - began,
            "answered": callers.answered,
            "wrong": callers.wrong,
            "late": hub.counts().get("late", 0),
        }

    settle()
    await obey({"address": listener.address}, command)
    await hub.close(0)
    await listener.close(0)


if __name__ == "__main__":
    with Path(os.devnull).open("w") as nowhere:
        logs.configure(2, "json", nowhere)  # as a server logs, but for the terminal or disk at the end of it
        asyncio.run(main())
