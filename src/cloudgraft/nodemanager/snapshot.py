"""All that a front answers the autoscaler with, as values, and as the JSON in which they travel. Pure.

A picture is complete, or only tells what changed since an earlier one. What it tells of a machine replaces what was
known of it before, so that a picture may be taken in twice, and one that tells too much does no harm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, Final

from pydantic.alias_generators import to_camel

from cloudgraft.engine.groups.prices import ReferencePrice
from cloudgraft.engine.groups.spec_json import OPTIONS, TEMPLATE
from cloudgraft.engine.groups.specs import Money
from cloudgraft.json_codec import (
    FLAG,
    MONEY,
    TEXT,
    WHOLE,
    Codec,
    Form,
    Key,
    entries,
    items,
    maybe,
    parsed,
    record,
)
from cloudgraft.sdk.types import (
    AutoscalingOptions,
    Instance,
    InstanceError,
    InstanceState,
    NodeGroup,
    NodeTemplate,
)


@dataclass(frozen=True, slots=True)
class Revision:
    """Which state of which manager: numbers of one manager grow, those of different managers do not compare."""

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
    """A machine: its name, all ids under which the autoscaler may ask for it, and what is listed of it.

    Of one that is gone nothing is listed; its ids still lead to its group (R24).
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
    is_complete: bool = True  # else only machines that changed are told of


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything; ``groups`` without those that have not changed."""

    revision: Revision
    group_ids: Sequence[str]  # all groups, in their order
    groups: Sequence[GroupSnapshot]
    reference: ReferencePrice | None = None
    gpu_label: str = ""
    gpu_types: Sequence[str] = field(default=())


# -- forms -------------------------------------------------------------------------------------------------------------

_WHAT: Final = "the node manager's picture"
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


def _group(*, id: str, min_size: int, max_size: int, debug: str, **rest: Any) -> GroupSnapshot:  # noqa: A002 - likewise
    return GroupSnapshot(group=NodeGroup(id=id, min_size=min_size, max_size=max_size, debug=debug), **rest)


def _snapshot(*, gpu: Mapping[str, Any], **rest: Any) -> Snapshot:
    return Snapshot(groups=(), gpu_label=gpu["label"], gpu_types=gpu["types"], **rest)


_NAMES: Final = {state: state.name.lower() for state in InstanceState}
_ERROR: Final = record(InstanceError, spelling=to_camel, code=TEXT, message=TEXT, error_class=WHOLE)
_KNOWN: Final = Codec(
    record(
        _known,
        spelling=to_camel,
        name=TEXT,
        id=TEXT,
        placeholder=Key(TEXT, may_miss=True),
        state=parsed(_named, _NAMES.__getitem__),
        error=Key(maybe(_ERROR), may_miss=True),
        provider_id=Key(TEXT, "formerId", may_miss=True),
        is_gone=Key(FLAG, may_miss=True),
        is_forgotten=Key(FLAG, may_miss=True),
    )
)
_OPTIONS: Final = record(AutoscalingOptions, OPTIONS, spelling=to_camel)
_PRICE: Final = record(Money, amount=Key(MONEY, "hourly"), currency=TEXT)
_GROUP: Final = Codec(
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
        options=Key(maybe(_OPTIONS), may_miss=True),
        price=Key(maybe(_PRICE), may_miss=True),
        is_complete=FLAG,
    )
)
_RATE: Final[Form[Fraction]] = Form(MONEY.then(Fraction), _decimal)
_REFERENCE: Final = record(ReferencePrice, core=_RATE, gib=_RATE, gpus=entries(_RATE))
_GPU: Final[Form[dict[str, Any]]] = record(
    dict, label=Key(TEXT, of="gpu_label"), types=Key(items(TEXT), of="gpu_types")
)
_SNAPSHOT: Final = Codec(
    record(
        _snapshot,
        spelling=to_camel,
        revision=parsed(_revision),
        group_ids=items(TEXT),
        reference=Key(maybe(_REFERENCE), "podPrices", may_miss=True),
        gpu=Key(_GPU, of=lambda picture: picture),
    )
)


# -- writing -----------------------------------------------------------------------------------------------------------


def known_json(known: Known) -> dict[str, object]:
    """A machine. What is as it mostly is, is left out: there are thousands of them."""
    told: dict[str, object] = {"name": known.name, "id": known.id, "state": _NAMES[known.state]}
    if known.placeholder != known.id:
        told["placeholder"] = known.placeholder
    if known.provider_id:
        told["formerId"] = known.provider_id
    if known.error is not None:
        told["error"] = _ERROR.write(known.error)
    if known.is_gone:
        told["isGone"] = True
    if known.is_forgotten:
        told["isForgotten"] = True
    return told


def group_json(picture: GroupSnapshot) -> dict[str, object]:
    """A group without its machines, which are written some at a time."""
    return _GROUP.write(picture)


def general_json(picture: Snapshot) -> dict[str, object]:
    """What a picture tells beside its groups."""
    return _SNAPSHOT.write(picture)


def options_json(options: AutoscalingOptions) -> dict[str, object]:
    """What a group overrides, and nothing else."""
    written: dict[str, object] = _OPTIONS.write(options)
    return written


# -- reading -----------------------------------------------------------------------------------------------------------


def known_from_json(data: object) -> Known:
    """The machine that was written."""
    return _KNOWN.read(data, f"a machine of {_WHAT}")


def group_from_json(data: object, machines: Sequence[Known]) -> GroupSnapshot:
    """The group that was written; its machines were read before, some at a time."""
    return replace(_GROUP.read(data, _WHAT), machines=machines)


def snapshot_from_json(data: object, groups: Sequence[GroupSnapshot]) -> Snapshot:
    """The picture that was written, with the groups that were read before."""
    return replace(_SNAPSHOT.read(data, _WHAT), groups=groups)
