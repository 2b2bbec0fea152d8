"""Mistakes in NodeGroupNodes: what is listed, under which id, in which state."""

from __future__ import annotations

from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from tests.conformance.planted.fault import fault
from tests.conformance.planted.sound import CREATING, DELETING, RUNNING, SoundServer
from tests.conformance.planted.world import FOREVER, Machine, World


@fault("R31", "R26", "T1", check="new_machines_are_listed")
class OnlyRunningMachinesAreListed(SoundServer):
    """NodeGroupNodes leaves out machines that are being created, which here takes its time."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.boot_seconds = FOREVER

    async def nodes(self, request: pb.NodeGroupNodesRequest) -> pb.NodeGroupNodesResponse:
        answer = await super().nodes(request)
        shown = [instance for instance in answer.instances if instance.status.instanceState != CREATING]
        return pb.NodeGroupNodesResponse(instances=shown)


@fault("R30", "R20", "R19", "T10", check="ids_are_provider_ids")
class IdsAreMachineNames(SoundServer):
    """NodeGroupNodes lists the cloud's names of the machines, which are not the providerIDs of their nodes."""

    def instance(self, machine: Machine) -> pb.Instance:
        message = super().instance(machine)
        message.id = machine.name
        return message

    def find(self, node: pb.ExternalGrpcNode) -> Machine | None:
        return self.world.machines.get(node.providerID)


@fault("R31", "R30", "T10", "T2", check="ids_do_not_change")
class IdsChangeWithEachList(SoundServer):
    """NodeGroupNodes appends something to each id that is new every time."""

    listed = 0

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.boot_seconds = 0.0

    def instance(self, machine: Machine) -> pb.Instance:
        self.listed += 1
        message = super().instance(machine)
        message.id = f"{machine.id}?list={self.listed}"
        return message

    def find(self, node: pb.ExternalGrpcNode) -> Machine | None:
        plain = pb.ExternalGrpcNode(providerID=node.providerID.partition("?")[0], name=node.name.partition("?")[0])
        return super().find(plain)


@fault("R31", "R19", "T2", "T10", check="placeholders_stay_known")
class PlaceholderIdIsForgotten(SoundServer):
    """Lists a machine under a made-up id until it runs, and knows that id no longer afterwards.

    A machine runs after some lists, not after some time: whoever asks for what the latest list has is always answered,
    however slow the judge is, and only the check that remembers an older list comes upon the mistake.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.boot_seconds = 0.0

    async def nodes(self, request: pb.NodeGroupNodesRequest) -> pb.NodeGroupNodesResponse:
        for machine in self.world.of(self.group(request.id).id):
            machine.looks += 1
        return await super().nodes(request)

    def instance(self, machine: Machine) -> pb.Instance:
        message = super().instance(machine)
        if is_pending(machine):
            message.id = f"pending://{machine.name}"
            if machine.is_counted:
                message.status.instanceState = CREATING
        return message

    def find(self, node: pb.ExternalGrpcNode) -> Machine | None:
        for machine in self.world.machines.values():
            if node.providerID == f"pending://{machine.name}" and is_pending(machine):
                return machine
        return super().find(node)


def is_pending(machine: Machine) -> bool:
    return machine.looks < 4


@fault("R31", "T10", check="ids_are_unique")
class OneMachineListedTwice(SoundServer):
    """NodeGroupNodes lists the first machine of a group twice."""

    async def nodes(self, request: pb.NodeGroupNodesRequest) -> pb.NodeGroupNodesResponse:
        answer = await super().nodes(request)
        answer.instances.extend(answer.instances[:1])
        return answer


@fault("R31", "T10", check="ids_are_unique")
class AllMachinesInEveryGroup(SoundServer):
    """NodeGroupNodes lists the machines of the whole account, whichever group is asked for."""

    async def nodes(self, request: pb.NodeGroupNodesRequest) -> pb.NodeGroupNodesResponse:
        self.group(request.id)
        everything = [machine for machine in self.world.machines.values() if not machine.is_gone]
        return pb.NodeGroupNodesResponse(instances=[self.instance(machine) for machine in everything])


@fault("R32", "R34", check="states_are_known")
class StateThatIsNone(SoundServer):
    """Reports machines in a state of its own, which no autoscaler knows."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.boot_seconds = FOREVER  # so that nobody can be too late to see it

    async def nodes(self, request: pb.NodeGroupNodesRequest) -> pb.NodeGroupNodesResponse:
        answer = await super().nodes(request)
        for instance in answer.instances:
            if instance.status.instanceState == CREATING:
                # 7, as a varint in the place of the state: the generated code would not write it.
                instance.status.ParseFromString(b"\x08\x07")
        return answer


