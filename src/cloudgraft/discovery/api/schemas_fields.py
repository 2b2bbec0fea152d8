"""The words of discovery over HTTP: JSON in camelCase, and what texts in it may look like.

Quantities are Kubernetes' own texts, money is a decimal text and an ISO currency, times are RFC 3339 in UTC.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictStr, StringConstraints, WithJsonSchema
from pydantic.alias_generators import to_camel

from cloudgraft.discovery.model import Resources
from cloudgraft.sdk.quantity import Quantity

__all__ = [
    "CLOSED",
    "MOST_ENTRIES",
    "NAME",
    "Amounts",
    "ClusterId",
    "Currency",
    "Labels",
    "Message",
    "Money",
    "Port",
    "Prices",
    "Text",
    "Timestamp",
    "View",
    "Whole",
    "amounts_in",
    "amounts_out",
    "moment",
    "money_out",
]

_ID: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY: Final = rf"^([a-z0-9]([-a-z0-9]{{0,61}}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{{0,61}}[a-z0-9])?){{0,3}}/)?{NAME}$"
_QUANTITY: Final = r"^[0-9]{1,18}(\.[0-9]{1,9})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"
_LARGEST: Final = 10**18  # that has no more digits than that
_MONEY: Final = r"^[0-9]{1,15}(\.[0-9]{1,15})?$"
MOST_ENTRIES: Final = 64


def _time(value: Any) -> datetime:
    """Only a text with an offset: a number, or a time of nowhere, would be guessed at."""
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str) or "T" not in value.upper():
        raise ValueError("must be a time such as 2026-01-31T12:00:00Z")
    try:
        found = datetime.fromisoformat(value.upper())
        if found.tzinfo is None:
            raise ValueError("must have an offset, such as Z")  # noqa: TRY301 - told as all the others
        return found.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"is not a time: {error}") from error


def _whole(value: Any) -> Any:
    """2.0 is a whole number in JSON; true and "2" are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a whole number")  # noqa: TRY004 - pydantic takes this one
    return value


Whole = Annotated[int, BeforeValidator(_whole)]
Text = Annotated[StrictStr, StringConstraints(max_length=253, pattern=r"^[\x20-\x7e\u00a1-\u02ff]*$")]
ClusterId = Annotated[StrictStr, StringConstraints(pattern=_ID), Field(description="Liqo's cluster id.")]
ResourceName = Annotated[StrictStr, StringConstraints(pattern=_KEY)]
Amount = Annotated[StrictStr, StringConstraints(pattern=_QUANTITY)]
Money = Annotated[StrictStr, StringConstraints(pattern=_MONEY)]
Currency = Annotated[StrictStr, StringConstraints(pattern=r"^[A-Z]{3}$")]
LabelValue = Annotated[StrictStr, StringConstraints(pattern=rf"^({NAME})?$")]
CLOSED: Final = Field(max_length=1000, json_schema_extra={"additionalProperties": False})
# pydantic leaves out that keys of another form are refused.
_FEW: Final = Field(max_length=MOST_ENTRIES, json_schema_extra={"additionalProperties": False})
Amounts = Annotated[dict[ResourceName, Amount], _FEW]
Prices = Annotated[dict[ResourceName, Money], _FEW]
Labels = Annotated[dict[ResourceName, LabelValue], _FEW]
Timestamp = Annotated[datetime, BeforeValidator(_time), WithJsonSchema({"type": "string", "format": "date-time"})]
Port = Annotated[Whole, Field(ge=0, le=65535)]


class Message(BaseModel):
    """A body in camelCase; unknown keys are refused."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class View(Message):
    """An answer: whoever reads one passes over keys that only a newer server has."""

    model_config = ConfigDict(extra="ignore")


def amounts_in(amounts: Mapping[str, str]) -> dict[str, Quantity]:
    """Quantities from their texts."""
    return {name: Quantity(text) for name, text in amounts.items()}


def amounts_out(resources: Resources) -> dict[str, str]:
    """The texts of quantities, in a form that :data:`Amount` takes: no sign, no exponent."""
    return {name: _amount_out(amount) for name, amount in resources.items()}


def _amount_out(amount: Quantity) -> str:
    text = str(amount)
    if re.fullmatch(_QUANTITY, text):
        return text
    whole, billionths = divmod(max(amount.nanos, 0), 10**9)
    if whole >= _LARGEST:
        return f"{whole // 1000}k"
    return f"{whole}.{billionths:09d}" if billionths else str(whole)


def money_out(amount: Decimal) -> str:
    """A decimal text without an exponent."""
    return format(amount.normalize(), "f") if amount else "0"


def moment(value: datetime | None) -> datetime | None:
    """The same time in UTC; one without an offset is taken for UTC."""
    if value is None:
        return None
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
