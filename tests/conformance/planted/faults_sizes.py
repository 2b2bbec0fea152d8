"""Mistakes in TargetSize, IncreaseSize and DecreaseTargetSize."""

from __future__ import annotations

import asyncio

from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from tests.conformance.planted.fault import fault
from tests.conformance.planted.sound import PatientServer, Refusal, SoundServer, other_calls_go_first
from tests.conformance.planted.world import FOREVER, Group, World

SLOW_SECONDS = 1.5  # longer than the autoscaler waits for an answer: it is told to wait for a second here


# -- target ------------------------------------------------------------------------------------------------------------


@fault("R25", "R26", "R27", "R45", "T1", check="target_grows_at_once")
class TargetCountsRunningOnly(SoundServer):
    """TargetSize counts machines only once they run, so that an increase does not show at once."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.boot_seconds = FOREVER

    def target(self, group: Group) -> int:
        return sum(machine.is_counted and machine.is_running for machine in self.world.of(group.id))


@fault("R25", "R27", "R53", "T6", check="deletion_lowers_the_target")
class TargetCountsDeleting(SoundServer):
    """TargetSize counts machines until the cloud is rid of them, so that a deletion does not show at once."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.delete_seconds = FOREVER

    def target(self, group: Group) -> int:
        return sum(1 for _ in self.world.of(group.id))


@fault("R27", "T10", "R25", check="target_grows_at_once")
class TargetWavers(SoundServer):
    """TargetSize is one too low every second time."""

    asked = 0

    async def target_size(self, request: pb.NodeGroupTargetSizeRequest) -> pb.NodeGroupTargetSizeResponse:
        answer = await super().target_size(request)
        self.asked += 1
        return pb.NodeGroupTargetSizeResponse(targetSize=max(0, answer.targetSize - self.asked % 2))


# -- increase ----------------------------------------------------------------------------------------------------------


@fault("R44", "R6", "R7", "T7", "T1", check="increase_answers_in_time", is_slow=True)
class CreatesInsideTheCall(SoundServer):
    """IncreaseSize answers when the cloud has made the machines, which is after the autoscaler has given up."""

    async def increase_size(self, request: pb.NodeGroupIncreaseSizeRequest) -> pb.NodeGroupIncreaseSizeResponse:
        answer = await super().increase_size(request)
        await asyncio.sleep(SLOW_SECONDS)
        return answer


@fault("R43", check="increase_beyond_max_is_refused")
class GrowsBeyondMax(SoundServer):
    """IncreaseSize does not look at the max."""

    async def increase_size(self, request: pb.NodeGroupIncreaseSizeRequest) -> pb.NodeGroupIncreaseSizeResponse:
        if request.delta <= 0:
            raise Refusal(f"cannot grow by {request.delta}")
        for _ in range(request.delta):
            self.world.order(self.group(request.id).id)
        return pb.NodeGroupIncreaseSizeResponse()


@fault("R43", "R45", check="increase_beyond_max_is_refused")
class GrowsAsFarAsMax(SoundServer):
    """IncreaseSize beyond the max answers OK and adds only what still fits."""

    async def increase_size(self, request: pb.NodeGroupIncreaseSizeRequest) -> pb.NodeGroupIncreaseSizeResponse:
        group = self.group(request.id)
        fitting = min(request.delta, group.max_size - self.target(group))
        if request.delta > 0 and fitting <= 0:
            return pb.NodeGroupIncreaseSizeResponse()
        return await super().increase_size(pb.NodeGroupIncreaseSizeRequest(id=request.id, delta=fitting))


@fault("R43", check="increase_by_nothing_is_refused")
class GrowsByNothing(SoundServer):
    """IncreaseSize takes a delta of zero or less for fine, and does nothing."""

    async def increase_size(self, request: pb.NodeGroupIncreaseSizeRequest) -> pb.NodeGroupIncreaseSizeResponse:
        return await super().increase_size(request) if request.delta > 0 else pb.NodeGroupIncreaseSizeResponse()


@fault("R45", "R44", "T1", check="increase_answers_in_time")
class FailsAfterGrowing(SoundServer):
    """IncreaseSize orders the machines and then answers an error: they are bought twice."""

    async def increase_size(self, request: pb.NodeGroupIncreaseSizeRequest) -> pb.NodeGroupIncreaseSizeResponse:
        await super().increase_size(request)
        raise Refusal("the machines were ordered, but could not be tagged")


@fault("R45", "T1", check="target_grows_at_once")
class GrowsByOne(SoundServer):
    """IncreaseSize adds one machine, whatever the delta is."""

    async def increase_size(self, request: pb.NodeGroupIncreaseSizeRequest) -> pb.NodeGroupIncreaseSizeResponse:
        group = self.group(request.id)
        if self.target(group) + request.delta > group.max_size:
            raise Refusal(f"{group.id} has a maximum of {group.max_size}")
        return await super().increase_size(pb.NodeGroupIncreaseSizeRequest(id=request.id, delta=min(request.delta, 1)))


@fault("R46", "R45", check="target_grows_at_once")
class DeltaReplacesTheTarget(SoundServer):
    """IncreaseSize takes the delta for the new size, so that a second increase adds nothing."""

    async def increase_size(self, request: pb.NodeGroupIncreaseSizeRequest) -> pb.NodeGroupIncreaseSizeResponse:
        missing = request.delta - self.target(self.group(request.id))
        if request.delta > 0 and missing <= 0:
            return pb.NodeGroupIncreaseSizeResponse()
        return await super().increase_size(pb.NodeGroupIncreaseSizeRequest(id=request.id, delta=missing))


