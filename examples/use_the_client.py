"""The autoscaler's side from Python: the same client twice, with and without ``async``.

    python examples/use_the_client.py cloud-config.yaml

The cloud-config is the autoscaler's own file. The program lists the node groups, adds one machine to the first group
that has room, shows it, and deletes it again.
"""

# ruff: noqa: T201 - a script's output is what it prints

from __future__ import annotations

import asyncio
import sys

from cloudgraft.client import CloudProvider, SyncCloudProvider
from cloudgraft.sdk import NodeRef, UnsupportedError


def show_groups(cloud_config: str) -> None:
    """Without async, for scripts."""
    with SyncCloudProvider.connect(cloud_config) as cloud:
        cloud.refresh()  # as at the beginning of each of the autoscaler's loops: empties the caches
        for group in cloud.node_groups():
            print(f"{group.id}: {group.target_size()} of {group.min_size}..{group.max_size}")
            try:
                template = group.template_node_info()
            except UnsupportedError as error:
                print(f"  no template: {error}")
                continue
            if template is not None:
                print(
                    "  a new node has " + ", ".join(f"{name} {q}" for name, q in sorted(template.allocatable.items()))
                )


async def add_one_and_delete_it(cloud_config: str) -> None:
    """With async, for servers and for many calls at once."""
    async with CloudProvider.connect(cloud_config) as cloud:
        groups = await cloud.node_groups()
        sizes = await asyncio.gather(*(group.target_size() for group in groups))
        room = [group for group, size in zip(groups, sizes, strict=True) if size < group.max_size]
        if not room:
            print("no group has room for one more machine")
            return
        group = room[0]
        known = {instance.id for instance in await group.nodes()}
        await group.increase_size(1)
        for new in [instance for instance in await group.nodes() if instance.id not in known]:
            print(f"added {new.id} to {group.id}: {new.state.name.lower()}")
            await group.delete_nodes([NodeRef(name=new.id, provider_id=new.id)])
            print(f"deleted {new.id}: {await group.target_size()} left in {group.id}")


if __name__ == "__main__":
    show_groups(sys.argv[1])
    asyncio.run(add_one_and_delete_it(sys.argv[1]))
