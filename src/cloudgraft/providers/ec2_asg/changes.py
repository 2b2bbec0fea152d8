"""Changes groups, each time from the state that AWS reports at that moment.

What the autoscaler asks for is relative (two more), and what AWS takes is absolute (be five). So a group is looked at
anew before each change, and two changes of one group never overlap. Somebody else may still change it between our look
and our request: then one of the two is lost, as with every client of AWS, and the next look shows it.

An answer that gets lost is settled by another look (law 3). A desired capacity that is not there may be sent once more,
since it is the same number; the end of an instance is not, since a second one could lower the desired capacity twice.
When even that does not help, the outcome is unknown, and the error says so. The target then shows what AWS shows: a
later call is a change of its own (R46).
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections.abc import Callable, Sequence
from typing import Final, ParamSpec, TypeVar

from cloudgraft.providers.ec2_asg.cloud import AutoScaling
from cloudgraft.providers.ec2_asg.groups import LAUNCH, Asg, Member
from cloudgraft.providers.ec2_asg.state import Group, Look
from cloudgraft.sdk.errors import (
    CloudgraftError,
    ConflictError,
    DeadlineError,
    NotFoundError,
    PreconditionError,
    RateLimitedError,
)
from cloudgraft.sdk.threads import BlockingPool

__all__ = ["Changes"]

P = ParamSpec("P")
T = TypeVar("T")
Observe = Callable[[Group, Asg, Look], None]
_PATIENCE: Final = 4.5  # seconds for a change and all that belongs to it: the autoscaler waits 5
_FRESH: Final = 1.0  # seconds for which a look is good enough to end an instance by
_AGAIN: Final = (0.3, 0.9)  # seconds before what AWS refused for the moment is asked again
_AT_ONCE: Final = 4  # instances that are ended at the same time


class Changes:
    """Carries out what the autoscaler asks for."""

    def __init__(self, cloud: AutoScaling, pool: BlockingPool, observe: Observe) -> None:
        """``observe`` is told of every look at a group."""
        self._cloud = cloud
        self._pool = pool
        self._observe = observe

    async def increase(self, group: Group, delta: int) -> None:
        """Asks AWS for more. After an error that does not say otherwise, nothing was started (R45)."""
        until = time.monotonic() + _PATIENCE
        look = await self._look(group)
        group.check()
        asg = group.asg
        if LAUNCH in asg.suspended:
            raise PreconditionError(
                f"the process {LAUNCH} of the Auto Scaling group {asg.name} is suspended: resume it"
            )
        wanted = asg.desired - group.given_up + delta
        if wanted + asg.aside > group.max_size:
            raise PreconditionError(
                f"the Auto Scaling group {asg.name} has a desired capacity of {asg.desired} now, and a maximum of "
                f"{group.max_size}: it cannot grow by {delta}"
            )
        await self._set(group, wanted, look, until)

    async def give_back(self, group: Group, count: int) -> None:
        """Lowers the desired capacity by instances that never came, and by no other (R62)."""
        until = time.monotonic() + _PATIENCE
        look = await self._look(group)
        newest = [one.provider_id for one in group.waiting.list[::-1][:count]]
        await self._drop(group, newest, look, until)

    async def delete(self, group: Group, instance_ids: Sequence[str], placeholders: Sequence[str]) -> None:
        """Ends these instances and gives these placeholders up; what has gone meanwhile is fine (R55, R56)."""
        until = time.monotonic() + _PATIENCE
        look = group.seen
        if placeholders or time.monotonic() - look.at > _FRESH:
            look = await self._look(group)
        fulfilled = [group.waiting.aliases[one] for one in placeholders if one in group.waiting.aliases]
        ended = {*instance_ids, *fulfilled}
        members = [one for one in group.asg.members if one.instance_id in ended and not one.is_leaving]
        for member in members:
            if member.is_aside:  # somebody took it out of service by hand, and it is not counted
                raise PreconditionError(
                    f"{member.instance_id} is in standby: put it back into service, or end it by hand"
                )
        still = {one.provider_id for one in group.waiting.list}
        await self._drop(group, [one for one in placeholders if one in still], look, until)
        await self._end(group, members, until)

    # -- steps ---------------------------------------------------------------------------------------------------------

    async def _look(self, group: Group) -> Look:
        asg, aws = await self._pool.run(self._cloud.describe, group.asg.name)
        if asg is None:
            raise NotFoundError(f"the Auto Scaling group {group.asg.name} is not there, or not for us, any more")
        look = Look(at=time.monotonic(), aws=aws)
        self._observe(group, asg, look)
        group.revision += 1  # a pass that began earlier may have seen less
        return look

    async def _drop(self, group: Group, placeholders: Sequence[str], look: Look, until: float) -> None:
        if not placeholders:
            return
        wanted = group.asg.desired - group.given_up - len(placeholders)
        kept = list(group.waiting.list)
        group.waiting.remove(placeholders)
        try:
            await self._set(group, wanted, look, until)
        except BaseException:
            group.waiting.list = kept
            raise

    async def _set(self, group: Group, wanted: int, look: Look, until: float) -> None:
        """AWS takes nothing below the group's own minimum; what is too much of that is given up (R38)."""
        desired, before = max(wanted, group.asg.min_size), group.asg.desired
        if desired != before:
            try:
                await self._asked(until, self._cloud.set_desired, group.asg.name, desired)
            except DeadlineError as error:
                await self._settle_desired(group, before, desired, error, until)
        group.desired_was_set(desired, wanted, dataclasses.replace(look, at=time.monotonic()))

    async def _settle_desired(self, group: Group, before: int, after: int, error: DeadlineError, until: float) -> None:
        name = group.asg.name
        try:
            async with asyncio.timeout_at(_on_loop(until)):
                seen, _ = await self._pool.run(self._cloud.describe, name)
                if seen is not None and seen.desired == before:
                    await self._pool.run(self._cloud.set_desired, name, after)
                    return
        except (CloudgraftError, TimeoutError):
            raise error from None
        if seen is None or seen.desired != after:
            raise error

    async def _end(self, group: Group, members: Sequence[Member], until: float) -> None:
        places = asyncio.Semaphore(_AT_ONCE)

        async def one(member: Member) -> None:
            async with places:
                await self._end_one(group, member, until)

        results = await asyncio.gather(*map(one, members), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _end_one(self, group: Group, member: Member, until: float) -> None:
        try:
            await self._asked(until, self._cloud.terminate, member.instance_id)
        except NotFoundError:
            return  # it went by itself; the next look will show that
        except DeadlineError as error:
            await self._settle_end(group, member, error, until)
        group.was_terminated(member.instance_id, Look(at=time.monotonic(), aws=group.seen.aws))

    async def _settle_end(self, group: Group, member: Member, error: DeadlineError, until: float) -> None:
        try:
            async with asyncio.timeout_at(_on_loop(until)):
                seen, _ = await self._pool.run(self._cloud.describe, group.asg.name)
        except (CloudgraftError, TimeoutError):
            raise error from None
        if seen is None or any(m.instance_id == member.instance_id and not m.is_leaving for m in seen.members):
            raise error

    async def _asked(self, until: float, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Asks again when AWS refuses for the moment: nothing was done then, and a refusal costs the group minutes."""
        while True:
            try:
                return await self._pool.run(call, *args, **kwargs)
            except (RateLimitedError, ConflictError) as error:
                pause = max(random.uniform(*_AGAIN), error.retry_after or 0.0)  # noqa: S311 - it spreads the load
                if time.monotonic() + 2 * pause > until:
                    raise
                await asyncio.sleep(pause)


def _on_loop(at: float) -> float:
    """A time of our clock, by the event loop's."""
    return asyncio.get_running_loop().time() + at - time.monotonic()