@fault("R34", "R31", "T1", check="new_machines_are_listed")
class ErrorAsAStatus(SoundServer):
    """Tells in errorInfo how far a machine is that is being created: the autoscaler deletes every new one."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.boot_seconds = FOREVER

    def instance(self, machine: Machine) -> pb.Instance:
        message = super().instance(machine)
        if message.status.instanceState == CREATING:
            message.status.errorInfo.errorCode = "PENDING"
            message.status.errorInfo.instanceErrorClass = 99
        return message


@fault("R34", "T3", check="stock_out_is_told", with_help=True)
class ErrorOnARunningInstance(SoundServer):
    """Reports a machine that could not be created as running with errorInfo, which the autoscaler never sees."""

    def instance(self, machine: Machine) -> pb.Instance:
        message = super().instance(machine)
        if message.status.HasField("errorInfo"):
            message.status.instanceState = RUNNING
        return message


@fault("R34", "T3", check="stock_out_is_told", with_help=True)
class ErrorWithoutACode(SoundServer):
    """Reports a machine that could not be created with an empty errorCode, which means "no error"."""

    def instance(self, machine: Machine) -> pb.Instance:
        message = super().instance(machine)
        if message.status.HasField("errorInfo"):
            message.status.errorInfo.errorCode = ""
        return message


@fault("R35", check="stock_out_is_told", with_help=True)
class ErrorClassThatIsNone(SoundServer):
    """Reports a stock-out with the class 3, which does not exist."""

    def instance(self, machine: Machine) -> pb.Instance:
        message = super().instance(machine)
        if message.status.HasField("errorInfo"):
            message.status.errorInfo.instanceErrorClass = 3
        return message


@fault("R39", "R64", "T3", check="stock_out_is_told", with_help=True)
class StockOutIsSwallowed(SoundServer):
    """Keeps what could not be bought in the target, and lists nothing for it."""

    async def nodes(self, request: pb.NodeGroupNodesRequest) -> pb.NodeGroupNodesResponse:
        answer = await super().nodes(request)
        shown = [instance for instance in answer.instances if not instance.status.HasField("errorInfo")]
        return pb.NodeGroupNodesResponse(instances=shown)


@fault("R38", "T3", check="failed_machines_can_be_deleted", with_help=True)
class DeletedFailureStaysListed(SoundServer):
    """Goes on listing a failed machine as creating with its error after DeleteNodes has taken it."""

    async def nodes(self, request: pb.NodeGroupNodesRequest) -> pb.NodeGroupNodesResponse:
        answer = await super().nodes(request)
        for machine in self.world.machines.values():
            if machine.error and machine.group == request.id and not machine.is_counted:
                error = pb.InstanceErrorInfo(errorCode=machine.error, instanceErrorClass=1)
                status = pb.InstanceStatus(instanceState=CREATING, errorInfo=error)
                answer.instances.add(id=machine.id, status=status)
        return answer


@fault("R33", "T6", check="deleted_machines_are_deleting")
class DeletedMachineStaysRunning(SoundServer):
    """Lists a machine as running until the cloud is rid of it, also after its deletion was accepted."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.delete_seconds = FOREVER

    def instance(self, machine: Machine) -> pb.Instance:
        message = super().instance(machine)
        if message.status.instanceState == DELETING:
            message.status.instanceState = RUNNING
        return message
