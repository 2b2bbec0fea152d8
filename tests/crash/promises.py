"""What the autoscaler was told and may rely on: an answered call holds, one without an answer is whole or not there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cloudgraft.sdk.types import Instance, NodeRef
from cloudgraft.torture.promises import Promise, Seen

Ask = Callable[..., Any]
View = Mapping[str, Seen]


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
        for broken in self._promise(seen.group.id).check(seen):
            raise AssertionError(broken)

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
            self._promise(group).begin({target}, {size})
            self._change(group, {size}, "increase_size", size - target)

    def take_back(self, group: str, count: int) -> None:
        """DecreaseTargetSize: as many as were not ordered yet, which only the engine knows."""
        target = self.look()[group].target
        possible = set(range(max(0, target - count), target + 1))
        self._promise(group).begin(possible, possible)
        self._change(group, possible, "decrease_target_size", -count)

    def delete(self, group: str, ids: Sequence[str]) -> None:
        """DeleteNodes of those that are still wanted, all in one call; by made-up nodes, as for placeholders (R16)."""
        seen = self.look().get(group)
        if seen is None:
            return  # a group that was draining has gone with its last machine
        unwanted = seen.machines(ids)  # by whichever id they have by now
        victims = [id_ for id_ in seen.wanted if seen.names[id_] in unwanted]
        if not victims:
            return
        before, after = seen.target, seen.target - len(victims)
        self._promise(group).begin({before}, {after}, seen.machines(victims))
        self._change(group, {after}, "delete_nodes", [NodeRef(name=id_, provider_id=id_) for id_ in victims])

    def _change(self, group: str, after: set[int], call: str, argument: object) -> None:
        self._ask(call, group, argument)
        self._promise(group).answered(after)
