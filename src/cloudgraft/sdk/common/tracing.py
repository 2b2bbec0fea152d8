"""The seam for traces: the spans of one order, from the autoscaler's call to the cloud's answer.

Nothing is traced until an application passes a :class:`Tracer`. :mod:`cloudgraft.tracing` has the only one, and only it
imports OpenTelemetry. The current span travels as a context variable, into tasks and into the threads of blocking
drivers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from enum import Enum
from typing import Final, Protocol

from cloudgraft.sdk.errors import CloudgraftError

Value = str | int | float | bool
About = Mapping[str, Value]

TRACEPARENT: Final = "traceparent"  # the name of W3C's header

# Attributes of our own. The reference of configuration and the page on watching name them.
CLOUD: Final = "cloudgraft.cloud"
GROUP: Final = "cloudgraft.group"
MACHINE: Final = "cloudgraft.machine"


class Kind(Enum):
    """The role of a span between programs."""

    INTERNAL = "internal"
    SERVER = "server"
    CLIENT = "client"


class Span(Protocol):
    """One timed step of a trace. No method raises, blocks, or does I/O."""

    @property
    def is_sampled(self) -> bool:
        """Whether it is recorded."""

    @property
    def trace_id(self) -> str:
        """The id of its trace, in hexadecimal digits."""

    @property
    def span_id(self) -> str:
        """Its own id, in hexadecimal digits."""

    @property
    def traceparent(self) -> str:
        """The W3C header with which another program continues the trace."""

    def child(self, name: str, about: About, kind: Kind = Kind.INTERNAL) -> Span:
        """Begins a step of this one, which may have ended already."""

    def describe(self, about: About) -> None:
        """Adds attributes."""

    def event(self, name: str, about: About) -> None:
        """Adds something that happened at this moment."""

    def fail(self, kind: str, message: str = "") -> None:
        """Marks it as failed; ``kind`` is a class of errors."""

    def end(self) -> None:
        """Ends it. Later calls of any method but :meth:`child` do nothing."""


class Tracer(Protocol):
    """Begins traces. No method raises, blocks, or does I/O."""

    def begin(
        self, name: str, about: About, kind: Kind = Kind.INTERNAL, *, traceparent: str = "", is_read: bool = False
    ) -> Span:
        """Begins a trace, or continues the one of a W3C ``traceparent`` header if it is valid.

        ``is_read``: it only reads, as most calls do; another share of these is sampled.
        """


_current: ContextVar[Span | None] = ContextVar("cloudgraft_span", default=None)
_NOTHING: Final = nullcontext(None)


def current_span() -> Span | None:
    """Returns the span that this code runs in; None when nothing is traced."""
    return _current.get()


def carried() -> tuple[tuple[str, str], ...]:
    """Returns the headers with which a call to another program continues the trace; none where nothing is traced."""
    span = _current.get()
    return () if span is None else ((TRACEPARENT, span.traceparent),)


def leave_span() -> None:
    """Makes this task run in no span: a task that lives on must not belong to the call that started it."""
    _current.set(None)


@contextmanager
def inside(span: Span | None) -> Iterator[None]:
    """Runs the block in a span, without ending it."""
    token = _current.set(span)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def active(span: Span) -> Iterator[Span]:
    """Runs the block in a span, and ends it with the block, as failed if the block raises."""
    token = _current.set(span)
    try:
        yield span
    except CloudgraftError as error:
        span.fail(error.slug, error.message)
        raise
    except BaseException as error:
        span.fail(type(error).__name__)  # its text may hold anything, even a password
        raise
    finally:
        _current.reset(token)
        span.end()


def step(name: str, about: About) -> AbstractContextManager[Span | None]:
    """Runs the block as a step of the current span; does nothing where there is none."""
    span = _current.get()
    return _NOTHING if span is None or not span.is_sampled else active(span.child(name, about))


def describe(about: About) -> None:
    """Adds attributes to the current span, where there is one."""
    span = _current.get()
    if span is not None:
        span.describe(about)
