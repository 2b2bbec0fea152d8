"""A node has its providerID before it is ready: without it, a ready node is no machine of ours to the autoscaler."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from cloudgraft.kube.client import KubeClient
from cloudgraft.kube.connect import connect
from cloudgraft.liqo.manifests import VIRTUAL_NODES
from tests.conditions import until
from tests.liqo.liqo_world import World, spec

Seen = list[tuple[str, bool]]  # providerID and whether it is ready, each time one of the two changed


async def _watch(client: KubeClient, version: str, seen: Seen) -> None:
    async with aclosing(client.watch(VIRTUAL_NODES, version=version)) as changes:
        async for change in changes:
            if change.object is not None:
                now = (change.object.provider_id, change.object.ready)
                if seen[-1:] != [now]:
                    seen.append(now)


async def test_r30_a_node_gets_its_provider_id_before_it_is_ready(world: World) -> None:
    """Liqo does not wait for us, so it must not be readiness that we wait for. Here Liqo has it until we are done."""
    world.script.say(never_ready=True)
    home = world.directory / "watcher"
    home.mkdir()
    client = connect(world.consumer.kubeconfig(home))
    seen: Seen = []
    watching = asyncio.create_task(_watch(client, (await client.list(VIRTUAL_NODES)).version, seen))
    try:
        async with world.started() as driver:
            machine = await driver.create(spec())
            assert machine.provider_id == "liqo://node-1"  # told before there is a node
            await until(lambda: (machine.provider_id, False) in seen, what="its providerID while it is not ready")
            world.script.say(never_ready=False)
            await until(lambda: (machine.provider_id, True) in seen, what="a node that is ready")
        assert seen == [("", False), (machine.provider_id, False), (machine.provider_id, True)]
    finally:
        watching.cancel()
        await asyncio.wait([watching])
        await client.close()