@fault("R46", check="two_increases_are_two")
class SameIncreaseIsTakenForARepetition(SoundServer):
    """IncreaseSize with the delta of the increase just before answers OK and does nothing."""

    latest = 0

    async def increase_size(self, request: pb.NodeGroupIncreaseSizeRequest) -> pb.NodeGroupIncreaseSizeResponse:
        is_known = self.latest == request.delta and self.heard[-1] == "NodeGroupIncreaseSize"
        self.latest = request.delta
        return pb.NodeGroupIncreaseSizeResponse() if is_known else await super().increase_size(request)


@fault("R89", "R46", check="increases_at_the_same_time_add_up")
class ConcurrentIncreasesRace(SoundServer):
    """IncreaseSize reads the size, waits for its database and makes up for what is missing, as others do meanwhile."""

    async def increase_size(self, request: pb.NodeGroupIncreaseSizeRequest) -> pb.NodeGroupIncreaseSizeResponse:
        group = self.group(request.id)
        wanted = self.target(group) + request.delta
        if request.delta <= 0 or wanted > group.max_size:
            return await super().increase_size(request)
        await other_calls_go_first()
        for _ in range(wanted - self.target(group)):
            self.world.order(group.id)
        return pb.NodeGroupIncreaseSizeResponse()


@fault("R6", "R42", "R28", "R44", "R7", check="reads_are_answered_while_machines_are_made", is_slow=True)
class ReadsWaitForCreation(SoundServer):
    """TargetSize waits for the lock of the thread that makes machines, for as long as it makes one."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.boot_seconds = FOREVER

    async def target_size(self, request: pb.NodeGroupTargetSizeRequest) -> pb.NodeGroupTargetSizeResponse:
        if any(machine.is_counted and not machine.is_running for machine in self.world.of(request.id)):
            await asyncio.sleep(SLOW_SECONDS)
        return await super().target_size(request)


# -- decrease ----------------------------------------------------------------------------------------------------------


@fault("R62", "R60", "R61", "R64", "T5", "T4", check="decrease_gives_back_what_never_came")
class DecreaseDoesNothing(PatientServer):
    """DecreaseTargetSize answers OK and gives no order back: the autoscaler skips every loop from then on."""

    async def decrease_target(
        self, request: pb.NodeGroupDecreaseTargetSizeRequest
    ) -> pb.NodeGroupDecreaseTargetSizeResponse:
        return await SoundServer.decrease_target(self, request)


@fault("R62", "R60", "T5", "T4", check="decrease_gives_back_what_never_came")
class DecreaseAlwaysFails(PatientServer):
    """DecreaseTargetSize answers an error always, which ends every loop for all groups."""

    async def decrease_target(
        self, request: pb.NodeGroupDecreaseTargetSizeRequest
    ) -> pb.NodeGroupDecreaseTargetSizeResponse:
        raise Refusal("machines are deleted by DeleteNodes only")


@fault("R62", "R60", "T5", "T4", check="decrease_goes_below_min")
class DecreaseRefusesBelowMin(PatientServer):
    """DecreaseTargetSize fails when the target would fall below the min."""

    async def decrease_target(
        self, request: pb.NodeGroupDecreaseTargetSizeRequest
    ) -> pb.NodeGroupDecreaseTargetSizeResponse:
        group = self.group(request.id)
        if self.target(group) + request.delta < group.min_size:
            raise Refusal(f"{group.id} has a minimum of {group.min_size}")
        return await super().decrease_target(request)


@fault("R59", "R62", "T4", "T5", check="decrease_deletes_no_machine")
class DecreaseDeletesMachines(SoundServer):
    """DecreaseTargetSize picks machines that exist and deletes them."""

    async def decrease_target(
        self, request: pb.NodeGroupDecreaseTargetSizeRequest
    ) -> pb.NodeGroupDecreaseTargetSizeResponse:
        answer = await super().decrease_target(request)
        alive = [machine for machine in self.world.of(request.id) if machine.is_counted]
        for machine in alive[request.delta :]:
            self.world.delete(machine)
        return answer


@fault("R62", "R63", "T4", "T5", "T10", check="decrease_deletes_no_machine")
class DecreaseIsBlind(SoundServer):
    """DecreaseTargetSize subtracts whatever it is told, below the number of machines and below zero."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.subtracted = dict.fromkeys((group.id for group in world.groups), 0)

    def target(self, group: Group) -> int:
        return super().target(group) - self.subtracted[group.id]

    async def decrease_target(
        self, request: pb.NodeGroupDecreaseTargetSizeRequest
    ) -> pb.NodeGroupDecreaseTargetSizeResponse:
        answer = await super().decrease_target(request)
        self.subtracted[request.id] -= request.delta
        return answer


@fault("R59", check="decrease_by_nothing_is_refused")
class DecreaseByAPositiveNumber(SoundServer):
    """DecreaseTargetSize takes a delta that is not negative for fine."""

    async def decrease_target(
        self, request: pb.NodeGroupDecreaseTargetSizeRequest
    ) -> pb.NodeGroupDecreaseTargetSizeResponse:
        self.group(request.id)
        return pb.NodeGroupDecreaseTargetSizeResponse()
