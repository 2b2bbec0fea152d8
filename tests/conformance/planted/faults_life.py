"""Mistakes over the life of a server: Refresh, Cleanup, slow clouds, restarts."""

from __future__ import annotations

import asyncio

import grpc

from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from tests.conformance.planted.fault import fault
from tests.conformance.planted.faults_sizes import SLOW_SECONDS
from tests.conformance.planted.sound import Refusal, SoundServer
from tests.conformance.planted.world import World


@fault("R1", "R6", check="refresh_succeeds", is_slow=True)
class RefreshIsSlow(SoundServer):
    """Refresh waits for the whole cloud to be listed, which takes longer than the autoscaler waits."""

    async def refresh(self, request: pb.RefreshRequest) -> pb.RefreshResponse:
        await asyncio.sleep(SLOW_SECONDS)
        return await super().refresh(request)


@fault("R1", "R2", "R8", check="required_calls_are_implemented")
class RefreshIsUnimplemented(SoundServer):
    """Refresh answers code 12, which stops every loop: nothing else is ever called."""

    async def refresh(self, request: pb.RefreshRequest) -> pb.RefreshResponse:
        raise Refusal("nothing to refresh", grpc.StatusCode.UNIMPLEMENTED)


@fault("R5", check="cleanup_deletes_nothing")
class CleanupDeletesMachines(SoundServer):
    """Cleanup takes the end of the autoscaler for the end of the cluster, and deletes every machine."""

    async def cleanup(self, request: pb.CleanupRequest) -> pb.CleanupResponse:
        for machine in self.world.machines.values():
            self.world.delete(machine)
        return await super().cleanup(request)


@fault("R5", check="cleanup_deletes_nothing")
class CleanupWorksOnce(SoundServer):
    """A second Cleanup fails."""

    is_clean = False

    async def cleanup(self, request: pb.CleanupRequest) -> pb.CleanupResponse:
        if self.is_clean:
            raise Refusal("already closed", grpc.StatusCode.FAILED_PRECONDITION)
        self.is_clean = True
        return await super().cleanup(request)


@fault("T9", "R88", check="a_restart_loses_nothing", with_help=True)
class RestartForgetsMachines(SoundServer):
    """Keeps everything in memory: after a restart it knows none of its machines."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.machines.clear()


@fault("T9", "R88", "R33", check="a_restart_loses_nothing", with_help=True)
class RestartForgetsDeletions(SoundServer):
    """Keeps deletions in memory: after a restart the machine that was deleted last is back."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        deleted = [machine for machine in world.machines.values() if machine.gone_at is not None]
        for machine in sorted(deleted, key=lambda machine: machine.gone_at or 0.0)[-1:]:
            machine.gone_at = None


@fault("T7", "R44", "R6", "R7", check="a_slow_cloud_slows_no_call", with_help=True, is_slow=True)
class IncreaseWaitsForTheCloud(SoundServer):
    """IncreaseSize orders from the cloud before it answers, so that a cloud that hangs makes it hang too."""

    async def increase_size(self, request: pb.NodeGroupIncreaseSizeRequest) -> pb.NodeGroupIncreaseSizeResponse:
        if self.world.is_stalled:
            await asyncio.sleep(SLOW_SECONDS)
        return await super().increase_size(request)


@fault("R56", check="a_lost_machine_can_be_deleted", with_help=True)
class LostMachineIsAnError(SoundServer):
    """DeleteNodes of a machine that died by itself fails, as the cloud does not know it."""

    async def delete_nodes(self, request: pb.NodeGroupDeleteNodesRequest) -> pb.NodeGroupDeleteNodesResponse:
        for machine in self.own(self.group(request.id), request.nodes):
            if machine.has_died:
                raise Refusal(f"{machine.name} does not exist", grpc.StatusCode.NOT_FOUND)
        return await super().delete_nodes(request)
