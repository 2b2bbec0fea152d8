"""Serves the engine to the autoscaler: every answer from memory, every change in one commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime

from cloudgraft.engine import change_publisher as subjects
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.fleet import Group
from cloudgraft.engine.groups.prices import node_price, pod_price
from cloudgraft.engine.guards import HOUR
from cloudgraft.engine.machines.decide import failure
from cloudgraft.engine.machines.states import amend, delete, is_given_up, is_lost, move
from cloudgraft.engine.new_records import about, happened, wanted
from cloudgraft.sdk.errors import InvalidArgumentError, NotFoundError, PreconditionError, UnsupportedError
from cloudgraft.sdk.pod_requests import pod_requests
from cloudgraft.sdk.provider import Provider, Question, ReadyReplies
from cloudgraft.sdk.template_nodes import group_of_template
from cloudgraft.sdk.types import AutoscalingOptions, Instance, NodeGroup, NodeRef, NodeTemplate, Pod
from cloudgraft.store.records import Change, ErrorRecord, Event, MachineRecord, Presence, State


class ObserveOnlyError(PreconditionError):
    """The autoscaler ordered a change in a cloud that may only be observed."""

    def __init__(self, cloud: str, group: str, what: str) -> None:
        super().__init__(
            f"observeOnly of cloud {cloud} is set, so nothing was done; otherwise cloudgraft would {what} in group "
            f"{group}. Remove observeOnly from the configuration to allow it"
        )
        self.cloud = cloud
        self.group = group


class EngineProvider(Provider):
    """Node groups made of machines. Nothing here waits for a cloud (law 1)."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._refused: dict[str, float] = {}  # orders that observeOnly refused: time of the latest event by message

    async def order(self, plan: Callable[[], Change]) -> None:
        """Makes a change that the autoscaler orders, in one commit; ``plan`` runs when its turn comes.

        An order that observeOnly refuses becomes an event, at most once an hour.
        """
        now, writer = self.engine.clock.now(), self.engine.writer
        try:
            await writer.write(plan)
        except ObserveOnlyError as error:
            event = happened("observed", now, error.message, cloud=error.cloud, group=error.group)
            self._refused = {message: at for message, at in self._refused.items() if at > now - HOUR}
            if self._refused.setdefault(error.message, now) == now:
                await writer.write(lambda: Change(events=(event,)))
            raise

    async def start(self) -> None:
        """Opens the journal and begins to lead, unless another process does."""
        await self.engine.start()

    async def close(self) -> None:
        """Gives calls under way a moment to end, and closes the journal."""
        await self.engine.close()

    # -- reading -----------------------------------------------------------------------------------------------------

    async def node_groups(self) -> Sequence[NodeGroup]:
        """All groups, as of the last Refresh."""
        self.engine.check_open()
        return self.engine.groups.shown

    async def node_group_for_node(self, node: NodeRef) -> NodeGroup | None:
        """R16-R24: by id, alias or name; a gone machine keeps its group while its Node object may still exist."""
        self.engine.check_open()
        record = self.engine.fleet.find(node)
        if record is None or self.engine.is_forgotten(record):
            return None
        group = self.engine.fleet.groups.get(record.group)
        return group.shown if group is not None and record.group in self.engine.groups.shown_ids else None

    async def target_size(self, group: str) -> int:
        """Law 5: all machines but those being deleted or gone."""
        return self._group(group).target

    async def instances(self, group: str) -> Sequence[Instance]:
        """Law 5: every machine that is not gone."""
        return self._group(group).instances()

    async def template(self, group: str) -> NodeTemplate:
        """The template of a new node of the group."""
        return self._group(group).spec.template

    async def options(self, group: str, defaults: AutoscalingOptions) -> AutoscalingOptions | None:
        """Only what the group overrides (R73, R74)."""
        return self._group(group).spec.options

    async def node_price(self, node: NodeRef, start: datetime, end: datetime) -> float:
        """R81: finds a template by its name, and a real node by its machine."""
        self.engine.check_open()
        groups = self.engine.fleet.groups
        name = group_of_template(node.name, groups)
        if name is None:
            record = self.engine.fleet.find(node)
            name = record.group if record else None
        group = groups.get(name or "")
        if group is None or group.spec.price is None:
            raise NotFoundError(f"no price is known for node {node.name!r}; set `price` for its group")
        return node_price(group.spec.price.amount, start, end)

    async def pod_price(self, pod: Pod, start: datetime, end: datetime) -> float:
        """R82: the pod's requests at the reference price of all groups."""
        self.engine.check_open()
        reference = self.engine.groups.reference_price
        if reference is None:
            raise UnsupportedError("no node group has a price; set `price` for them")
        return pod_price(pod_requests(pod), start, end, reference)

    async def gpu_label(self) -> str:
        """The configured GPU label."""
        return self.engine.settings.gpu_label

    async def gpu_types(self) -> Collection[str]:
        """The values that templates have for the GPU label."""
        label = self.engine.settings.gpu_label
        templates = (group.spec.template for group in self.engine.fleet.groups.values())
        return sorted({template.labels[label] for template in templates if label in template.labels})

    async def refresh(self) -> None:
        """Applies changes of the configuration. Fails only when we do not lead, or cannot write (law 6)."""
        self.engine.check_open()
        await self.engine.refresh()

    # -- ready replies -----------------------------------------------------------------------------------------------

    def dependencies(self, question: Question) -> Collection[str] | None:
        """The subjects of an answer; None for a gone machine, which is remembered only for a while (R24)."""
        if question.node is not None:
            record = self.engine.fleet.find(question.node)
            if record is not None and record.state is State.GONE:
                return None
            return subjects.of_node(question.node, record.group if record else "")
        return subjects.of_question(question)

    def follow(self, replies: ReadyReplies) -> None:
        """Publishes all changes from now on."""
        self.engine.keep_ready(replies)

    def replies_valid_until(self) -> float:
        """Until the lease ends."""
        return self.engine.answers_until()

    # -- changing ----------------------------------------------------------------------------------------------------

    async def increase_size(self, group: str, delta: int) -> None:
        """One commit for all; machines that cannot come now are recorded as failed, and shown as such (R39)."""
        self._group(group)
        await self.order(lambda: self.plan_increase(group, delta))

    async def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        """R49-R58: recorded and answered at once; all of the nodes or, when one is not of this group, none."""
        self._group(group)
        await self.order(lambda: self.plan_delete(group, nodes))

    async def decrease_target_size(self, group: str, delta: int) -> None:
        """R59-R64: cancels machines for which no call was ever made, newest first; always OK."""
        self._group(group)
        await self.order(lambda: self.plan_decrease(group, -delta))

    # -- planning changes --------------------------------------------------------------------------------------------
    # The writer calls these when it is the change's turn.

    def plan_increase(self, group_id: str, delta: int) -> Change:
        """The change that requests machines."""
        engine, group, now = self.engine, self._group(group_id), self.engine.clock.now()
        if not group.is_configured:
            raise PreconditionError(f"node group {group_id!r} is no longer configured; it only shrinks")
        if engine.observes_only(group.spec.cloud):
            raise ObserveOnlyError(group.spec.cloud, group_id, f"create {delta} more")  # R45: nothing was started
        traits = engine.traits(group.spec.cloud)
        records: list[MachineRecord] = []
        for _ in range(delta):
            error = self._refusal(group)
            records.append(wanted(group.spec, engine.fleet, engine.identity, traits, now, error=error))
        refused = next((record.error for record in records if record.error), None)
        message = f"the autoscaler asked for {delta} more"
        events = [happened("increase", now, message, cloud=group.spec.cloud, group=group_id, delta=delta)]
        events += [_asked_for(record, now) for record in records]
        if refused is not None and refused.code == "guard":
            events.append(happened("guard", now, refused.message, cloud=group.spec.cloud, group=group_id))
        return Change(machines=records, events=events)

    def _refusal(self, group: Group) -> ErrorRecord | None:
        engine, spec = self.engine, group.spec
        pause = engine.fleet.pause_of(spec.id, spec.cloud)
        if pause is not None:
            return failure("paused", f"{pause.scope.value} {pause.name} is paused: {pause.reason or 'no reason given'}")
        return engine.refusal(spec.cloud) or engine.guard_usage.ask(
            spec.cloud, spec.price.amount if spec.price else None
        )

    def plan_delete(self, group_id: str, nodes: Sequence[NodeRef]) -> Change:
        """The change that deletes machines."""
        engine, now = self.engine, self.engine.clock.now()
        found: dict[str, MachineRecord] = {}
        for node in nodes:
            record = engine.fleet.find(node)
            if record is None or record.group != group_id:
                where = (
                    f"it is of group {record.group!r}" if record else "no machine of ours is known by that id or name"
                )
                raise InvalidArgumentError(
                    f"node {node.provider_id or node.name!r} is not of group {group_id!r}: {where}; nothing was deleted"
                )
            found[record.name] = record
        unwanted = [r for r in found.values() if r.state not in (State.DELETING, State.GONE)]
        self._check_may_delete(group_id, unwanted)
        # Record that a lost machine is not wanted, in case it shows up again.
        final = [amend(r, error=None) for r in found.values() if is_lost(r)]
        # A machine that the engine already deletes counts as ordered from now on, and waits for no guard.
        final += [amend(r, error=None) for r in found.values() if r.state is State.DELETING and is_given_up(r)]
        if not unwanted:
            return Change(machines=final)
        records = [delete(record, now) for record in unwanted]
        cloud = self._group(group_id).spec.cloud
        message = f"the autoscaler deleted {len(records)}"
        events = [happened("delete", now, message, cloud=cloud, group=group_id, machines=[r.name for r in records])]
        events += [about(record, now, "the autoscaler deleted it") for record in records]
        return Change(machines=[*records, *final], events=events)

    def _check_may_delete(self, group_id: str, unwanted: Sequence[MachineRecord]) -> None:
        """A machine that the cloud does not have may always be removed (R38): no deletion is needed."""
        there = [r for r in unwanted if r.presence is not Presence.NONE and self.engine.observes_only(r.cloud)]
        if there:
            names = ", ".join(record.name for record in there)
            raise ObserveOnlyError(there[0].cloud, group_id, f"delete {names}")

    def plan_decrease(self, group_id: str, count: int) -> Change:
        """The change that cancels machines before any create call."""
        group, now = self._group(group_id), self.engine.clock.now()
        never_sent = [r for r in group.machines.values() if r.state is State.REQUESTED]
        newest = sorted(never_sent, key=lambda r: r.requested_at)[::-1][:count]
        if not newest:
            return Change()
        records = [move(record, State.GONE, now) for record in newest]
        message = f"the autoscaler gave up {count}; {len(records)} had not been ordered yet"
        events = [happened("decrease", now, message, cloud=group.spec.cloud, group=group_id, delta=-count)]
        events += [about(record, now, "the autoscaler took it back before it was ordered") for record in records]
        return Change(machines=records, events=events)

    def _group(self, group_id: str) -> Group:
        self.engine.check_open()
        group = self.engine.fleet.groups.get(group_id)
        if group is None:
            raise NotFoundError(f"there is no node group {group_id!r}")
        return group


def _asked_for(record: MachineRecord, now: float) -> Event:
    return about(record, now, record.error.message if record.error else "the autoscaler asked for it")
