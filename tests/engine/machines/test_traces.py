"""The spans of machines on their way: when they begin and end, and whose part they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from cloudgraft.engine.machines import traces
from cloudgraft.engine.machines.traces import MachineTraces
from cloudgraft.engine.new_records import about
from cloudgraft.sdk.common.tracing import About, Kind, Span, Tracer, active, current_span, inside
from cloudgraft.sdk.errors import DeadlineError
from cloudgraft.store.records import ErrorRecord, State
from tests.engine.makers import NOW, a_record


@dataclass
class Noted(Span):
    """A span that keeps what is said to it."""

    tracer: Noter
    name: str
    parent: Noted | None = None
    about: dict[str, Any] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    error: str = ""
    has_ended: bool = False
    is_sampled: bool = True
    trace_id: str = "t"
    span_id: str = "s"
    traceparent: str = ""

    def child(self, name: str, about: About, kind: Kind = Kind.INTERNAL) -> Noted:
        return self.tracer.made(Noted(self.tracer, name, self, dict(about)))

    def describe(self, about: About) -> None:
        self.about.update(about)

    def event(self, name: str, about: About) -> None:
        if not self.has_ended:
            self.events.append(name)

    def fail(self, kind: str, message: str = "") -> None:
        self.error = self.error or kind

    def end(self) -> None:
        self.has_ended = True


class Noter(Tracer):
    """A tracer that keeps its spans."""

    def __init__(self) -> None:
        self.spans: list[Noted] = []
        self.reads: list[str] = []

    def begin(
        self, name: str, about: About, kind: Kind = Kind.INTERNAL, *, traceparent: str = "", is_read: bool = False
    ) -> Noted:
        self.reads += [name] * is_read
        return self.made(Noted(self, name, None, dict(about)))

    def made(self, span: Noted) -> Noted:
        self.spans.append(span)
        return span

    def open(self) -> list[str]:
        return [span.name for span in self.spans if not span.has_ended]


@pytest.fixture
def noter() -> Noter:
    return Noter()


@pytest.fixture
def followed(noter: Noter) -> MachineTraces:
    return MachineTraces(noter)


def test_a_machine_is_a_part_of_its_order_until_it_is_ready(noter: Noter, followed: MachineTraces) -> None:
    with active(noter.begin("order", {})) as order:
        followed.on_machine(a_record(state=State.REQUESTED))
    assert noter.open() == ["machine create"]
    for state in (State.CREATING, State.CREATING, State.BOOTING, State.RUNNING):
        followed.on_machine(a_record(state=state))
    followed.tell(about(a_record(), NOW, "again", kind="retry"))
    followed.tell(about(a_record(), NOW, "as the states say"))
    followed.ready(a_record(state=State.RUNNING))
    followed.ready(a_record(state=State.RUNNING))
    _, machine = noter.spans
    assert machine.parent is order
    assert machine.events == ["requested", "creating", "booting", "running", "retry", "ready"]
    assert noter.open() == []


def test_what_a_failed_machine_leaves_is_deleted_in_the_same_trace(noter: Noter, followed: MachineTraces) -> None:
    followed.on_machine(a_record(state=State.REQUESTED))
    error = ErrorRecord(code="out_of_stock", message="none left", error_class=1)
    followed.on_machine(a_record(state=State.FAILED, error=error))
    assert noter.open() == []
    with followed.within(a_record().name), followed.calling("delete", "c", a_record().name):
        pass
    followed.on_machine(a_record(state=State.DELETING))
    followed.on_machine(a_record(state=State.GONE))
    create, call, delete = noter.spans
    assert (create.error, call.parent, delete.parent) == ("out_of_stock", create, create)
    assert noter.open() == []


def test_an_order_that_is_refused_at_once_has_a_failed_span(noter: Noter, followed: MachineTraces) -> None:
    refused = a_record(state=State.FAILED, error=ErrorRecord(code="guard", message="enough", error_class=1))
    followed.on_machine(refused)  # of no order: found so, for example
    assert noter.spans == []
    with active(noter.begin("order", {})):
        followed.on_machine(refused)
    assert [(span.name, span.error) for span in noter.spans] == [("order", ""), ("machine create", "guard")]


def test_a_deletion_belongs_to_who_ordered_it_and_not_to_the_creation(noter: Noter, followed: MachineTraces) -> None:
    with active(noter.begin("increase", {})):
        followed.on_machine(a_record(state=State.REQUESTED))
    with active(noter.begin("delete", {})) as order:
        followed.on_machine(a_record(state=State.DELETING))
    assert noter.spans[-1].parent is order
    assert noter.open() == ["machine delete"]
    followed.on_machine(a_record(state=State.GONE))
    assert noter.open() == []


def test_a_call_for_a_machine_without_a_span_is_a_trace_of_its_own(noter: Noter, followed: MachineTraces) -> None:
    with pytest.raises(DeadlineError), followed.within("unknown"), followed.calling("create", "c", "unknown"):
        raise DeadlineError("it did not answer")
    with followed.calling("list", "c", ""):
        assert current_span() is noter.spans[-1]
    create, listed = noter.spans
    assert (create.parent, listed.parent, noter.reads) == (None, None, ["cloud list"])
    assert create.about["cloudgraft.machine"] == "unknown"
    assert (create.error, create.about["cloudgraft.nothing_done"]) == ("deadline", False)
    assert noter.open() == []


def test_spans_end_with_the_process_and_beyond_their_number(
    noter: Noter, followed: MachineTraces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "_MOST", 2)
    for name in ("a", "b", "c"):
        followed.on_machine(a_record(name, state=State.REQUESTED))
    assert [span.about["cloudgraft.machine"] for span in noter.spans if span.has_ended] == ["a"]
    followed.stop("another process leads")
    assert noter.open() == []
    assert [span.events[-1] for span in noter.spans] == ["requested", "left", "left"]


def test_log_lines_about_a_machine_are_in_its_span_and_others_stay_where_they_are(
    noter: Noter, followed: MachineTraces
) -> None:
    followed.on_machine(a_record(state=State.REQUESTED))
    outer = noter.begin("order", {})
    with inside(outer):
        with followed.around(about(a_record(), NOW, "x")):
            assert current_span() is noter.spans[0]
        with followed.around(about(a_record("other"), NOW, "x")):
            assert current_span() is outer
