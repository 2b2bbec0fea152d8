"""The state of one node group, as clients can know it, and what each operation does to it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.replicas.history import Kind, Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """Machines that count. Of some only the number is known: no list has shown their names yet."""

    named: frozenset[str]
    unnamed: int
    cancelled: int  # of both kinds: a decrease has removed them, and no list has shown which
    former: frozenset[str]  # names that were here, and never come back

    @property
    def size(self) -> int:
        return len(self.named) + self.unnamed - self.cancelled

    def possible(self, operation: Operation) -> Iterator[GroupState]:
        """The states in which a change may leave the group, or what a read shows of it."""
        if operation.kind.is_change:
            yield from self.after(operation)
        elif (seen := self.seen(operation)) is not None:
            yield seen

    def after(self, operation: Operation) -> Iterator[GroupState]:
        """The states in which a change may leave the group; none when it cannot have happened here."""
        if operation.kind is Kind.INCREASE:
            yield replace(self, unnamed=self.unnamed + operation.amount)
        elif operation.kind is Kind.DECREASE:
            for count in range(min(operation.amount, self.size) + 1):
                yield replace(self, cancelled=self.cancelled + count)
        else:
            yield from self._without(sorted(operation.names))

    def _without(self, names: list[str]) -> Iterator[GroupState]:
        if not names:
            yield self
            return
        name, *rest = names
        gone = replace(self, named=self.named - {name}, former=self.former | {name})
        if name not in self.named:
            if name in self.former or not self.unnamed:
                yield from gone._without(rest)
                return
            gone = replace(gone, unnamed=self.unnamed - 1)
        if self.size:
            yield from gone._without(rest)
        if self.cancelled:  # or a decrease had removed it before
            yield from replace(gone, cancelled=self.cancelled - 1)._without(rest)

    def seen(self, operation: Operation) -> GroupState | None:
        """The same state with what a read has shown of it; None when the read cannot be explained by it."""
        if operation.kind is Kind.TARGET:
            return self if operation.amount == self.size else None
        if operation.kind is Kind.ABSENT:
            return self if not operation.names & self.named or self.cancelled else None
        return self._listed(operation.names)

    def _listed(self, names: frozenset[str]) -> GroupState | None:
        missing = self.named - names
        is_explained = (
            len(names) == self.size
            and not names & self.former
            and len(missing) <= self.cancelled
            and self.cancelled - len(missing) <= self.unnamed
        )
        if not is_explained:
            return None
        return GroupState(named=names, unnamed=0, cancelled=0, former=self.former | missing)


EMPTY = GroupState(named=frozenset(), unnamed=0, cancelled=0, former=frozenset())
