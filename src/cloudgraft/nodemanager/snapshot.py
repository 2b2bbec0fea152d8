"""Defines what a front answers the autoscaler with, as values and as JSON. Pure.

A snapshot is complete, or has only what changed since an earlier one. An entry of a machine replaces what was known of
it before, so that a snapshot may be applied twice, and one with too many entries does no harm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, Final

from pydantic.alias_generators import to_camel

from cloudgraft.engine.groups.prices import ReferencePrice
from cloudgraft.engine.groups.spec_json import OPTIONS, TEMPLATE
from cloudgraft.engine.groups.specs import Money
from cloudgraft.json_codec import FLAG, MONEY, TEXT, WHOLE, Codec, Form, Key, entries, items, maybe, parsed, record
from cloudgraft.sdk.types import AutoscalingOptions, Instance, InstanceError, InstanceState, NodeGroup, NodeTemplate


@dataclass(frozen=True, slots=True)
class Revision:
    """A state of a manager: numbers of one manager grow, those of different managers do not compare."""

    manager: str
    number: int

    def __str__(self) -> str:
        return f"{self.manager}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> Revision | None:
        """The revision that was written; None for anything else."""
        manager, _, number = text.rpartition(".")
        is_number = number.isascii() and number.isdigit() and len(number) <= 18
        return cls(manager, int(number)) if manager and is_number else None


@dataclass(frozen=True, slots=True)
class Known:
    """A machine: its name, all ids that the autoscaler may use for it, and its entry in the list.

    One that is gone is not listed; its ids still lead to its group (R24).
    """

    name: str
    id: str
    placeholder: str  # an alias for life
    state: InstanceState
    error: InstanceError | None = None
    provider_id: str = ""  # one that it had, and that belongs to another machine by now
    is_gone: bool = False
    is_forgotten: bool = False  # its ids lead nowhere any more

    @property
    def has_provider_id(self) -> bool:
        """Whether a node that has its name and another id is another machine's."""
        return bool(self.provider_id) or self.id != self.placeholder

    def instance(self) -> Instance:
        """As the autoscaler lists it."""
        return Instance(id=self.id, state=self.state, error=self.error)


def forgotten(name: str) -> Known:
    """A machine of which nothing but its name is known any more."""
    return Known(name=name, id="", placeholder="", state=InstanceState.DELETING, is_gone=True, is_forgotten=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """One group."""

    group: NodeGroup
    number: int  # of the revision that it is of
    target: int
    template: NodeTemplate
    options: AutoscalingOptions | None = None
    price: Money | None = None  # of a node, per hour
    machines: Sequence[Known] = ()
    is_complete: bool = True  # False: only machines that changed are included


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything; ``groups`` without those that have not changed."""

    revision: Revision
    group_ids: Sequence[str] = ()  # all groups, in their order
    groups: Sequence[GroupSnapshot] = ()
    reference: ReferencePrice | None = None
    gpu_label: str = ""
    gpu_types: Sequence[str] = field(default=())


# -- JSON --------------------------------------------------------------------------------------------------------------

WHAT: Final = "the node manager's snapshot"  # in messages about what cannot be read
_DIGITS: Final = Context(prec=30)  # of a reference price: more than a double has


def _named(name: str) -> InstanceState:
    state = InstanceState.__members__.get(name.upper())
    if state is None or name != name.lower():
        raise ValueError(f"{name[:80]!r} is no state")
    return state


def _revision(text: str) -> Revision:
    revision = Revision.parse(text)
    if revision is None:
        raise ValueError(f"{text[:80]!r} is no revision")
    return revision


def _decimal(amount: Fraction) -> str:
    return str(_DIGITS.divide(Decimal(amount.numerator), Decimal(amount.denominator)))


def _known(*, id: str, placeholder: str | None = None, **rest: Any) -> Known:  # noqa: A002 - by the name of the field
    return Known(id=id, placeholder=id if placeholder is None else placeholder, **rest)


def _other_placeholder(known: Known) -> str | None:
    return None if known.placeholder == known.id else known.placeholder


def _group(*, id: str, min_size: int, max_size: int, debug: str, **rest: Any) -> GroupSnapshot:  # noqa: A002 - likewise
    return GroupSnapshot(group=NodeGroup(id=id, min_size=min_size, max_size=max_size, debug=debug), **rest)


def _snapshot(*, gpu: Mapping[str, Any], **rest: Any) -> Snapshot:
    return Snapshot(gpu_label=gpu["label"], gpu_types=gpu["types"], **rest)


_NAMES: Final = {state: state.name.lower() for state in InstanceState}
_ERROR: Final = record(InstanceError, spelling=to_camel, code=TEXT, message=TEXT, error_class=WHOLE)
KNOWN: Final = Codec(
    # Omits default values: there are thousands of machines.
    record(
        _known,
        spelling=to_camel,
        name=TEXT,
        id=TEXT,
        state=parsed(_named, _NAMES.__getitem__),
        placeholder=Key(TEXT, of=_other_placeholder, may_miss=True, leaves_out=(None,)),
        provider_id=Key(TEXT, "formerId", may_miss=True, leaves_out=("",)),
        error=Key(maybe(_ERROR), may_miss=True, leaves_out=(None,)),
        is_gone=Key(FLAG, may_miss=True, leaves_out=(False,)),
        is_forgotten=Key(FLAG, may_miss=True, leaves_out=(False,)),
    )
)
OVERRIDES: Final = record(AutoscalingOptions, OPTIONS, spelling=to_camel)
_PRICE: Final = record(Money, amount=Key(MONEY, "hourly"), currency=TEXT)
GROUP: Final = Codec(  # without its machines, which are written and read some at a time
    record(
        _group,
        spelling=to_camel,
        id=Key(TEXT, of="group.id"),
        min_size=Key(WHOLE, of="group.min_size"),
        max_size=Key(WHOLE, of="group.max_size"),
        debug=Key(TEXT, of="group.debug"),
        number=WHOLE,
        target=Key(WHOLE, "targetSize"),
        template=TEMPLATE,
        options=Key(maybe(OVERRIDES), may_miss=True),
        price=Key(maybe(_PRICE), may_miss=True),
        is_complete=FLAG,
    )
)
_RATE: Final[Form[Fraction]] = Form(MONEY.then(Fraction), _decimal)
_REFERENCE: Final = record(ReferencePrice, core=_RATE, gib=_RATE, gpus=entries(_RATE))
_GPU: Final[Form[dict[str, Any]]] = record(
    dict, label=Key(TEXT, of="gpu_label"), types=Key(items(TEXT), of="gpu_types")
)
SNAPSHOT: Final = Codec(  # without its groups
    record(
        _snapshot,
        spelling=to_camel,
        revision=parsed(_revision),
        group_ids=items(TEXT),
        reference=Key(maybe(_REFERENCE), "podPrices", may_miss=True),
        gpu=Key(_GPU, of=lambda snapshot: snapshot),
    )
)
