"""Validates labels, taints and quantities by Kubernetes' rules, so that templates promise only possible nodes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator, StrictStr

from cloudgraft.config.fields import Kind, refuse
from cloudgraft.config.section import Section
from cloudgraft.sdk.quantity import InvalidQuantityError, Quantity
from cloudgraft.sdk.types import Taint

ZONE_LABEL = "topology.kubernetes.io/zone"

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_DOMAIN = 253
_PERCENTAGE = re.compile(r"[0-9]{1,3}(\.[0-9]{1,9})?%")
_WORD = "letters, digits, '-', '_' and '.', at most 63, beginning and ending with a letter or digit"


def _key(what: str, example: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        domain, slash, name = value.rpartition("/")
        if slash and not (len(domain) <= _LONGEST_DOMAIN and _DOMAIN.fullmatch(domain)):
            raise refuse(f"what is before the slash of {what} must be a domain in lower case", f"for example {example}")
        if not _NAME.fullmatch(name):
            raise refuse(f"{what} must be {_WORD}; a domain and a slash may stand before it", f"for example {example}")
        return value

    return check


def _label_value(value: str) -> str:
    if value and not _NAME.fullmatch(value):
        raise refuse(f"a label's value must be empty, or {_WORD}")
    return value


LabelKey = Annotated[StrictStr, AfterValidator(_key("a label's key", "example.com/pool")), Kind("string")]
LabelValue = Annotated[StrictStr, AfterValidator(_label_value), Kind("string")]
Labels = Annotated[Mapping[LabelKey, LabelValue], Kind("mapping of strings")]

_AnnotationKey = Annotated[StrictStr, AfterValidator(_key("an annotation's key", "example.com/note"))]
Annotations = Annotated[Mapping[_AnnotationKey, StrictStr], Kind("mapping of strings")]


class TaintEntry(Section):
    """A permanent taint of every node of the group, not one that is removed when the node is ready."""

    key: LabelKey = Field(description="Its key.", examples=["dedicated"])
    value: LabelValue = Field("", description="Its value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        description="What happens to pods that do not tolerate it.", examples=["NoSchedule"]
    )

    def as_taint(self) -> Taint:
        """Converts it to the sdk's type."""
        return Taint(key=self.key, value=self.value, effect=self.effect)


def _different(value: tuple[TaintEntry, ...]) -> tuple[TaintEntry, ...]:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(value):
        if (taint.key, taint.effect) in seen:
            raise refuse(f"a node has only one taint {taint.key} with {taint.effect}", "remove one", at=(index, "key"))
        seen.add((taint.key, taint.effect))
    return value


Taints = Annotated[tuple[TaintEntry, ...], AfterValidator(_different), Kind("list of mappings")]


# -- amounts -----------------------------------------------------------------------------------------------------------


def _amount(value: Any) -> Quantity:
    """A quantity as in Kubernetes' own files: text, or a plain number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if isinstance(value, Quantity):
        return value
    if not is_number and not isinstance(value, str):
        raise refuse("must be a quantity", "for example 4, 500m or 16Gi")
    try:
        amount = Quantity(str(value))
    except InvalidQuantityError as error:
        message, _, suggestion = error.message.partition(": ")
        raise refuse(message, suggestion) from None
    if amount < Quantity(0):
        raise refuse("must not be negative", "for example 4, 500m or 16Gi")
    return amount


def _whole(value: Mapping[str, Quantity]) -> Mapping[str, Quantity]:
    """Refuses fractions of pods and devices."""
    for name, amount in value.items():
        if (name == "pods" or "/" in name) and amount.value.denominator != 1:
            raise refuse("must be a whole number", at=(name,))
    return value


_Amount = Annotated[Quantity, PlainValidator(_amount)]
_ResourceName = Annotated[StrictStr, AfterValidator(_key("a resource's name", "nvidia.com/gpu"))]
Amounts = Annotated[Mapping[_ResourceName, _Amount], AfterValidator(_whole), Kind("mapping of quantities")]


def _threshold(value: Any) -> str:
    """An eviction threshold as the kubelet accepts it; it stays text."""
    if isinstance(value, str) and _PERCENTAGE.fullmatch(value) and float(value[:-1]) <= 100:
        return value
    if isinstance(value, str) and value.endswith("%"):
        raise refuse("must be between 0% and 100%", "for example 10%")
    return str(_amount(value))


Threshold = Annotated[str, PlainValidator(_threshold), Kind("quantity or percentage")]
