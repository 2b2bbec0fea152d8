"""Parses, formats and computes resource quantities as Kubernetes does: ``500m``, ``1.5Gi``, ``1e3``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import MAX_EMAX, MIN_EMIN, ROUND_UP, Context, Decimal
from fractions import Fraction
from functools import total_ordering
from typing import NoReturn

from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.flaws import Flaws

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
# Possessive (++): a long run of digits before an error is scanned once, not once per digit.
_GRAMMAR = re.compile(
    r"(?P<number>[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++))"
    r"(?:(?P<binary>[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]++)|(?P<decimal>[numkMGTPE]?))"
)
_LOOKS_LIKE = 'write a number with an optional unit, such as "4", "500m", "1.5Gi", "2G" or "1e3"'

_NANO = Decimal("1E-9")  # the finest precision in Kubernetes
_NANOS = 10**9
_BINARY_CAP = 2**63 - 1  # to which Kubernetes caps "9Ei"
_LARGEST_EXPONENT = 100
_LARGEST = 10**_LARGEST_EXPONENT
_LIMIT = "more than 1e100 is not accepted"
_EXPONENT_LIMIT = 2**31
# Enough digits for the largest quantity in nanos. All rounding is away from zero, so rounding twice changes nothing.
_EXACT = Context(prec=128, rounding=ROUND_UP, Emin=MIN_EMIN, Emax=MAX_EMAX)


class InvalidQuantityError(InvalidArgumentError, ValueError):
    """The text is not a quantity that Kubernetes accepts."""


@total_ordering
class Quantity:
    """An exact amount of cpu, memory, pods or any other resource.

    Takes a text or a whole number, and refuses what Kubernetes refuses. As in Kubernetes, an amount finer than nano is
    rounded away from zero, and an amount with a binary unit is capped at 2^63-1. Two things that Kubernetes accepts are
    refused: a unit or sign without any digit, and more than 1e100 (computing with ``1e999999999`` would exhaust the
    process).

    Equality, order and hash use the value: ``Quantity("1000m") == Quantity("1")``. ``str()`` returns the original text;
    a sum or product uses the unit system of its left operand.
    """

    __slots__ = ("_nanos", "_text")

    _nanos: int
    _text: str

    def __init__(self, amount: str | int) -> None:
        if isinstance(amount, bool) or not isinstance(amount, (str, int)):
            # A float has rounding errors, and True is an int in Python.
            raise InvalidQuantityError(f"a {type(amount).__name__} is not a quantity: {_LOOKS_LIKE}")
        object.__setattr__(self, "_nanos", _parse(amount) if isinstance(amount, str) else _whole(amount))
        object.__setattr__(self, "_text", str(amount))

    @property
    def value(self) -> Fraction:
        """The amount in base units (cores, bytes, pods), exactly."""
        return Fraction(self._nanos, _NANOS)

    @property
    def nanos(self) -> int:
        """The amount in billionths of a base unit, exactly: a whole number, fast to compare and to add up."""
        return self._nanos

    def __float__(self) -> float:
        return self._nanos / _NANOS

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Quantity({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return self._nanos == other._nanos if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: Quantity) -> bool:
        return self._nanos < other._nanos if isinstance(other, Quantity) else NotImplemented

    def __hash__(self) -> int:
        return hash((Quantity, self._nanos))

    def __add__(self, other: Quantity | int) -> Quantity:
        if isinstance(other, bool) or not isinstance(other, (Quantity, int)):
            return NotImplemented
        added = Quantity(other) if isinstance(other, int) else other
        # Zero has no unit: "0" + "1Gi" is "1Gi".
        like = self if self._nanos else added
        return Quantity(_written(self._nanos + added._nanos, like=like._text))

    __radd__ = __add__  # so that sum() works, which starts with the number 0

    def __sub__(self, other: Quantity | int) -> Quantity:
        if isinstance(other, bool) or not isinstance(other, (Quantity, int)):
            return NotImplemented
        return self + other * -1

    def __mul__(self, factor: int) -> Quantity:
        if isinstance(factor, bool) or not isinstance(factor, int):
            return NotImplemented
        return Quantity(_written(self._nanos * factor, like=self._text))

    __rmul__ = __mul__

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Quantity never changes; make a new one")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a Quantity never changes; make a new one")

    def __reduce__(self) -> tuple[type[Quantity], tuple[str]]:
        return Quantity, (self._text,)  # the default would assign the attributes one by one


def _whole(number: int) -> int:
    if abs(number) > _LARGEST:
        raise InvalidQuantityError(f"the quantity is too large: {_LIMIT}")
    return number * _NANOS


def _parse(text: str) -> int:
    """Returns the quantity in nanos. The cost depends on the length of the text only, not on the exponent."""
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        raise InvalidQuantityError(f"{_shown(text)} is not a quantity: {_LOOKS_LIKE}")
    if match["binary"]:
        return _binary(Decimal(match["number"]), _BINARY[match["binary"]])
    exponent = _DECIMAL[match["decimal"]] if match["exponent"] is None else _exponent(match["exponent"], text)
    number = Decimal(f"{match['number']}E{exponent}")
    if not number:
        return 0
    if number.adjusted() > _LARGEST_EXPONENT or abs(nanos := _in_nanos(number)) > _LARGEST * _NANOS:
        raise InvalidQuantityError(f"{_shown(text)} is too large: {_LIMIT}")
    return nanos


def _binary(number: Decimal, shift: int) -> int:
    cap = _BINARY_CAP * _NANOS
    if not number:
        return 0
    if number.adjusted() >= len(str(_BINARY_CAP)):
        return cap if number > 0 else -cap
    nanos = _in_nanos(_EXACT.multiply(number, Decimal(1 << shift)))
    return max(-cap, min(cap, nanos))


def _in_nanos(number: Decimal) -> int:
    return int(number.quantize(_NANO, context=_EXACT).scaleb(9, context=_EXACT))


def _exponent(text: str, quantity: str) -> int:
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) > len(str(_EXPONENT_LIMIT)) or int(digits or "0") >= _EXPONENT_LIMIT:
        raise InvalidQuantityError(f"{_shown(quantity)} is not a quantity: its exponent is out of range")
    return -int(digits or "0") if text.startswith("-") else int(digits or "0")


def _written(nanos: int, *, like: str) -> str:
    """Returns the shortest exact text, in the unit system of the text ``like``."""
    whole, rest = divmod(abs(nanos), _NANOS)
    sign = "-" if nanos < 0 else ""
    if like.endswith("i") and not rest and 1024 <= whole <= _BINARY_CAP:
        number, unit = _largest_unit(whole, {unit: 1 << shift for unit, shift in _BINARY.items()})
        return f"{sign}{number}{unit}"
    number, unit = _largest_unit(abs(nanos), {unit: 10 ** (power + 9) for unit, power in _DECIMAL.items()})
    if re.search("[eE][+-]?[0-9]", like):
        unit = f"e{_DECIMAL[unit]}" if unit else ""
    return f"{sign}{number}{unit}"


def _largest_unit(amount: int, units: dict[str, int]) -> tuple[int, str]:
    """Returns the amount in the largest unit that divides it, or the amount itself when none does."""
    fitting = [(size, unit) for unit, size in units.items() if amount and amount % size == 0]
    if not fitting:
        return amount, ""
    size, unit = max(fitting)
    return amount // size, unit


def _shown(text: str) -> str:
    """Quotes the text for an error message: escaped, and not longer than a line."""
    return repr(text) if len(text) <= 64 else f"{text[:64]!r}… ({len(text)} characters)"


# -- Amounts in options and settings -----------------------------------------------------------------------------------


def amount(value: str | int) -> Quantity:
    """Parses a quantity; raises InvalidArgumentError when the value is not one, or is negative."""
    quantity = Quantity(value)
    if quantity < Quantity(0):
        raise InvalidArgumentError("must not be negative")
    return quantity


def check_amounts(flaws: Flaws, key: str, values: Mapping[str, str] | Mapping[str, str | int]) -> None:
    """Records each value under a key that is not a valid amount."""
    for name, value in values.items():
        with flaws.at((key, name)):
            amount(value)
