"""Follows the machines of an order in its trace: from the order until each machine is ready or gone.

The trace of an order is kept in memory only. After a restart, and with the next leader, the calls for its machines have
traces of their own; the machine's name, an attribute of each span, says what belongs together.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

from cloudgraft.sdk.common.tracing import (
    CLOUD,
    GROUP,
    MACHINE,
    About,
    Kind,
    Span,
    Tracer,
    active,
    current_span,
    inside,
)
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.store.records import Event, MachineRecord, State

_MOST: Final = 10_000  # machines on their way; beyond that, the oldest spans end early
_LOOKING: Final = frozenset({"list", "shapes", "prices"})


@dataclass(slots=True)
class _MachineSpan:
    """The span of a machine on its way to be ready, or to be gone."""

    span: Span
    state: State


class MachineTraces:
    """The spans of machines on their way: a watcher of the fleet, and a subscriber to events."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._spans: dict[str, _MachineSpan] = {}  # by the machine's name, the oldest first

    # -- from the fleet ----------------------------------------------------------------------------------------------

    def on_machine(self, record: MachineRecord) -> None:
        """Takes a changed record. It runs in the span of the call that made the change, if there is one."""
        found = self._spans.get(record.name)
        if found is not None and found.state is record.state:
            return
        match record.state:
            case State.REQUESTED:
                found = self._begin("machine create", record, None)
            case State.DELETING:
                found = self._begin("machine delete", record, found)
            case State.FAILED if found is None and current_span() is not None:  # ordered, and refused at once
                found = self._begin("machine create", record, None)
        if found is None:
            return
        found.state = record.state
        found.span.event(record.state.value, {})
        if record.state is State.FAILED:
            code, message = (record.error.code, record.error.message) if record.error else ("failed", "")
            found.span.fail(code, message)
            found.span.end()  # what is left of it is deleted later, as a part of the same trace
        elif record.state is State.GONE:
            self._end(record.name)

    def on_forgotten(self, record: MachineRecord) -> None:
        """Does nothing: a gone machine has no span."""

    def on_groups(self) -> None:
        """Does nothing."""

    def on_reload(self) -> None:
        """Does nothing: the machines are the same, and a later change ends their spans."""

    # -- from the engine ---------------------------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        """Adds an event about a machine, such as a retry, to its span."""
        found = self._spans.get(event.machine)
        if found is not None and event.state is None:
            found.span.event(event.kind, {"message": event.message})

    def ready(self, record: MachineRecord) -> None:
        """Ends the span of a machine whose node is ready, or that runs where there is no cluster."""
        found = self._spans.get(record.name)
        if found is not None:
            found.span.event("ready", {})
            self._end(record.name)

    def stop(self, why: str) -> None:
        """Ends all spans: this process does nothing more for their machines."""
        for name in list(self._spans):
            self._spans[name].span.event("left", {"message": why})
            self._end(name)

    def around(self, event: Event) -> AbstractContextManager[None]:
        """Runs a block in the span of the event's machine, so that its log line has the ids of the trace."""
        found = self._spans.get(event.machine)
        return inside(found.span) if found is not None and found.span.is_sampled else nullcontext()

    # -- calls to the cloud ------------------------------------------------------------------------------------------

    def within(self, machine: str) -> AbstractContextManager[None]:
        """Runs a block in the span of a machine; in none if it has none, as after a restart."""
        found = self._spans.get(machine)
        return inside(found.span if found is not None else None)

    @contextmanager
    def calling(self, verb: str, cloud: str, machine: str) -> Iterator[None]:
        """Runs the block as a call to a cloud: a step of the current span, or a trace of its own."""
        about: dict[str, str] = {CLOUD: cloud, "cloudgraft.call": verb}
        if machine:
            about[MACHINE] = machine
        name, parent = f"cloud {verb}", current_span()
        if parent is not None:
            span = parent.child(name, about, Kind.CLIENT)
        else:
            span = self._tracer.begin(name, about, Kind.CLIENT, is_read=verb in _LOOKING)
        with active(span):
            try:
                yield
            except CloudgraftError as error:
                span.describe(_about_error(error))
                raise

    # -- spans -------------------------------------------------------------------------------------------------------

    def _begin(self, name: str, record: MachineRecord, earlier: _MachineSpan | None) -> _MachineSpan:
        """Begins a span in the current one, else in the trace of the machine's former order, else in a new trace."""
        about = {MACHINE: record.name, GROUP: record.group, CLOUD: record.cloud}
        parent = current_span() or (earlier.span if earlier is not None else None)
        self._end(record.name)
        while len(self._spans) >= _MOST:
            self._end(next(iter(self._spans)))
        span = parent.child(name, about) if parent is not None else self._tracer.begin(name, about)
        found = self._spans[record.name] = _MachineSpan(span, record.state)
        return found

    def _end(self, name: str) -> None:
        found = self._spans.pop(name, None)
        if found is not None:
            found.span.end()


def _about_error(error: CloudgraftError) -> About:
    return {
        "cloudgraft.error_class": error.error_class.name.lower(),
        "cloudgraft.nothing_done": error.nothing_done,  # False: a list must show whether the call had an effect
    }
