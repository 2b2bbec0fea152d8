"""Takes away protections in what is decided."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from cloudgraft.engine import guards, new_records, provider
from cloudgraft.engine.machines import decide
from cloudgraft.engine.machines.states import COUNTED, move
from cloudgraft.store.records import Change, State
from tests.simulation.planted.fault import both, plant, replaced

__all__: list[str] = []

Patch = AbstractContextManager[object]


@plant(
    "no-list-before-create",
    "machines are created before their cloud was listed",
    finds="create-before-list",
    seed=6,
    plan="3580:crash:0,10;3585:lists-hang:east,900,1,55",
)
def no_list_before_create() -> Patch:
    return replaced("cloudgraft.engine.reconcile.observer.Observer.may_create", True)


@plant(
    "doubles-stay",
    "a second machine for one intent is not deleted",
    finds="double",
    seed=6,
    plan="20:creates-twice:east,3000,1,0",
)
def doubles_stay() -> Patch:
    return replaced("cloudgraft.engine.machines.decide._extra", lambda *_args: None)


@plant(
    "target-counts-deleting",
    "the target counts machines that are being deleted",
    finds="target-is-not-list",
    seed=20,
    plan="",
)
def target_counts_deleting() -> Patch:
    more = COUNTED | {State.DELETING}
    return replaced("cloudgraft.engine.fleet.COUNTED", more)


@plant(
    "failed-machines-stay",
    "what the cloud holds of a failed machine is not removed",
    finds="stuck",
    seed=6,
    plan="20:nodes-never:east,3000,0",
)
def failed_machines_stay() -> Patch:
    return replaced("cloudgraft.engine.machines.decide._clear", lambda *_args: decide.Stay())


@plant(
    "pause-ignored",
    "a paused group is worked on",
    finds="acted-while-paused",
    seed=20,
    plan="3000:pause:a,9000",
    hours=6,
)
def pause_ignored() -> Patch:
    return replaced("cloudgraft.engine.fleet.Fleet.pause_of", lambda *_args: None)


@plant(
    "repair-at-once",
    "a machine that is stopped is replaced at once",
    finds="deleted-without-reason",
    seed=6,
    plan="3000:machine-rebooted:east,1",
)
def repair_at_once() -> Patch:
    def due(observation: Any, _settings: Any, _now: float) -> float | None:
        return observation.listed.dead_since  # type: ignore[no-any-return]

    return replaced("cloudgraft.engine.reconcile.policies.due_at", due)


@plant(
    "creates-unguarded",
    "a guard on creates per hour is not asked before the call, nor when machines are asked for",
    finds="too-many-creates",
    seed=20,
    plan="10:guards:0,2",
)
def creates_unguarded() -> Patch:
    return both(
        replaced("cloudgraft.engine.guards.GuardUsage.order", lambda *_args, **_more: None),
        replaced("cloudgraft.engine.guards.GuardUsage.ask", lambda *_args, **_more: None),
    )


@plant(
    "machines-unguarded",
    "a guard on machines counts none",
    finds="too-many-machines",
    seed=29,
    plan="",
    hours=24,
)
def machines_unguarded() -> Patch:
    real = guards._exceeded
    return replaced("cloudgraft.engine.guards._exceeded", lambda limits, _machines, *rest: real(limits, 0, *rest))


@plant(
    "decrease-takes-sent",
    "DecreaseTargetSize gives up machines that the cloud was asked for",
    finds="node-denied",
    seed=20,
    plan="",
    hours=24,
)
def decrease_takes_sent() -> Patch:
    def plan(self: Any, group_id: str, count: int) -> Change:
        group, now = self._group(group_id), self.engine.clock.now()
        newest = sorted(group.machines.values(), key=lambda r: r.requested_at)[-count:]
        return Change(machines=[replace(move(replace(r, state=State.CREATING), State.GONE, now)) for r in newest])

    return replaced("cloudgraft.engine.provider.EngineProvider.plan_decrease", plan)


@plant(
    "deletes-lose-their-event",
    "the event that says why a machine is deleted is not written",
    finds="deletion-without-event",
    seed=20,
    plan="",
)
def deletes_lose_their_event() -> Patch:
    real = provider.EngineProvider.plan_delete

    def plan(self: Any, group: str, nodes: Any) -> Change:
        return replace(real(self, group, nodes), events=())

    def about(*args: Any, **more: Any) -> Any:
        return replace(new_records.about(*args, **more), message="")

    return both(
        replaced("cloudgraft.engine.provider.EngineProvider.plan_delete", plan),
        replaced("cloudgraft.engine.reconcile.worker.about", about),
        replaced("cloudgraft.engine.reconcile.sender.about", about),
        replaced("cloudgraft.engine.provider.about", about),
    )


@plant(
    "nodes-are-forgotten",
    "a machine is not found by its providerID",
    finds="node-denied",
    seed=6,
    plan="",
)
def nodes_are_forgotten() -> Patch:
    return replaced("cloudgraft.engine.provider.EngineProvider.node_group_for_node", _nobody)


async def _nobody(*_args: Any) -> None:
    return None


@plant(
    "observing-ignored",
    "observeOnly is not looked at, neither by what decides nor before the call",
    finds="acted-while-observing",
    seed=20,
    plan="3000:observe-only:all,9000;4000:machine-failed:east,1",
    hours=6,
)
def observing_ignored() -> Patch:
    return both(
        replaced("cloudgraft.engine.engine.Engine.observes_only", lambda *_args: False),
        replaced("cloudgraft.engine.reconcile.calls.Caller._check_allowed", lambda *_args: None),
    )


@plant(
    "given-up-while-observing",
    "a machine of a cloud that is only to be observed is given up, though no call is made",
    finds="acted-while-observing",
    seed=6,
    plan="20:nodes-never:east,600,0;700:observe-only:east,6000",
)
def given_up_while_observing() -> Patch:
    return replaced("cloudgraft.engine.reconcile.worker._withheld", lambda *_args: "")


@plant(
    "deletes-unguarded",
    "a guard on deletions per hour is not asked",
    finds="too-many-deletions",
    seed=6,
    plan="10:delete-guard:1;20:nodes-never:east,3000,0",
)
def deletes_unguarded() -> Patch:
    return replaced("cloudgraft.engine.guards.DeleteGuard.refusal", lambda *_args, **_more: "")


@plant(
    "deletes-forgotten",
    "a restart does not remember the deletions of the last hour",
    finds="too-many-deletions",
    seed=6,
    plan="10:delete-guard:1;20:nodes-never:east,3000,0;1100:crash:0,5;1400:crash:0,5;1700:crash:0,5",
)
def deletes_forgotten() -> Patch:
    return replaced("cloudgraft.engine.guards.DeleteGuard.load", lambda self, *_args: self._counted.clear())
