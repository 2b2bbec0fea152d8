"""What the autoscaler may expect, as plainly as it can be said: the model that the engine is held against.

It knows nothing of journals, states or lists: only the calls that were made, what was listed before and after, and what
the cloud's own ledger says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cloudgraft.sdk.types import Instance, InstanceState
from cloudgraft.simcloud.records import LedgerEntry

NODE_MEMORY = 30 * 60.0  # R24
_PLACEHOLDER = "cloudgraft://sim/"


@dataclass(frozen=True)
class Call:
    """One call that changes a group."""

    verb: str  # increase, delete, decrease
    group: str
    count: int = 0
    ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Listed:
    """An instance by the name that it keeps for life."""

    name: str
    instance: Instance

    @property
    def counts(self) -> bool:
        return self.instance.state is not InstanceState.DELETING

    @property
    def has_failed(self) -> bool:
        return self.instance.error is not None


def names_of(instances: Iterable[Instance], ledger: Mapping[str, LedgerEntry]) -> list[Listed]:
    """By its placeholder, else by what the cloud has under its providerID."""
    return [
        Listed(
            instance.id.removeprefix(_PLACEHOLDER)
            if instance.id.startswith(_PLACEHOLDER)
            else ledger[instance.id].name,
            instance,
        )
        for instance in instances
    ]


@dataclass(frozen=True)
class World:
    """What the model must know of the cloud to tell what may happen by itself."""

    now: float
    dead: frozenset[str]  # names of machines that died, vanished or are going, in truth
    has_lied: bool  # a list has silently left machines out
    failed_ttl: float


@dataclass
class Group:
    """One node group, as its calls say it must be."""

    id: str
    max_size: int
    target: int = 0
    deleted: dict[str, float] = field(default_factory=dict)  # name -> since when it does not count, for good
    away: set[str] = field(default_factory=set)  # a list that lied made them vanish; nobody deleted them
    failed_since: dict[str, float] = field(default_factory=dict)

    def room(self) -> int:
        """R43: the service lets no more through."""
        return max(0, self.max_size - self.target)

    def grow(self, delta: int) -> None:
        """R45: exactly."""
        self.target += delta

    def shrink(self, names: Iterable[str], now: float) -> None:
        """R53: once for each that counted."""
        for name in names:
            if name not in self.deleted:
                self.deleted[name] = now
                self.target -= name not in self.away
                self.away.discard(name)

    def give_back(self, count: int, unsent: int) -> None:
        """R59, R62: only what was never sent."""
        self.target -= min(count, unsent)

    def check(self, listed: Sequence[Listed], target: int, now: float) -> None:
        """T10, and that nothing which was deleted ever comes back."""
        counted = [one for one in listed if one.counts]
        assert 0 <= target == len(counted) == self.target, (target, len(counted), self.target)
        assert len({one.name for one in listed}) == len(listed)
        for one in counted:
            assert one.name not in self.deleted, "R33: a deletion that was accepted is final"
        self._note_failed(listed, now)

    def _note_failed(self, listed: Sequence[Listed], now: float) -> None:
        for one in listed:
            if one.has_failed:
                self.failed_since.setdefault(one.name, now)

    def live(self, before: Sequence[Listed], after: Sequence[Listed], world: World) -> None:
        """What may change without a call: machines die and are replaced, failed ones go when their time is up.

        Only a cloud that lies can make a machine vanish that is there; it counts again when it shows up.
        """
        old, new = ({one.name for one in listed if one.counts} for listed in (before, after))
        left, come = old - new, new - old
        for name in left:
            is_expired = name in self.failed_since and world.now - self.failed_since[name] >= world.failed_ttl
            if is_expired or name in world.dead:
                self.deleted[name] = world.now
            else:
                assert world.has_lied, f"{name} stopped counting, and nobody asked for that"
                self.away.add(name)
        replaced = {name for name in left if name in world.dead or name in self.away}
        assert len(come - self.away) <= len(replaced), f"{come} came unasked"
        self.away -= come
        self.target += len(come) - len(left)
        self._note_failed(after, world.now)

    def mapped(self, now: float) -> list[str]:
        """Names of which the group must still be told (R24): none of them can have been gone for longer than that."""
        return [name for name, at in self.deleted.items() if now - at < NODE_MEMORY]
