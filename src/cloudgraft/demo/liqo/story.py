"""What happens in the demo, step by step, each told when it has really happened."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cloudgraft.demo.checks import StoryError
from cloudgraft.demo.liqo.market import CURRENCY
from cloudgraft.demo.liqo.world import GROUP, LiqoWorld, VirtualNode, open_world
from cloudgraft.sdk import NodeRef

__all__ = ["Tell", "play"]

Tell = Callable[[str, str], None]  # a word for what it is, and a line
_PRICES: Final = {"berlin": "0.06", "milan": "0.10", "paris": "0.08"}
_PATIENCE: Final = 60.0  # real seconds
_STEP: Final = 0.1
_LATER: Final = {"berlin": "0.09", "paris": "0.03"}


async def play(tell: Tell) -> None:
    """Plays all of it, in a directory that is gone afterwards. Raises StoryError when it does not go as it should."""
    with tempfile.TemporaryDirectory(prefix="cloudgraft-demo-") as scratch:
        async with open_world(Path(scratch), _PRICES) as world:
            tell("start", f"discovery serves on {world.market.address} over mTLS")
            tell("start", f"a node of 2 cpu and 4Gi costs, per hour: {_told(_PRICES)}")
            await _Story(world, tell).play()


def _told(prices: dict[str, str]) -> str:
    return ", ".join(f"{cluster} {price} {CURRENCY}" for cluster, price in sorted(prices.items()))


class _Story:
    def __init__(self, world: LiqoWorld, tell: Tell) -> None:
        self._world = world
        self._tell = tell

    async def play(self) -> None:
        await self._grow("berlin", "it is the cheapest")
        await self._world.market.price(_LATER)
        self._tell("prices", f"change: {_told(_PRICES | _LATER)}")
        await self._grow("paris", "it is the cheapest now")
        await self._lose("paris")
        await self._grow("berlin", "paris did not answer, so the next was asked in the same order")
        await self._return("paris")
        await self._shrink()
        await self._end()

    async def _grow(self, expected: str, why: str) -> None:
        before = {node.name for node in self._world.nodes()}
        await self._world.provider.increase_size(GROUP, 1)
        self._tell("scale-out", "the autoscaler asks for one more node")

        def new() -> list[VirtualNode]:
            return [node for node in self._world.nodes() if node.name not in before]

        await self._world.until(lambda: any(node.ready and node.provider_id for node in new()), "a node that is ready")
        (node,) = new()
        if node.cluster != expected:
            raise StoryError(f"the node came from {node.cluster}, not from {expected}")
        peered = ", ".join(self._world.peered())
        self._tell("node", f"{node.name} is ready: a slice of {node.cluster}: {why} (peered: {peered})")

    async def _lose(self, cluster: str) -> None:
        await asyncio.to_thread(self._world.apis[cluster].stop)
        self._tell("fault", f"{cluster} dies: its API does not answer any more")
        await self._world.until(lambda: not all(node.ready for node in self._world.nodes()), "a node that is not ready")
        self._tell("fault", f"the node of {cluster} is not ready any more; discovery has not heard of it yet")

    async def _return(self, cluster: str) -> None:
        self._world.apis[cluster].start()
        self._tell("fault", f"{cluster} is back")
        await self._world.until(lambda: all(node.ready for node in self._world.nodes()), "all nodes ready")

    async def _shrink(self) -> None:
        nodes = self._world.nodes()
        self._tell("scale-in", f"work ends: the autoscaler drains {len(nodes)} nodes and deletes them")
        refs = [NodeRef(name=node.name, provider_id=node.provider_id) for node in nodes]
        await self._world.provider.delete_nodes(GROUP, refs)
        await self._world.until(lambda: not self._world.nodes() and not self._world.slices(), "no node, no slice")
        self._tell("scale-in", "every slice is given back, and every node is gone")

    async def _end(self) -> None:
        await self._world.until(lambda: not self._world.peered(), "no peering")
        self._tell("unpeer", "nobody needs the peerings any more: they are taken down on both sides")
        async with asyncio.timeout(_PATIENCE):
            while await self._world.market.reserved():
                await self._world.engine.turn()
                await asyncio.sleep(_STEP)
        self._tell("end", "no node, no slice, no peering and no reservation is left behind")
