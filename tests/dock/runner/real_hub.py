"""The real hub behind a real port, with one machine class, in this process or in one of its own.

Run as a program it takes orders on its input, a line each (``create NAME``, ``list``), and prints one line of JSON for
what became of each, and for each thing that its listener was told.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc.aio

from cloudgraft.dock.hub import Hub, HubSettings
from cloudgraft.dock.messages import Answer, ClassRef, Key, MachineClass, Operation, Secret
from cloudgraft.dock.ports import Context
from cloudgraft.dock.service import server_options
from cloudgraft.sdk.driver import Machine
from cloudgraft.sdk.errors import CloudgraftError, NotFoundError
from tests.conditions import until
from tests.dock.runner.drivers import API_VERSION, KIND
from tests.dock.runner.small_hub import create, read

KEY = Key(kind=KIND, api_version=API_VERSION)
REF = ClassRef(name="small", revision=3, secret_revision=5)
SPEC = {"shape": "small"}
OBJECT = {"kind": KIND, "metadata": {"name": "small"}, "providerSpec": SPEC, "secretRef": {"name": "keys"}}
QUICK = HubSettings(heartbeat=0.5)


@dataclass(frozen=True)
class Anybody:
    name: str = "anybody"

    def may(self, key: Key) -> bool:
        return True


class OpenDoor:
    def identify(self, context: Context) -> Anybody:
        return Anybody()

    def on_removed(self, callback: Callable[..., None]) -> None:
        """Nobody ever is."""


class OneClass:
    def get(self, name: str, key: Key) -> MachineClass:
        if name != REF.name:
            raise NotFoundError(f"no class {name}")
        text = json.dumps(OBJECT)
        return MachineClass(name=name, key=key, revision=3, provider_spec=SPEC, secret="keys", json=text)

    def secret(self, machine_class: MachineClass) -> Secret | None:
        return Secret(name="keys", revision=5, data={"password": b"correct-horse"})

    def ref(self, name: str, key: Key) -> ClassRef:
        return REF

    def on_changed(self, callback: Callable[[Key, Sequence[str], Sequence[str]], None]) -> None:
        """It never does."""


@dataclass
class Dock:
    """A hub that serves."""

    hub: Hub
    port: int
    told: list[Key]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def connected(self) -> None:
        await until(lambda: self.hub.info(KEY) is not None, what="the driver is connected")

    async def call(self, operation: Operation) -> Answer:
        return await self.hub.call(KEY, operation)

    async def make(self, name: str, *, seconds: float = 30.0) -> Machine:
        made = await self.call(create(name, seconds=seconds, ref=REF))
        assert isinstance(made, Machine)
        return made

    async def names(self) -> list[str]:
        found = await self.call(read(ref=REF))
        assert isinstance(found, list)
        return sorted(machine.name for machine in found)


@asynccontextmanager
async def dock(settings: HubSettings = QUICK, *, port: int = 0, classes: OneClass | None = None) -> AsyncIterator[Dock]:
    told: list[Key] = []
    hub = Hub(access=OpenDoor(), classes=classes or OneClass(), settings=settings)
    hub.listen(told.append)
    server = grpc.aio.server(options=server_options(settings))
    server.add_generic_rpc_handlers(tuple(hub.handlers()))
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield Dock(hub, bound, told)
    finally:
        await hub.close(grace=0.0)
        await server.stop(None)


# -- as a process ------------------------------------------------------------------------------------------------------


class HubProcess:
    """The hub in a process of its own, to be killed."""

    def __init__(self, port: int = 0) -> None:
        self.said: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.dock.runner.real_hub", str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = int(self.hear()["port"])

    def order(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """The next line."""
        assert self.process.stdout is not None
        line: dict[str, Any] = json.loads(self.process.stdout.readline())
        self.said.append(line)
        return line

    async def until(self, word: str) -> Any:
        """Reads on until there is a line with that word; what it says."""
        while True:
            line = await asyncio.to_thread(self.hear)
            if word in line:
                return line[word]

    async def told(self, text: str, word: str) -> Any:
        """What became of an order that may be repeated, given again while it says that no driver is there: it may be
        between two sessions."""
        refused = f"{text.split()[0]} failed"
        while True:
            self.order(text)
            while not {word, refused} & (line := await asyncio.to_thread(self.hear)).keys():
                pass
            if word in line:
                return line[word]
            assert line[refused] in {"unavailable", "deadline"}, line

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


async def main(port: int) -> None:
    async with dock(port=port) as own:
        _say(port=own.port)
        own.hub.listen(lambda _: _say(counts=dict(own.hub.counts())))
        orders: set[asyncio.Task[None]] = set()
        while line := (await asyncio.to_thread(sys.stdin.readline)).split():
            orders.add(asyncio.create_task(_obey(own, line)))


async def _obey(own: Dock, order: list[str]) -> None:
    try:
        if order[0] == "create":
            _say(made=(await own.make(order[1])).machine_id)
        else:
            _say(listed=await own.names())
    except CloudgraftError as error:
        _say(**{f"{order[0]} failed": error.slug})


def _say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
