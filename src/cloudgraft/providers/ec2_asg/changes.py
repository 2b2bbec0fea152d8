"""Changes groups, each time from the state that AWS reports at that moment.

The autoscaler's requests are relative (two more), and AWS's are absolute (five in all). So a group is read before each
change, and two changes of one group never overlap. Another client may still change it between our read and our request:
then one of the two changes is lost, as with every client of AWS, and the next read shows it.

Another read settles a lost response (law 3). A desired capacity that was not applied may be sent again, since it is the
same number. A termination is not repeated, since a second one could lower the desired capacity twice. If that does not
help, the outcome is unknown, and the error says so. The target then shows what AWS shows: a later call is a new change
(R46).
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections.abc import Callable, Sequence
from typing import Final

from cloudgraft.providers.ec2_asg.cloud import AutoScaling
from cloudgraft.providers.ec2_asg.state import Asg, Group, Member, ReadTime
from cloudgraft.sdk.common.event_loop import BlockingPool
from cloudgraft.sdk.errors import (
    CloudgraftError,
    ConflictError,
    DeadlineError,
    NotFoundError,
    PreconditionError,
    RateLimitedError,
)

_CHANGE_SECONDS: Final = 4.5  # seconds for a change with all its requests: the autoscaler waits 5
_FRESH: Final = 1.0  # seconds for which a read is fresh enough to terminate an instance
_AGAIN: Final = (0.3, 0.9)  # seconds before a retry of a temporary refusal
_AT_ONCE: Final = 4  # instances that are terminated concurrently


@dataclasses.dataclass(frozen=True, slots=True)
class Changes:
    """Carries out the autoscaler's changes."""

    _cloud: AutoScaling
    _pool: BlockingPool
    _observe: Callable[[Group, Asg, ReadTime], None]  # called after every read of a group

    async def increase(self, group: Group, delta: int) -> None:
        """Raises the desired capacity. After an error, nothing was started unless the error says otherwise (R45)."""
        until = time.monotonic() + _CHANGE_SECONDS
        read_time = await self._read(group)
        group.check()
        asg = group.asg
        if asg.launch_suspended:
            raise PreconditionError(asg.launch_suspended)
        wanted = asg.desired - group.given_up + delta
        if wanted + asg.aside > group.max_size:
            raise PreconditionError(
                f"the Auto Scaling group {asg.name} has a desired capacity of {asg.desired} now, and a maximum of "
                f"{group.max_size}: it cannot grow by {delta}"
            )
        await self._set(group, wanted, read_time, until)

    async def give_back(self, group: Group, count: int) -> None:
        """Lowers the desired capacity by instances that do not exist, and by no others (R62)."""
        until = time.monotonic() + _CHANGE_SECONDS
        read_time = await self._read(group)
        newest = [one.provider_id for one in group.waiting.list[::-1][:count]]
        await self._drop(group, newest, read_time, until)

    async def delete(self, group: Group, instance_ids: Sequence[str], placeholders: Sequence[str]) -> None:
        """Terminates these instances and drops these placeholders; missing ones are not an error (R55, R56)."""
        until = time.monotonic() + _CHANGE_SECONDS
        read_time = group.seen
        if placeholders or time.monotonic() - read_time.at > _FRESH:
            read_time = await self._read(group)
        fulfilled = [group.waiting.aliases[one] for one in placeholders if one in group.waiting.aliases]
        ended = {*instance_ids, *fulfilled}
        members = [one for one in group.asg.members if one.instance_id in ended and not one.is_leaving]
        for member in members:
            if member.is_aside:  # in standby, put there by hand, and not counted
                name = member.instance_id
                raise PreconditionError(f"{name} is in standby: put it back into service, or end it by hand")
        still = {one.provider_id for one in group.waiting.list}
        await self._drop(group, [one for one in placeholders if one in still], read_time, until)
        await self._end(group, members, until)

    # -- steps ---------------------------------------------------------------------------------------------------------

    async def _read(self, group: Group) -> ReadTime:
        asg, aws = await self._pool.run(self._cloud.describe, group.asg.name)
        if asg is None:
            raise NotFoundError(
                f"the Auto Scaling group {group.asg.name} no longer exists, or the options no longer select it"
            )
        read_time = ReadTime(at=time.monotonic(), aws=aws)
        self._observe(group, asg, read_time)
        group.revision += 1  # a refresh that began earlier may have older data
        return read_time

    async def _drop(self, group: Group, placeholders: Sequence[str], read_time: ReadTime, until: float) -> None:
        if not placeholders:
            return
        wanted = group.asg.desired - group.given_up - len(placeholders)
        kept = list(group.waiting.list)
        group.waiting.remove(placeholders)
        try:
            await self._set(group, wanted, read_time, until)
        except BaseException:
            group.waiting.list = kept
            raise

    async def _set(self, group: Group, wanted: int, read_time: ReadTime, until: float) -> None:
        """Sets the capacity, at least AWS's own minimum for the group; the excess is given up (R38)."""
        desired, before = max(wanted, group.asg.min_size), group.asg.desired
        if desired != before:
            try:
                await self._asked(until, self._cloud.set_desired, group.asg.name, desired)
            except DeadlineError as error:
                await self._settle_desired(group, before, desired, error, until)
        group.desired_was_set(desired, wanted, dataclasses.replace(read_time, at=time.monotonic()))

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
            return  # it has ended by itself; the next read will show that
        except DeadlineError as error:
            await self._settle_end(group, member, error, until)
        group.was_terminated(member.instance_id, ReadTime(at=time.monotonic(), aws=group.seen.aws))

    async def _settle_end(self, group: Group, member: Member, error: DeadlineError, until: float) -> None:
        try:
            async with asyncio.timeout_at(_on_loop(until)):
                seen, _ = await self._pool.run(self._cloud.describe, group.asg.name)
        except (CloudgraftError, TimeoutError):
            raise error from None
        if seen is None or any(m.instance_id == member.instance_id and not m.is_leaving for m in seen.members):
            raise error

    async def _asked(self, until: float, call: Callable[..., None], *args: object) -> None:
        """Retries a temporary refusal of AWS: nothing was done, and an error would back the group off for minutes."""
        while True:
            try:
                return await self._pool.run(call, *args)
            except (RateLimitedError, ConflictError) as error:
                pause = max(random.uniform(*_AGAIN), error.retry_after or 0.0)  # noqa: S311 - it spreads the load
                if time.monotonic() + 2 * pause > until:
                    raise
                await asyncio.sleep(pause)


def _on_loop(at: float) -> float:
    """Converts a time of our clock to the event loop's."""
    return asyncio.get_running_loop().time() + at - time.monotonic()
