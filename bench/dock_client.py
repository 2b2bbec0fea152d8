"""Lean clients in a process of their own: ``python -m bench.dock_client PROTOCOL ADDRESS DRIVERS``.

Streams of bare grpc.aio, each on a connection of its own as drivers have them, one task for each. The same code asks
the echo and answers the hub. It counts by number what it was asked and what came back.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import time
from typing import Any

import grpc.aio

from bench.dock_child import obey, settle
from bench.dock_words import EchoWords, V0Words, V1Words, Words

_PROTOCOLS: dict[str, type[Words]] = {"v1": V1Words, "v0": V0Words, "echo": EchoWords}
_AT_A_TIME = 20  # connections that are made at once
_OPTIONS = (("grpc.use_local_subchannel_pool", 1),)  # a connection of its own


class Count:
    """Which operations were seen: each must be, once."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, int]] = set()
        self._repeated = self._strange = 0

    def see(self, driver: int, number: int) -> None:
        """An operation of that driver."""
        if (driver, number) in self._seen:
            self._repeated += 1
        self._seen.add((driver, number))

    def strange(self) -> None:
        """What was never asked."""
        self._strange += 1

    def take(self) -> dict[str, Any]:
        """All since the last time."""
        taken = {"seen": len(self._seen), "repeated": self._repeated, "strange": self._strange}
        self._seen.clear()
        self._repeated = self._strange = 0
        return taken


class Client:
    """One stream."""

    def __init__(self, address: str, words: Words, driver: int, count: Count) -> None:
        self._channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        self._words = words
        self._driver = driver
        self._count = count
        self._numbers = itertools.count(1)
        self._stream: Any = None

    async def open(self) -> None:
        """Until the other side has taken it."""
        method: Any = self._channel.stream_stream(self._words.path)
        self._stream = method()
        if self._words.server_first:
            await self._stream.read()
        await self._stream.write(self._words.opening(self._driver))
        if not self._words.server_first:
            await self._stream.read()

    async def close(self) -> None:
        """Ends it."""
        self._stream.cancel()
        await self._channel.close()

    async def serve(self) -> None:
        """Answers for as long as the stream lasts."""
        stream, answer_to, see, driver = self._stream, self._words.answer, self._count.see, self._driver
        while (data := await stream.read()) is not grpc.aio.EOF:
            number, answer = answer_to(data)
            if number is not None:
                see(driver, number)
            if answer is not None:
                await stream.write(answer)

    async def ask(self, words: EchoWords, operations: int, in_flight: int) -> None:
        """Has so many messages sent back, so many under way at a time."""
        stream, driver, pending = self._stream, self._driver, set[int]()
        left = operations
        while left or pending:
            if left and len(pending) < in_flight:
                number, left = next(self._numbers), left - 1
                pending.add(number)
                await stream.write(words.question(number, driver))
                continue
            answered, _ = words.answer(await stream.read())
            if answered in pending:
                pending.discard(answered)
                self._count.see(driver, answered)
            else:
                self._count.strange()


async def main(protocol: str, address: str, drivers: int) -> None:
    """Connects, and then does what it is told: to ask (the echo), or to tell what it was asked."""
    words, count = _PROTOCOLS[protocol](), Count()
    clients = [Client(address, words, driver, count) for driver in range(drivers)]
    for first in range(0, drivers, _AT_A_TIME):
        await asyncio.gather(*(client.open() for client in clients[first : first + _AT_A_TIME]))
    serving = [] if isinstance(words, EchoWords) else [asyncio.create_task(client.serve()) for client in clients]

    async def command(told: dict[str, Any]) -> dict[str, Any]:
        began = time.perf_counter()
        if isinstance(words, EchoWords) and told:
            await asyncio.gather(*(client.ask(words, told["operations"], told["in_flight"]) for client in clients))
        return {"seconds": time.perf_counter() - began, **count.take()}

    settle()
    await obey({"connected": drivers}, command)
    for task in serving:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
        await asyncio.gather(*serving)
    await asyncio.gather(*(client.close() for client in clients))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("protocol", choices=sorted(_PROTOCOLS))
    parser.add_argument("address")
    parser.add_argument("drivers", type=int)
    arguments = parser.parse_args()
    asyncio.run(main(arguments.protocol, arguments.address, arguments.drivers))
