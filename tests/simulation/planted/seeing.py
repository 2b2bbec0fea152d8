"""Takes away protections in what is concluded from lists and nodes."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from cloudgraft.engine.machines import observation
from cloudgraft.engine.nodes.tracking import Nodes
from cloudgraft.joining.match import Rivals
from tests.simulation.planted.fault import both, plant, replaced

__all__: list[str] = []

Patch = AbstractContextManager[object]


@plant(
    "one-absence",
    "one list without a machine is enough for it to be gone",
    finds="absence-believed",
    seed=6,
    plan="3000:lists-some:east,95,1,9",
)
def one_absence() -> Patch:
    return replaced("cloudgraft.engine.machines.observation._NEEDED", 1)


@plant(
    "no-proof",
    "whatever has a name of ours is ours",
    finds="foreign-deleted",
    seed=6,
    plan="2000:name-taken:east,3;2100:name-taken:east,1;2200:name-taken:east,2",
)
def no_proof() -> Patch:
    return replaced("cloudgraft.engine.machines.identity.Identity.is_proven", lambda *_args, **_more: True)


@plant(
    "list-delay-ignored",
    "a new machine must be in the first list after its create",
    finds="second-create",
    seed=30,
    plan="20:creates-lost:east,9000,1,0;73:crash:0,2",
)
def list_delay_ignored() -> Patch:
    def count(_record: Any, seen: observation.Observation, listing: Any, _looker: Any, *, is_there: bool) -> Any:
        return (0 if is_there else seen.listed.absences + 1), listing.began

    return replaced("cloudgraft.engine.machines.observation._absences", count)


@plant(
    "given-up-call-ignored",
    "a create that timed out counts as never made as soon as two lists lack it",
    finds="create-while-open",
    seed=6,
    plan="20:creates-late:east,300,1,50;46:crash:0,3",
)
def given_up_call_ignored() -> Patch:
    return replaced("cloudgraft.engine.machines.observation.create_limit", lambda *_args: 0.0)


@plant(
    "newer-double-kept",
    "of two machines for one intent the newer is kept, and nodes are not looked at",
    finds="wrong-double-deleted",
    seed=6,
    plan="3000:tags-copied:east,2",
)
def newer_double_kept() -> Patch:
    def kept(_record: Any, ours: Any, _proven: Any, _rivals: Any) -> Any:
        return max(ours, key=lambda machine: machine.created_at)

    return both(
        replaced("cloudgraft.engine.machines.observation._kept", kept),
        replaced("cloudgraft.engine.nodes.tracking.Nodes.rivals", lambda *_args: Rivals()),
    )


@plant(
    "only-claims-are-nodes",
    "of two machines for one intent the one that joined is not known when its create was never answered",
    finds="wrong-double-deleted",
    seed=6,
    plan="20:creates-twice:east,300,1,0;47:lists-fail:east,400,1,0",
)
def only_claims_are_nodes() -> Patch:
    return replaced("cloudgraft.engine.nodes.tracking.Nodes.rivals", lambda *_args: Rivals())


@plant(
    "stranger-by-id-kept",
    "a machine that only has the id is kept before one that shows our marks",
    finds="deleted-without-reason",
    seed=11,
    plan="2400:creates-nonsense:west,9000,1,0;3000:machine-deleted:west,0",
    hours=6,
)
def stranger_by_id_kept() -> Patch:
    real = observation._kept
    return replaced(
        "cloudgraft.engine.machines.observation._kept",
        lambda record, ours, _proven, more: real(record, ours, ours, more),
    )


@plant(
    "reused-id-is-ours",
    "a machine under an id that was ours once is taken for it",
    finds="foreign-deleted",
    seed=6,
    plan="2000:recreated:east,1;2010:recreated:east,2;2020:recreated:east,3",
)
def reused_id_is_ours() -> Patch:
    def proven(self: Any, machine: Any, _ownership: Any, record: Any, **_more: Any) -> bool:
        known = record is not None and record.machine_id == machine.machine_id
        return bool(known or machine.tags.get("cloudgraft-cluster-id") == self.cluster_id)

    return replaced("cloudgraft.engine.machines.identity.Identity.is_proven", proven)


@plant(
    "cluster-name-is-proof",
    "a cluster's name is proof of ownership, without its generated id",
    finds="foreign-deleted",
    seed=6,
    plan="1000:foreigners:east,3;2000:journal-lost:10,0",
)
def cluster_name_is_proof() -> Patch:
    def proven(self: Any, machine: Any, _ownership: Any, _record: Any, **_more: Any) -> bool:
        return bool(machine.tags.get("cloudgraft-cluster") == self.cluster)

    return replaced("cloudgraft.engine.machines.identity.Identity.is_proven", proven)


@plant(
    "away-time-counts",
    "time in which the API server is away counts against a machine that has not joined",
    finds="deleted-without-reason",
    seed=6,
    plan="3550:nodes-late:east,900,1800;3800:kubernetes-away:1500",
)
def away_time_counts() -> Patch:
    def watch(self: Nodes, now: float) -> None:
        if self._looked_at is not None:
            self._watched += max(0.0, now - self._looked_at)
        self._looked_at = now

    return replaced("cloudgraft.engine.nodes.tracking.Nodes.watch", watch)


@plant(
    "ready-node-is-not-heard",
    "a ready node does not speak against a cloud that calls its machine failed",
    finds="deleted-without-reason",
    seed=2,
    plan="9000:lists-slander:east,5000,1,7",
)
def ready_node_is_not_heard() -> Patch:
    return replaced("cloudgraft.engine.machines.observation.NodeView.may_be_ready", property(lambda _self: False))
