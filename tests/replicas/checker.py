"""Decides whether every read of a history is explained by some order of the changes (linearizability).

Groups are independent, so each is checked alone. The algorithm is Lowe's just-in-time linearization: walk through the
calls' beginnings and ends, and keep every configuration (a state, and which calls under way have taken effect in it)
that explains all answers so far. When none is left, the answer that ended last cannot be explained.

A change of unknown outcome may take effect at any time after it began, or never. It is applied only where a read needs
it: until then, leaving it out is at least as general. Should that lead to a violation, the history is checked again
without this shortcut.

After a failover without the last commits the promise is weaker: the group is as it was at some moment between the last
commit that the standby had and the failover. Deletions that were acknowledged in between may still take effect later,
since the machine is gone from its cloud.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tests.replicas.group_model import EMPTY, GroupState
from tests.replicas.history import Failover, History, Kind, Operation

_MOST = 3_000_000  # steps of the search in all; more is given up, and told


class UndecidedError(Exception):
    """The search became too large."""


@dataclass(frozen=True, slots=True)
class Violation:
    """An answer that no order of the changes explains, and what was possible before it."""

    operation: Operation
    states: tuple[GroupState, ...]

    def __str__(self) -> str:
        shown = "; ".join(
            f"{state.size} machines, named {' '.join(sorted(state.named)) or 'none'}" for state in self.states[:3]
        )
        return f"no order of the changes explains {self.operation}; possible before it: {shown}"


_Used = frozenset[tuple[tuple[Kind, int], int]]


@dataclass(frozen=True, slots=True)
class _Configuration:
    state: GroupState
    done: frozenset[int]  # calls under way that have taken effect, or whose answer is explained
    used: _Used  # how many unknown changes of each form have taken effect


def check(history: History) -> list[Violation]:
    """One violation at most for each group."""
    found = []
    for group in history.groups():
        operations = history.of_group(group)
        violation = _Walk(operations, history.failovers).run()
        if violation is not None:
            with contextlib.suppress(UndecidedError):  # then what the shorter search found stays
                violation = _Walk(operations, history.failovers, is_exhaustive=True).run()
        if violation is not None:
            found.append(violation)
    return found


@dataclass(slots=True)
class _Walk:
    """One pass through the calls of one group."""

    operations: list[Operation]
    failovers: list[Failover]
    is_exhaustive: bool = False
    configurations: set[_Configuration] = field(
        default_factory=lambda: {_Configuration(EMPTY, frozenset(), frozenset())}
    )
    under_way: dict[int, Operation] = field(default_factory=dict)
    deletions: list[Operation] = field(default_factory=list)  # of unknown outcome
    unknown: Counter[tuple[Kind, int]] = field(default_factory=Counter)  # other changes of unknown outcome
    trail: set[_Configuration] = field(default_factory=set)  # since the last commit that a failover keeps
    is_marked: bool = False
    steps: int = 0

    def run(self) -> Violation | None:
        for _, _, act, subject in sorted(self._events(), key=lambda event: event[:2]):
            violation = act(subject)
            if violation is not None:
                return violation
        return None

    def _events(self) -> Iterator[tuple[float, int, Callable[[Any], Violation | None], Operation | Failover]]:
        for operation in map(self._weakened, self.operations):
            if operation is None:
                continue
            yield operation.begin, 1, self._begin, operation
            if operation.is_known:
                yield operation.end, 2, self._end, operation
        for failover in self.failovers:
            yield failover.kept, 0, self._mark, failover
            yield failover.settled, 0, self._fail_over, failover

    def _weakened(self, operation: Operation) -> Operation | None:
        """What can be said of a call during a failover: nothing of a read; a change may be lost, or not."""
        for failover in self.failovers:
            if operation.begin < failover.settled and operation.end > failover.at:
                return replace(operation, end=float("inf")) if operation.kind.is_change else None
        return operation

    def _begin(self, operation: Operation) -> None:
        if operation.is_known:
            self.under_way[operation.number] = operation
            if not operation.kind.is_change:
                self._keep(self._with_reads(configuration) for configuration in self.configurations)
        elif operation.kind is Kind.DELETE:
            self.deletions.append(operation)
        elif operation.kind.is_change:
            self.unknown[operation.kind, operation.amount] += 1

    def _end(self, operation: Operation) -> Violation | None:
        before = self.configurations
        found: set[_Configuration] = set()
        for configuration in before:
            explained = {c for c in self._closure(configuration, with_unknown=False) if operation.number in c.done}
            if not explained or self.is_exhaustive:
                everything = self._closure(configuration, with_unknown=True)
                explained |= {c for c in everything if operation.number in c.done}
            found |= explained
        if not found:
            return Violation(operation, tuple({c.state for c in before}))
        del self.under_way[operation.number]
        ended = {replace(c, done=c.done - {operation.number}) for c in found}
        self._keep(ended if self.is_exhaustive else self._general(ended))
        return None

    def _general(self, configurations: set[_Configuration]) -> Iterator[_Configuration]:
        """Leaves out each configuration that another one can still become: the same, with less done so far."""
        for configuration in configurations:
            if not any(self._can_become(other, configuration) for other in configurations):
                yield configuration

    def _can_become(self, other: _Configuration, configuration: _Configuration) -> bool:
        if (other.state, other.done) == (configuration.state, configuration.done):
            return other.used != configuration.used and _is_part(other.used, configuration.used)
        if other.used != configuration.used or not other.done < configuration.done:
            return False
        extra = [self.under_way[number] for number in configuration.done - other.done]
        if not all(operation.kind.is_change for operation in extra):
            return False
        states = {other.state}
        for operation in extra:
            states = {after for state in states for after in state.after(operation)}
        return configuration.state in states

    def _mark(self, _: Failover) -> None:
        """From here on, a failover may lead back to any moment."""
        self.trail.clear()
        self.trail |= self.configurations
        self.is_marked = True

    def _fail_over(self, failover: Failover) -> None:
        """The group is as it was at some moment since the last commit that was kept.

        Which unknown changes took effect before is forgotten: they may be lost, and take effect again. That is more
        general, and leaves far fewer configurations.
        """
        self.is_marked = False
        under_way = frozenset(self.under_way)
        self._keep(_Configuration(c.state, c.done & under_way, frozenset()) for c in self.trail | self.configurations)
        self.deletions += (
            o
            for o in self.operations
            if o.kind is Kind.DELETE and o.is_known and failover.kept <= o.end and o.begin < failover.at
        )

    def _keep(self, configurations: Iterable[_Configuration]) -> None:
        self.configurations = set(configurations)
        if self.is_marked:
            self.trail |= self.configurations

    def _closure(self, configuration: _Configuration, *, with_unknown: bool) -> set[_Configuration]:
        """Everything that may have happened by now, if it was like this a moment ago."""
        seen, waiting = {configuration}, [configuration]
        while waiting:
            for new in self._steps(waiting.pop(), with_unknown=with_unknown):
                self.steps += 1
                if self.steps > _MOST:
                    raise UndecidedError(f"more than {_MOST} steps, with {len(self.configurations)} configurations")
                if new not in seen:
                    seen.add(new)
                    waiting.append(new)
        if self.is_marked:
            self.trail |= seen
        return seen

    def _steps(self, configuration: _Configuration, *, with_unknown: bool) -> Iterator[_Configuration]:
        for number, operation in self.under_way.items():
            if number not in configuration.done:
                for state in configuration.state.possible(operation):
                    yield self._with_reads(replace(configuration, state=state, done=configuration.done | {number}))
        if with_unknown:
            yield from self._unknown_steps(configuration)

    def _unknown_steps(self, configuration: _Configuration) -> Iterator[_Configuration]:
        """Unknown changes that bring the group nearer to what a read under way has shown, and no others."""
        reads = [
            operation
            for number, operation in self.under_way.items()
            if not operation.kind.is_change and number not in configuration.done
        ]
        sizes = [o.amount if o.kind is Kind.TARGET else len(o.names) for o in reads if o.kind is not Kind.ABSENT]
        size, used = configuration.state.size, dict(configuration.used)
        for form, count in self.unknown.items():
            is_nearer = any(wanted > size if form[0] is Kind.INCREASE else wanted < size for wanted in sizes)
            if is_nearer and used.get(form, 0) < count:
                now_used = frozenset({**used, form: used.get(form, 0) + 1}.items())
                change = Operation(number=-1, group="", kind=form[0], begin=0.0, amount=form[1])
                for state in configuration.state.after(change):
                    yield self._with_reads(replace(configuration, state=state, used=now_used))
        for deletion in self.deletions:
            gone = deletion.names & configuration.state.named
            if gone and any(_explains(gone, size, read) for read in reads):
                for state in configuration.state.after(deletion):
                    yield self._with_reads(replace(configuration, state=state))

    def _with_reads(self, configuration: _Configuration) -> _Configuration:
        """Marks every read under way that this state explains and that teaches nothing: that restricts nothing."""
        state = configuration.state
        explained = {
            number
            for number, operation in self.under_way.items()
            if not operation.kind.is_change and state.seen(operation) == state
        }
        return replace(configuration, done=configuration.done | explained)


def _explains(gone: frozenset[str], size: int, read: Operation) -> bool:
    """Whether a deletion of these machines may be why a read has shown what it did."""
    if read.kind is Kind.TARGET:
        return read.amount < size
    return bool(gone & read.names) if read.kind is Kind.ABSENT else not gone <= read.names


def _is_part(one: _Used, other: _Used) -> bool:
    counts = dict(other)
    return all(count <= counts.get(form, 0) for form, count in one)
