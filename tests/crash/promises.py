"""What the autoscaler was told and may rely on: an answered call holds, one without an answer is whole or not there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cloudgraft.sdk.types import Instance, InstanceState, NodeGroup, NodeRef
from tests.crash.process import Crashed

Ask = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """One group, as the autoscaler reads it."""

    group: NodeGroup
    target: int
    instances: Sequence[Instance]
    names: Mapping[str, str] = field(repr=False)  # id -> machine: an id changes when the providerID becomes known

    @property
    def running(self) -> list[str]:
        return [instance.id for instance in self.instances if instance.state is InstanceState.RUNNING]

    @property
    def wanted(self) -> list[str]:
        return [instance.id for instance in self.instances if instance.state is not InstanceState.DELETING]

    @property
    def failed(self) -> dict[str, str]:
        """id -> error code."""
        return {instance.id: instance.error.code for instance in self.instances if instance.error}

    def machines(self, ids: Iterable[str]) -> set[str]:
        """The machines behind these ids."""
        return {self.names[id_] for id_ in ids}

    def is_at_rest(self, size: int) -> bool:
        """So many machines, all of them running, and nothing else."""
        return self.target == size == len(self.running) == len(self.instances)


View = Mapping[str, Seen]


@dataclass(slots=True)
class Promise:
    """What was promised of one group."""

    targets: set[int] = field(default_factory=lambda: {0})  # more than one while something was not answered
    may_lose: bool = False  # the cloud has lost one machine, and that was not seen yet
    ids: set[str] = field(default_factory=set)  # all that were ever listed
    deleted: set[str] = field(default_factory=set)  # machines; by an answered call
    in_doubt: set[str] = field(default_factory=set)  # machines; by a call without an answer: all of them, or none


class Autoscaler:
    """Makes calls, remembers what came of them, and holds the engine to it."""

    def __init__(self, ask: Ask, promises: dict[str, Promise]) -> None:
        self._ask = ask
        self.promises = promises  # by group

    def asked_to_delete(self) -> set[str]:
        """All machines that it ever wanted to be gone."""
        return {name for promise in self.promises.values() for name in promise.deleted}

    # -- reading -----------------------------------------------------------------------------------------------------

    def look(self) -> View:
        """A loop of the autoscaler: Refresh, and what every group is like; fails when a promise is broken."""
        self._ask("refresh")
        groups = [(group, *self._read(group.id)) for group in self._ask("node_groups")]
        names = self._ask("names")
        view = {group.id: Seen(group, target, instances, names) for group, target, instances in groups}
        for seen in view.values():
            self._check(seen)
        return view

    def _read(self, group: str) -> tuple[int, Sequence[Instance]]:
        """Target and list of the same moment: that a machine vanishes between two calls is no broken promise."""
        while True:
            target: int = self._ask("target_size", group)
            instances: Sequence[Instance] = self._ask("instances", group)
            if self._ask("target_size", group) == target:
                return target, instances

    def look_closely(self) -> View:
        """The same, and every id that was ever listed still leads to its group (T10, R16, R24)."""
        view = self.look()
        for name in view:
            for id_ in sorted(self._promise(name).ids):
                found = self._ask("node_group_for_node", NodeRef(name=id_, provider_id=id_))
                if found is None or found.id != name:
                    raise AssertionError(f"{id_} was listed in group {name}, and is now of {found}")
        return view

    def _check(self, seen: Seen) -> None:
        name, promise = seen.group.id, self._promise(seen.group.id)
        ids = [instance.id for instance in seen.instances]
        if promise.may_lose and seen.target + 1 in promise.targets:
            promise.may_lose = False
        elif seen.target not in promise.targets:
            raise AssertionError(f"the target of {name} is {seen.target}, and was promised to be {promise.targets}")
        wanted = seen.machines(seen.wanted)
        if len(wanted) != seen.target or len(seen.machines(ids)) != len(ids):
            raise AssertionError(f"the target of {name} is {seen.target}, and its list {seen.instances}")
        if back := promise.deleted & wanted:
            raise AssertionError(f"{sorted(back)} of {name} were deleted, and are listed as wanted")
        kept = promise.in_doubt & wanted
        if kept and kept != promise.in_doubt:
            raise AssertionError(
                f"of {sorted(promise.in_doubt)} in {name} only a part was deleted: {sorted(kept)} stay"
            )
        promise.deleted |= promise.in_doubt - kept
        promise.in_doubt = set()
        promise.ids.update(ids)
        promise.targets = {seen.target}

    def _promise(self, group: str) -> Promise:
        return self.promises.setdefault(group, Promise())

    # -- changing ----------------------------------------------------------------------------------------------------

    def will_lose_one(self, group: str) -> None:
        """The cloud loses a machine of this group: its target falls by one, sooner or later."""
        self._promise(group).may_lose = True

    def raise_to(self, group: str, size: int) -> None:
        """IncreaseSize by what is missing, if anything."""
        target = self.look()[group].target
        if target < size:
            self._change(group, {target}, {size}, "increase_size", size - target)

    def take_back(self, group: str, count: int) -> None:
        """DecreaseTargetSize: as many as were not ordered yet, which only the engine knows."""
        target = self.look()[group].target
        possible = set(range(max(0, target - count), target + 1))
        self._change(group, possible, possible, "decrease_target_size", -count)

    def delete(self, group: str, ids: Sequence[str]) -> None:
        """DeleteNodes of those that are still wanted, all in one call; by made-up nodes, as for placeholders (R16)."""
        seen = self.look().get(group)
        if seen is None:
            return  # a group that was draining has gone with its last machine
        unwanted = seen.machines(ids)  # by whichever id they have by now
        victims = [id_ for id_ in seen.wanted if seen.names[id_] in unwanted]
        if not victims:
            return
        promise = self._promise(group)
        promise.in_doubt = seen.machines(victims)
        before, after = seen.target, seen.target - len(victims)
        self._change(group, {before}, {after}, "delete_nodes", [NodeRef(name=id_, provider_id=id_) for id_ in victims])
        promise.deleted |= promise.in_doubt
        promise.in_doubt = set()

    def order(self, group: str, before: int, delta: int, key: str, victims: Sequence[str] = ()) -> None:
        """`cloudgraft scale`, perhaps for the second time: from the size at which it was first ordered.

        ``victims`` are names of machines; they go with the order, or stay without it.
        """
        change = f"{delta:+}"
        promise = self._promise(group)
        promise.in_doubt = set(victims) - promise.deleted
        self._change(group, {before}, {before + delta}, "scale", change, key, victims)
        promise.deleted |= promise.in_doubt
        promise.in_doubt = set()

    def _change(self, group: str, before: set[int], after: set[int], call: str, *arguments: object) -> None:
        promise = self._promise(group)
        try:
            self._ask(call, group, *arguments)
        except Crashed:
            promise.targets = before | after
            raise
        promise.targets = set(after)
