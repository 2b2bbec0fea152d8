"""The end of a run: what the kit made is deleted, whatever happened, and what cannot be deleted is told."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from cloudgraft.conformance.stage import Stage

__all__ = ["clean_up"]

_PAUSE: Final = 0.2
_LAST_CALLS: Final = 20.0  # seconds for calls under way when the time is over


async def clean_up(stage: Stage) -> tuple[str, ...]:
    """Deletes the kit's machines and gives back what never came; answers what is left. Never raises."""
    limit = stage.config.patience.cleanup.total_seconds()
    left: dict[str, list[str]] = {group: [f"{group}: not looked at"] for group in stage.touched}
    end = time.monotonic() + limit
    try:
        async with asyncio.timeout(limit + _LAST_CALLS):
            for group in stage.touched:
                left[group] = await _clean_group(stage, group)
            while any(left.values()) and time.monotonic() < end:
                await asyncio.sleep(_PAUSE)
                for group in [group for group, machines in left.items() if machines]:
                    left[group] = await _clean_group(stage, group)
    except TimeoutError:
        pass  # what is known to be left is told
    return tuple(machine for machines in left.values() for machine in machines)


async def _clean_group(stage: Stage, group: str) -> list[str]:
    """One attempt; what is left after it."""
    listed = await stage.calls.instances(group)
    if listed.value is None:
        return [f"{group}: unknown, NodeGroupNodes answered {listed.outcome}"]
    if own := stage.owned(group, listed.value):
        await stage.discard(own, group)
        listed = await stage.calls.instances(group)
        own = stage.owned(group, listed.value) if listed.value is not None else own
    return own or await _give_back(stage, group)


async def _give_back(stage: Stage, group: str) -> list[str]:
    """Takes back what was asked for and is not listed."""
    before = stage.scene.before.get(group)
    target = await stage.calls.target(group)
    if before is None or target.value is None or target.value <= before.target:
        return []
    await stage.calls.decrease(group, before.target - target.value)
    target = await stage.calls.target(group)
    surplus = (target.value or 0) - before.target
    return [f"{group}: {surplus} machines that were asked for and never listed"] if surplus > 0 else []
