"""Quantities mean here what they mean to Kubernetes, and what it refuses is refused."""

from __future__ import annotations

import copy
import math
import pickle
import re
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.quantity import InvalidQuantityError, Quantity

repeatable = settings(
    derandomize=True, max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)

UNITS = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{unit: Fraction(1000**power) for power, unit in enumerate("kMGTPE", start=1)},
    **{unit: Fraction(1024**power) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}
MAX_INT64 = 2**63 - 1


# -- what is taken -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("0Ki", 0),
        ("-0", 0),
        ("4", 4),
        ("+4", 4),
        ("-4", -4),
        ("007", 7),
        ("500m", Fraction(1, 2)),
        ("1.5Gi", 3 * 2**29),
        ("1.", 1),
        ("1.G", 10**9),
        (".5", Fraction(1, 2)),
        ("-.5k", -500),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("1E-3", Fraction(1, 1000)),
        ("1.3E+6", 1_300_000),
        ("0.5e0", Fraction(1, 2)),
        ("12E", 12 * 10**18),
        ("1000E", 10**21),
        ("100.035Ki", Fraction(10243584, 100)),
        ("0.025Ti", Fraction(2748779069440, 100)),
        ("18446744073709551616", 2**64),
    ],
)
def test_a_quantity_is_worth_what_kubernetes_says(text: str, value: Fraction | int) -> None:
    assert Quantity(text).value == value


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("3.001n", 4),
        ("1.1E-9", 2),
        ("0.0000000001", 1),
        ("0.5e-9", 1),
        ("0.00000012345", 124),
        ("0.000000000001Ki", 2),
        ("-0.1n", -1),
        ("1e-999999999", 1),
    ],
)
def test_what_is_finer_than_nano_is_rounded_away_from_zero(text: str, nanos: int) -> None:
    assert Quantity(text).value == Fraction(nanos, 10**9)


@pytest.mark.parametrize("text", ["9Ei", "8Ei", "9223372036854775807Ki", f"{'9' * 5000}Mi", "7.9999999999999999999Ei"])
def test_a_binary_quantity_ends_at_the_largest_int64(text: str) -> None:
    assert Quantity(text).value == MAX_INT64
    assert Quantity(f"-{text}").value == -MAX_INT64
    assert str(Quantity(text)) == text


def test_a_whole_number_is_a_quantity() -> None:
    assert Quantity(110) == Quantity("110")
    assert str(Quantity(110)) == "110"
    assert Quantity(-3).value == -3


def _expected(sign: str, number: str, factor: Fraction, *, binary: bool) -> Fraction:
    exact = Fraction(number.strip(".") if "." not in number.strip(".") else number) * factor
    nanos = Fraction(math.ceil(exact * 10**9), 10**9)
    return (min(nanos, Fraction(MAX_INT64)) if binary else nanos) * (-1 if sign == "-" else 1)


digits = st.text("0123456789", min_size=1, max_size=25)
numbers = st.one_of(
    digits,
    digits.map(lambda whole: f"{whole}."),
    digits.map(lambda fraction: f"0.{fraction}"),
    st.tuples(digits, digits).map(".".join),
)
signs = st.sampled_from(["", "+", "-"])


@repeatable
@given(sign=signs, number=numbers, unit=st.sampled_from(sorted(UNITS)))
def test_every_number_with_a_unit_is_exact_to_the_nano(sign: str, number: str, unit: str) -> None:
    quantity = Quantity(f"{sign}{number}{unit}")
    assert quantity.value == _expected(sign, number, UNITS[unit], binary=unit.endswith("i"))


@repeatable
@given(sign=signs, number=numbers, letter=st.sampled_from("eE"), exponent=st.integers(-40, 40))
def test_every_number_with_an_exponent_is_exact_to_the_nano(sign: str, number: str, letter: str, exponent: int) -> None:
    quantity = Quantity(f"{sign}{number}{letter}{exponent}")
    assert quantity.value == _expected(sign, number, Fraction(10) ** exponent, binary=False)


# -- what is refused -----------------------------------------------------------------------------------------------

BAD = [
    *("", " ", " 1", "1 ", "1\n", "\t1", "1 Gi"),
    *("1ki", "1KI", "1K", "1gi", "1mi", "1i", ".5i", "-3.01i", "0.1mi", "0.1am", "1B", "1GB", "1Gib", "1Zi", "1mm"),
    *("1.1.M", "1..5", "1,5", "1_000", "0x10", "1+1.0M", "--1", "+-1", "1-", "1+"),
    *("1e", "1e+", "-3.01e-", "1ee3", "1e3k", "1e3.5", "1eE3", "e", "1e99999999999999999999"),
    *("aoeu", "NaN", "inf", "Infinity", "None", "²", "\u0661", "1\u200b", "½", "1\x00", "\ud800"),
]
WITHOUT_DIGITS = ["-", "+", ".", "-.", "Ki", "m", "e3", "E", "+k"]  # zero to Kubernetes; a slip of the pen to anybody


