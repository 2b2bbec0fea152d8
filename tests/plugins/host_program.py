"""Stands for cloudgraft in tests that kill it: keeps one plugin running, and says so on stdout."""

from __future__ import annotations

import asyncio
import sys

from cloudgraft.plugins.host.process import PluginSpec
from cloudgraft.plugins.host.remote import PluginProvider


async def main() -> None:
    provider = PluginProvider(PluginSpec(name="p", command=sys.argv[1:]))
    await provider.start()
    print(f"groups: {len(await provider.node_groups())}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
