"""All that a front answers the autoscaler with, as values, and as the JSON in which they travel. Pure.

A picture is complete, or only tells what changed since an earlier one. What it tells of a machine replaces what was
known of it before, so that a picture may be taken in twice, and one that tells too much does no harm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, Final

from cloudgraft.engine.groups.json_at import At
from cloudgraft.engine.groups.prices import ReferencePrice
from cloudgraft.engine.groups.spec_json import template_from_json, template_to_json
from cloudgraft.engine.groups.specs import Money
from cloudgraft.sdk.duration import format_duration, parse_duration
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.types import (
    AutoscalingOptions,
    Instance,
    InstanceError,
    InstanceState,
    NodeGroup,
    NodeTemplate,
)

__all__ = [
    "GroupSnapshot",
    "Known",
    "Revision",
    "Snapshot",
    "forgotten",
    "general_json",
    "group_from_json",
    "group_json",
    "known_from_json",
    "known_json",
    "options_json",
    "reference_json",
    "snapshot_from_json",
]

_WHAT: Final = "the node manager's picture"
_DIGITS: Final = Context(prec=30)  # of a reference price: more than a double has
_STATES: Final = {state.name.lower(): state for state in InstanceState}
_NAMES: Final = {state: name for name, state in _STATES.items()}
_TIMES: Final = {
    "scaleDownUnneededTime": "scale_down_unneeded_time",
    "scaleDownUnreadyTime": "scale_down_unready_time",
    "maxNodeProvisionTime": "max_node_provision_time",
    "maxNodeStartupTime": "max_node_startup_time",
}
_SHARES: Final = {
    "scaleDownUtilizationThreshold": "scale_down_utilization_threshold",
    "scaleDownGpuUtilizationThreshold": "scale_down_gpu_utilization_threshold",
}
_SWITCHES: Final = {
    "zeroOrMaxNodeScaling": "zero_or_max_node_scaling",
    "ignoreDaemonSetsUtilization": "ignore_daemon_sets_utilization",
    "allowNonAtomicScaleUpToMax": "allow_non_atomic_scale_up_to_max",
}


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


# -- writing -----------------------------------------------------------------------------------------------------------


def known_json(known: Known) -> dict[str, object]:
    """A machine. What is as it mostly is, is left out: there are thousands of them."""
    told: dict[str, object] = {"name": known.name, "id": known.id, "state": _NAMES[known.state]}
    if known.placeholder != known.id:
        told["placeholder"] = known.placeholder
    if known.provider_id:
        told["formerId"] = known.provider_id
    if known.error is not None:
        error = known.error
        told["error"] = {"code": error.code, "message": error.message, "errorClass": int(error.error_class)}
    if known.is_gone:
        told["isGone"] = True
    if known.is_forgotten:
        told["isForgotten"] = True
    return told


def group_json(picture: GroupSnapshot) -> dict[str, object]:
    """A group without its machines, which are written some at a time."""
    group, price = picture.group, picture.price
    return {
        "id": group.id,
        "minSize": group.min_size,
        "maxSize": group.max_size,
        "debug": group.debug,
        "number": picture.number,
        "targetSize": picture.target,
        "template": template_to_json(picture.template),
        "options": options_json(picture.options) if picture.options is not None else None,
        "price": {"hourly": str(price.amount), "currency": price.currency} if price is not None else None,
        "isComplete": picture.is_complete,
    }


def general_json(picture: Snapshot) -> dict[str, object]:
    """What a picture tells beside its groups."""
    return {
        "revision": str(picture.revision),
        "groupIds": list(picture.group_ids),
        "podPrices": reference_json(picture.reference) if picture.reference is not None else None,
        "gpu": {"label": picture.gpu_label, "types": list(picture.gpu_types)},
    }


def options_json(options: AutoscalingOptions) -> dict[str, object]:
    """What a group overrides, and nothing else."""
    said = {key: getattr(options, name) for key, name in (_SHARES | _TIMES | _SWITCHES).items()}
    return {
        key: format_duration(value) if isinstance(value, timedelta) else value
        for key, value in said.items()
        if value is not None
    }


def reference_json(reference: ReferencePrice) -> dict[str, object]:
    """What an hour of a core, of a gibibyte and of a GPU of each kind costs, as decimals."""
    return {
        "core": _decimal(reference.core),
        "gib": _decimal(reference.gib),
        "gpus": {name: _decimal(price) for name, price in reference.gpus.items()},
    }


def _decimal(amount: Fraction) -> str:
    return str(_DIGITS.divide(Decimal(amount.numerator), Decimal(amount.denominator)))


# -- reading -----------------------------------------------------------------------------------------------------------


def known_from_json(data: object) -> Known:
    """The machine that was written."""
    try:
        return _known(data)
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidArgumentError(f"{_WHAT} has a machine that cannot be read: {error}") from error


def _known(data: Any) -> Known:
    id_, error = data["id"], data.get("error")
    known = Known(
        name=data["name"],
        id=id_,
        placeholder=data.get("placeholder", id_),
        state=_STATES[data["state"]],
        error=None
        if error is None
        else InstanceError(code=error["code"], message=error["message"], error_class=error["errorClass"]),
        provider_id=data.get("formerId", ""),
        is_gone=data.get("isGone", False),
        is_forgotten=data.get("isForgotten", False),
    )
    if not all(isinstance(text, str) for text in (known.name, known.id, known.placeholder, known.provider_id)):
        raise TypeError("its name and its ids must be text")
    return known


def group_from_json(data: object, machines: Sequence[Known]) -> GroupSnapshot:
    """The group that was written; its machines were read before, some at a time."""
    at = At(data, _WHAT)
    options, price = at.optional("options"), at.optional("price")
    return GroupSnapshot(
        group=NodeGroup(
            id=at.text("id"),
            min_size=at.value("minSize", int),
            max_size=at.value("maxSize", int),
            debug=at.text("debug"),
        ),
        number=at.value("number", int),
        target=at.value("targetSize", int),
        template=template_from_json(at.inner("template")),
        options=_options_from(options) if options is not None else None,
        price=Money(amount=price.parsed("hourly", _amount), currency=price.text("currency")) if price else None,
        machines=machines,
        is_complete=at.value("isComplete", bool),
    )


def snapshot_from_json(data: object, groups: Sequence[GroupSnapshot]) -> Snapshot:
    """The picture that was written, with the groups that were read before."""
    at = At(data, _WHAT)
    revision = Revision.parse(at.text("revision"))
    if revision is None:
        raise InvalidArgumentError(f"{_WHAT} has a revision that cannot be read")
    prices, gpu, ids = at.optional("podPrices"), at.inner("gpu"), at.value("groupIds", list)
    types = gpu.value("types", list)
    if not all(isinstance(text, str) for text in [*ids, *types]):
        raise InvalidArgumentError(f"{_WHAT} cannot be read: an id of a group, or a type of a GPU, is not text")
    return Snapshot(
        revision=revision,
        group_ids=ids,
        groups=groups,
        reference=_reference_from(prices) if prices is not None else None,
        gpu_label=gpu.text("label"),
        gpu_types=types,
    )


def _options_from(at: At) -> AutoscalingOptions:
    said: dict[str, Any] = {name: at.value(key, float) for key, name in _SHARES.items() if key in at.keys}
    said |= {name: at.parsed(key, parse_duration) for key, name in _TIMES.items() if key in at.keys}
    said |= {name: at.value(key, bool) for key, name in _SWITCHES.items() if key in at.keys}
    return AutoscalingOptions(**said)


def _reference_from(at: At) -> ReferencePrice:
    gpus = at.inner("gpus")
    prices: Mapping[str, Fraction] = {name: Fraction(gpus.parsed(name, _amount)) for name in gpus.keys}
    core, gib = at.parsed("core", _amount), at.parsed("gib", _amount)
    return ReferencePrice(core=Fraction(core), gib=Fraction(gib), gpus=prices)


def _amount(text: str) -> Decimal:
    try:
        amount = Decimal(text)
    except ArithmeticError:
        raise ValueError(f"{text[:80]!r} is not an amount of money") from None
    if not amount.is_finite():
        raise ValueError(f"{text[:80]!r} is not an amount of money")
    return amount
