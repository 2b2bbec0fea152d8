"""Defines the faults of the simulated cloud and how often they occur, to and from JSON.

All keys are optional and in camelCase; times are seconds. A fault is given as its odds: a number is a probability,
``{"next": 3}`` means the next three times, ``{"after": 2, "next": 1}`` the third time only. A time is a number, or
``[shortest, longest]``. The dice are seeded, so the same calls in the same order meet the same faults::

    {"create": {"lost": {"next": 1}, "rateLimits": 0.1}, "latency": [0.05, 0.2], "stock": {"gpu": 0}}
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic.alias_generators import to_camel

from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.simcloud.fields import Fields, count, is_number, number, shown, text

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Odds:
    """When a fault strikes: after ``after`` times, the ``next`` times for certain, and then by ``chance``."""

    chance: float = 0.0
    next: int = 0
    after: int = 0

    def __post_init__(self) -> None:
        """Refuses what is no probability."""
        number(self.chance, "chance", most=1)


@dataclass(frozen=True, slots=True)
class Span:
    """A time in seconds, drawn again each time: from ``low`` to ``high``."""

    low: float = 0.0
    high: float | None = None  # None: exactly ``low``

    def __post_init__(self) -> None:
        """Refuses a span that ends before it begins."""
        number(self.low, "a time")
        if self.high is not None and number(self.high, "a time") < self.low:
            raise InvalidArgumentError(f"a time from {self.low:g} to {self.high:g} seconds ends before it begins")


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What may happen to one kind of call. The first that strikes is the only one."""

    rate_limits: Odds = Odds()  # 429, nothing was done
    unavailable: Odds = Odds()  # 503, nothing was done
    errors: Odds = Odds()  # 500, and nothing was done; the caller cannot know
    errors_after: Odds = Odds()  # 500, although it was done
    dropped: Odds = Odds()  # no answer, and nothing was done
    lost: Odds = Odds()  # no answer, although it was done
    late: Odds = Odds()  # no answer, and it is done only after ``Chaos.late_by``
    latency: Span | None = None  # instead of ``Chaos.latency``


@dataclass(frozen=True, slots=True, kw_only=True)
class Chaos:
    """Everything that is set by ``PUT /chaos``. The default is a cloud in which nothing goes wrong."""

    seed: int = 0
    latency: Span = Span()  # before a call is carried out
    hang: float | bool = False  # no call is carried out: for so many seconds from now, or until chaos is set again
    create: Faults = Faults()
    delete: Faults = Faults()
    list: Faults = Faults()  # each page is a call
    retry_after: float = 1.0  # what a rate limit asks for
    lost_after: float = 0.0  # a connection without an answer is closed after so many seconds
    late_by: float = 1.0
    boot_time: Span | None = None  # None here and below: as the cloud's own options say
    delete_time: Span | None = None
    list_lag: Span | None = None  # a list shows the cloud as it was so long ago
    half_pages: Odds = Odds()  # a page comes with half of its machines, which its count betrays, or without a cursor
    short_lists: Odds = Odds()  # a page silently leaves out every other machine
    empty_lists: Odds = Odds()  # a page silently leaves out all machines
    quota: int | None = None
    stock: Mapping[str, int] = field(default_factory=dict)  # shape -> machines there may be at a time
    never_boots: Odds = Odds()
    dies: Odds = Odds()
    dies_after: Span = Span()  # seconds after it was created
    ignores_delete: Odds = Odds()  # the call is accepted, and nothing happens
    loses_tags: Odds = Odds()
    loses_tags_after: Span = Span()  # seconds after it was created

    @classmethod
    def from_json(cls, data: object) -> Chaos:
        """Reads what ``PUT /chaos`` sends; raises InvalidArgumentError that names the key."""
        return _read(cls, data, "chaos")

    def to_json(self) -> dict[str, object]:
        """What :meth:`from_json` reads; only what is not the default."""
        return _written(self)


# -- reading -----------------------------------------------------------------------------------------------------------


def _read(kind: type[T], data: object, where: str) -> T:
    fields = Fields(data, where)
    values = {}
    for name, hint in typing.get_type_hints(kind).items():
        value = fields.take(to_camel(name))
        if value is not None:
            values[name] = _BY_TYPE[hint](value, fields.path(to_camel(name)))
    fields.end()
    return kind(**values)


def _odds(value: object, where: str) -> Odds:
    return Odds(chance=number(value, where, most=1)) if is_number(value) else _read(Odds, value, where)


def _span(value: object, where: str) -> Span:
    if not isinstance(value, list):
        return Span(number(value, where))
    if len(value) != 2:
        raise InvalidArgumentError(f"{where} must be a number of seconds, or [shortest, longest]")
    return Span(number(value[0], where), number(value[1], where))


def _faults(value: object, where: str) -> Faults:
    return _read(Faults, value, where)


def _hang(value: object, where: str) -> float | bool:
    return value if isinstance(value, bool) else number(value, f"{where} (a number of seconds, or true)")


def _stock(value: object, where: str) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(f"{where} must be a mapping of shapes to numbers, not {shown(value)}")
    return {text(shape, f"a key of {where}"): count(left, f"{where}.{shape}") for shape, left in value.items()}


_BY_TYPE: dict[Any, Callable[[object, str], object]] = {
    int: count,
    int | None: count,
    float: number,
    float | bool: _hang,
    Odds: _odds,
    Span: _span,
    Span | None: _span,
    Faults: _faults,
    Mapping[str, int]: _stock,
}


# -- writing -----------------------------------------------------------------------------------------------------------


def _written(value: Any) -> dict[str, object]:
    default = type(value)()
    found: dict[str, object] = {}
    for spec in dataclasses.fields(value):
        own = getattr(value, spec.name)
        if own != getattr(default, spec.name):
            found[to_camel(spec.name)] = _plain(own)
    return found


def _plain(value: object) -> object:
    match value:
        case Span(low=low, high=None):
            return low
        case Span(low=low, high=high):
            return [low, high]
        case Odds(chance=chance, next=0, after=0):
            return chance
        case Odds() | Faults():
            return _written(value)
        case Mapping():
            return dict(value)
    return value
