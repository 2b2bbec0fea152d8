"""The real hub behind a real port, with one machine class, in this process or in one of its own.

Run as a program it takes orders on its input, a line each (``1 create NAME``, ``2 list``), and prints one line of JSON
for what became of each, and for each thing that its listener was told.
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
from typing import Any, Self

import grpc.aio

from cloudgraft.dock.access import CallerAccess
from cloudgraft.dock.classes.store import MachineClasses
from cloudgraft.dock.hub.hub import Hub, HubSettings
from cloudgraft.dock.hub.service import server_options
from cloudgraft.dock.protocol.messages import Answer, ClassRef, Key, MachineClass, Operation, Secret
from cloudgraft.sdk.driver import Machine
from cloudgraft.sdk.errors import CloudgraftError, NotFoundError
from tests.conditions import until
from tests.dock.runner.drivers import API_VERSION, KIND
from tests.dock.runner.small_hub import create, opened, read

KEY = Key(kind=KIND, api_version=API_VERSION)
REF = ClassRef(name="small", revision=3, secret_revision=5)
SPEC = {"shape": "small"}
OBJECT = {"kind": KIND, "metadata": {"name": "small"}, "providerSpec": SPEC, "secretRef": {"name": "keys"}}
# A driver that is starved of its processor for a while keeps its place, unless a test is about just that.
CALM = HubSettings(heartbeat=30.0)
SLOW_START = 45.0  # seconds in which a process is sure to have started, also where a dozen others do


class OneClass(MachineClasses):
    def __init__(self) -> None:
        super().__init__([])

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
        await until(lambda: self.hub.info(KEY) is not None, what="the driver is connected", seconds=SLOW_START)

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
async def dock(settings: HubSettings = CALM, *, port: int = 0, classes: OneClass | None = None) -> AsyncIterator[Dock]:
    told: list[Key] = []
    hub = Hub(access=CallerAccess(secure=False, local_secrets=True), classes=classes or OneClass(), settings=settings)
    hub.listen(told.append)
    server = grpc.aio.server(options=server_options(settings))
    server.add_generic_rpc_handlers(tuple(hub.handlers()))
    bound = await opened(server, port)
    await server.start()
    try:
        yield Dock(hub, bound, told)
    finally:
        await hub.close(grace=0.0)
        await server.stop(None)


# -- as a process ------------------------------------------------------------------------------------------------------


class HubProcess:
    """The hub in a process of its own, to be killed."""

    def __init__(self, port: int = 0, *, heartbeat: float = CALM.heartbeat) -> None:
        self.said: list[dict[str, Any]] = []
        self._orders = 0
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.dock.runner.real_hub", str(port), str(heartbeat)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = int(self.receive()["port"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.kill()

    def order(self, text: str) -> int:
        """Its number."""
        assert self.process.stdin is not None
        self._orders += 1
        self.process.stdin.write(f"{self._orders} {text}\n")
        self.process.stdin.flush()
        return self._orders

    def receive(self) -> dict[str, Any]:
        """The next line."""
        assert self.process.stdout is not None
        line: dict[str, Any] = json.loads(self.process.stdout.readline())
        self.said.append(line)
        return line

    async def until(self, word: str) -> Any:
        """Reads on until there is a line with that word; what it says. An order that failed meanwhile is the end."""
        while word not in (line := await asyncio.to_thread(self.receive)):
            assert "failed" not in line, line
        return line[word]

    async def told(self, text: str) -> Any:
        """What became of an order that may be repeated: it is given again while the driver is between two sessions."""
        while True:
            number = self.order(text)
            while (line := await asyncio.to_thread(self.receive)).get("order") != number:
                pass
            if "failed" not in line:
                return line["done"]
            assert line["failed"] in {"unavailable", "deadline"}, line
            await asyncio.sleep(0.05)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


async def main(port: int, heartbeat: float) -> None:
    async with dock(HubSettings(heartbeat=heartbeat), port=port) as own:
        _say(port=own.port)
        own.hub.listen(lambda _: _say(counts=dict(own.hub.counts())))
        orders: set[asyncio.Task[None]] = set()
        while line := (await asyncio.to_thread(sys.stdin.readline)).split():
            orders.add(asyncio.create_task(_obey(own, int(line[0]), line[1:])))


async def _obey(own: Dock, number: int, order: list[str]) -> None:
    try:
        done = (await own.make(order[1])).machine_id if order[0] == "create" else await own.names()
    except CloudgraftError as error:
        _say(order=number, failed=error.slug)
    else:
        _say(order=number, done=done)


def _say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
