"""A driver as a process of its own, so that it can be frozen and killed: it connects, and answers nothing."""

from __future__ import annotations

import asyncio
import sys

from tests.dock.hub.raw_drivers import RawV0, RawV1


async def main(address: str, protocol: str) -> None:
    if protocol == "v0":
        async with RawV0(address) as old:
            await old.register()
            while True:
                await old.receive()
    async with RawV1(address) as driver:
        await driver.connect(instance="lonely")
        while True:
            await driver.beat()
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