@pytest.mark.parametrize("text", BAD + WITHOUT_DIGITS)
def test_a_bad_quantity_is_refused_with_its_text_and_a_good_example(text: str) -> None:
    with pytest.raises(InvalidQuantityError) as caught:
        Quantity(text)
    assert repr(text) in str(caught.value)
    assert "1.5Gi" in str(caught.value) or "exponent" in str(caught.value)
    assert isinstance(caught.value, InvalidArgumentError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("amount", [0.5, True, None, b"1", Fraction(1, 2), Quantity("1")])
def test_only_text_and_whole_numbers_are_quantities(amount: object) -> None:
    with pytest.raises(InvalidQuantityError, match=f"a {type(amount).__name__} is not a quantity"):
        Quantity(amount)  # type: ignore[arg-type]  # what a caller without a type checker may do


def _kubernetes_takes(text: str) -> bool:
    """The scanner of resource.ParseQuantity, retold: one pass, then a look at what is left as the suffix."""
    rest = text[1:] if text[:1] in ("+", "-") else text
    rest = rest.lstrip("0123456789")
    if rest.startswith("."):
        rest = rest[1:].lstrip("0123456789")
    unit = rest.lstrip("eEinumkKMGTP")
    tail = unit[1:] if unit[:1] in ("+", "-") else unit
    if not text or tail.lstrip("0123456789"):
        return False
    exponent = re.fullmatch(r"[eE]([+-]?[0-9]+)", rest)
    return rest in UNITS or (exponent is not None and -(2**63) <= int(exponent[1]) < 2**63)


@repeatable
@given(text=st.text("0123456789.+-eEinumkKMGTPaB_ ", max_size=8))
def test_what_looks_like_a_quantity_is_taken_exactly_when_kubernetes_takes_it(text: str) -> None:
    has_digits = re.match(r"[+-]?\.?[0-9]", text) is not None
    exponent = re.search(r"[eE]([+-]?[0-9]+)$", text)
    huge = exponent is not None and int(exponent[1]) > 80  # ours to refuse, see below
    try:
        Quantity(text)
    except InvalidQuantityError:
        assert not _kubernetes_takes(text) or not has_digits or huge
    else:
        assert _kubernetes_takes(text)


@repeatable
@given(text=st.text(max_size=20))
def test_any_text_is_either_a_quantity_or_refused(text: str) -> None:
    try:
        quantity = Quantity(text)
    except InvalidQuantityError:
        return
    assert str(quantity) == text
    assert _kubernetes_takes(text)


@pytest.mark.parametrize("text", ["1e101", "1.1e100", "1e999999999", "-1e2147483647", "9" * 101, "9" * 100_000])
def test_more_than_anybody_can_have_is_refused_without_computing_it(text: str) -> None:
    """The number 10^999999999 has 400 MB; a pod's author could otherwise take the server down with 11 characters."""
    with pytest.raises(InvalidQuantityError, match="too large"):
        Quantity(text)
    assert Quantity("1e100").value == 10**100


def test_a_whole_number_that_is_too_large_is_refused() -> None:
    with pytest.raises(InvalidQuantityError, match="too large"):
        Quantity(10**100 + 1)


@pytest.mark.parametrize("exponent", ["2147483648", "-2147483648", "4294967299", "9" * 5000])
def test_an_exponent_beyond_32_bits_is_refused(exponent: str) -> None:
    """Kubernetes cuts it to 32 bits: 1e4294967299 would be a thousand there."""
    with pytest.raises(InvalidQuantityError, match="exponent is out of range"):
        Quantity(f"1e{exponent}")


def test_long_texts_cost_no_more_than_their_length() -> None:
    assert Quantity(f"0.{'0' * 200_000}1").value == Fraction(1, 10**9)
    assert Quantity(f"{'0' * 200_000}1").value == 1
    assert Quantity(f"1e{'0' * 200_000}3").value == 1000
    assert Quantity("0e2147483647").value == 0


def test_a_long_bad_text_does_not_fill_the_error_message() -> None:
    with pytest.raises(InvalidQuantityError, match=r"\(100001 characters\)") as caught:
        Quantity("1" * 100_000 + "x")
    assert len(str(caught.value)) < 300


# -- values --------------------------------------------------------------------------------------------------------


def test_equality_order_and_hash_go_by_value_and_not_by_text() -> None:
    assert Quantity("1000m") == Quantity("1") == Quantity("1e0") == Quantity(1)
    assert len({Quantity("1000m"), Quantity("1"), Quantity("1024"), Quantity("1Ki")}) == 2
    assert Quantity("1G") < Quantity("1Gi") <= Quantity("1Gi") < Quantity("2Gi")
    assert max(Quantity("100m"), Quantity("0.2"), Quantity("50m")) == Quantity("200m")
    assert Quantity("1") != "1"
    assert Quantity("1") != 1


def test_the_text_is_kept_as_it_was_written() -> None:
    assert str(Quantity("1024Mi")) == "1024Mi"
    assert repr(Quantity("1.50")) == "Quantity('1.50')"


def test_a_quantity_does_not_change() -> None:
    quantity = Quantity("1")
    with pytest.raises(AttributeError, match="never changes"):
        quantity._nanos = 5
    with pytest.raises(AttributeError, match="never changes"):
        del quantity._text


@pytest.mark.parametrize("text", ["1", "1.5Gi", "9Ei", "1e3", "-7m"])
def test_copies_and_pickles_are_equal_in_value_and_text(text: str) -> None:
    quantity = Quantity(text)
    for twin in (copy.copy(quantity), copy.deepcopy(quantity), pickle.loads(pickle.dumps(quantity))):
        assert twin == quantity
        assert str(twin) == text


def test_a_quantity_as_a_float_is_the_nearest_one() -> None:
    assert float(Quantity("100m")) == 0.1
    assert float(Quantity("1.5Gi")) == 1.5 * 2**30


@pytest.mark.parametrize(
    ("one", "other", "text"),
    [
        ("1", "500m", "1500m"),
        ("1Gi", "512Mi", "1536Mi"),
        ("1Gi", "1Gi", "2Gi"),
        ("0", "1Gi", "1Gi"),
        ("1Gi", "0", "1Gi"),
        ("1Gi", "-1Gi", "0"),
        ("1e3", "1k", "2e3"),
        ("1e0", "1m", "1001e-3"),
        ("1Ki", "-1", "1023"),
        ("1Ki", "1m", "1024001m"),
        ("1Gi", "1", "1073741825"),
        ("999n", "1n", "1u"),
        ("999E", "1E", "1000E"),
        ("9Ei", "9Ei", str(2 * MAX_INT64)),
    ],
)
def test_a_sum_is_written_in_the_unit_system_of_its_left_side(one: str, other: str, text: str) -> None:
    total = Quantity(one) + Quantity(other)
    assert str(total) == text
    assert total.value == Quantity(one).value + Quantity(other).value


def test_quantities_add_up_with_sum_and_multiply_by_whole_numbers() -> None:
    assert sum([Quantity("100m"), Quantity("900m")]) == Quantity(1)
    assert Quantity("1") + 1 == Quantity(2)
    assert Quantity("2Gi") - Quantity("512Mi") == Quantity("1.5Gi")
    assert Quantity("2") - 3 == Quantity(-1)
    assert str(Quantity("1.5Gi") * 2) == "3Gi"
    assert 3 * Quantity("100m") == Quantity("300m")
    assert Quantity("1Gi") * 0 == Quantity(0)


@pytest.mark.parametrize("other", [0.5, "1", True, None])
def test_nothing_else_can_be_added(other: object) -> None:
    with pytest.raises(TypeError):
        Quantity("1") + other  # type: ignore[operator]
    with pytest.raises(TypeError):
        Quantity("1") - other  # type: ignore[operator]
    with pytest.raises(TypeError):
        Quantity("1") * other  # type: ignore[operator]
    with pytest.raises(TypeError):
        assert Quantity("1") < other  # type: ignore[operator]


quantities = st.tuples(signs, numbers, st.sampled_from(sorted(UNITS))).map(lambda parts: Quantity("".join(parts)))


@repeatable
@given(one=quantities, other=quantities, factor=st.integers(-1000, 1000))
def test_sums_and_products_are_exact_and_their_text_means_the_same(one: Quantity, other: Quantity, factor: int) -> None:
    for result, value in (
        (one + other, one.value + other.value),
        (one - other, one.value - other.value),
        (one * factor, one.value * factor),
    ):
        assert result.value == value
        assert Quantity(str(result)).value == value
    assert one + other == other + one
    assert (one < other) == (one.value < other.value)
