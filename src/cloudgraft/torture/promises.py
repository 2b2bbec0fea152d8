"""Models what a server has promised to the autoscaler, and finds broken promises. Pure.

A change that was answered holds. A change without an answer is carried out as a whole, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cloudgraft.sdk.types import Instance, InstanceState, NodeGroup


@dataclass(frozen=True, slots=True)
class Seen:
    """One group, as the autoscaler reads it."""

    group: NodeGroup
    target: int
    instances: Sequence[Instance]
    names: Mapping[str, str] = field(repr=False)  # id -> machine: an id changes when the providerID becomes known

    @property
    def running(self) -> list[str]:
        """The ids of running instances."""
        return [instance.id for instance in self.instances if instance.state is InstanceState.RUNNING]

    @property
    def wanted(self) -> list[str]:
        """The ids of all instances that are not being deleted."""
        return [instance.id for instance in self.instances if instance.state is not InstanceState.DELETING]

    @property
    def failed(self) -> dict[str, str]:
        """The error code of each failed instance, by id."""
        return {instance.id: instance.error.code for instance in self.instances if instance.error}

    def machines(self, ids: Iterable[str]) -> set[str]:
        """The machines of these ids."""
        return {self.names.get(id_, id_) for id_ in ids}

    def is_at_rest(self, size: int) -> bool:
        """Whether the group has exactly this number of machines, and all of them run."""
        return self.target == size == len(self.running) == len(self.instances)


@dataclass(slots=True)
class Promise:
    """The promises about one group."""

    targets: set[int] = field(default_factory=lambda: {0})  # several while a change was not answered
    may_lose: bool = False  # the cloud has lost one machine, and the target does not show it yet
    ids: set[str] = field(default_factory=set)  # all that were ever listed
    deleted: set[str] = field(default_factory=set)  # machines; by an answered call
    in_doubt: set[str] = field(default_factory=set)  # machines; by a call without an answer: all of them, or none

    def begin(self, before: Iterable[int], after: Iterable[int], deleted: Iterable[str] = ()) -> None:
        """A change is about to be sent: from now on, the target may be as before or as after it."""
        self.targets = {*before, *after}
        self.in_doubt = set(deleted)

    def answered(self, after: Iterable[int]) -> None:
        """The change was answered: it holds."""
        self.targets = set(after)
        self.deleted |= self.in_doubt
        self.in_doubt = set()

    def check(self, seen: Seen) -> list[str]:
        """The promises that this reading breaks. What was in doubt is known afterwards."""
        broken, name = [], seen.group.id
        ids = [instance.id for instance in seen.instances]
        if self.may_lose and seen.target + 1 in self.targets:
            self.may_lose = False
        elif seen.target not in self.targets:
            broken.append(f"the target of {name} is {seen.target}, and was promised to be {_either(self.targets)}")
        wanted = seen.machines(seen.wanted)
        if len(wanted) != seen.target or len(seen.machines(ids)) != len(ids):
            broken.append(f"the target of {name} is {seen.target}, and its list {_shown(seen)}")
        if back := self.deleted & wanted:
            broken.append(f"{sorted(back)} of {name} were deleted, and are listed as wanted")
        kept = self.in_doubt & wanted
        if kept and kept != self.in_doubt:
            broken.append(f"of {sorted(self.in_doubt)} in {name} only a part was deleted: {sorted(kept)} stay")
        self.deleted |= self.in_doubt - kept
        self.in_doubt = set()
        self.ids.update(ids)
        self.targets = {seen.target}
        return broken


def _either(targets: set[int]) -> str:
    return " or ".join(map(str, sorted(targets)))


def _shown(seen: Seen) -> str:
    return ", ".join(f"{instance.id} {instance.state.name.lower()}" for instance in seen.instances) or "empty"
