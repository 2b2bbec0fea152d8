"""Amounts of money: text in the file, because a number in YAML would be a float."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, Field, PlainValidator, StrictStr
from pydantic_core import PydanticCustomError

from cloudgraft.config.fields import Kind, refuse
from cloudgraft.config.section import Section

__all__ = ["MoneyPerDay", "Price"]

_AMOUNT = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")


def _money(value: Any) -> Decimal:
    if isinstance(value, Decimal):
        return value
    if not isinstance(value, str):
        raise PydanticCustomError("string_type", "must be a string")
    if not _AMOUNT.fullmatch(value):
        raise refuse("must be an amount of money", 'for example "0.05"')
    amount = Decimal(value)
    if not amount:
        raise refuse("must be more than zero", "leave it out for none")
    return amount


def _currency(value: str) -> str:
    if not re.fullmatch("[A-Z]{3}", value):
        raise refuse("must be the three capital letters of a currency", "for example EUR")
    return value


_Money = Annotated[Decimal, PlainValidator(_money), Kind("amount of money")]
_Currency = Annotated[StrictStr, AfterValidator(_currency), Kind("currency")]


class Price(Section):
    """What one machine of the group costs. All prices and limits of the file are in one currency."""

    hourly: _Money = Field(description="Per hour, in quotes.", examples=['"0.05"'])
    currency: _Currency = Field(description="Its three letters.", examples=["EUR"])


class MoneyPerDay(Section):
    """An amount of money."""

    amount: _Money = Field(description="In 24 hours, in quotes.", examples=['"40"'])
    currency: _Currency = Field(description="Its three letters.", examples=["EUR"])
