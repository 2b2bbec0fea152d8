"""Durations are read and written as Go does. The tables come from Go's time.ParseDuration and Duration.String."""

from __future__ import annotations

import contextlib
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudgraft.sdk.duration import format_duration, format_nanoseconds, parse_duration, parse_nanoseconds


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("-0", 0),
        ("5s", 5_000_000_000),
        ("+5s", 5_000_000_000),
        ("1m30s", 90_000_000_000),
        ("-1.5h", -5_400_000_000_000),
        (".5s", 500_000_000),
        ("1.s", 1_000_000_000),
        ("1us1µs1μs", 3_000),  # two letters that look alike
        ("1s1s", 2_000_000_000),
        ("0.3333333333333333333h", 1_200_000_000_000),
        ("0.100000000000000000000h", 360_000_000_000),
        ("9007199254740993ns", 9_007_199_254_740_993),
        ("9223372036854775807ns", (1 << 63) - 1),
        ("-9223372036854775808ns", -(1 << 63)),
        ("2562047h47m16.854775807s", (1 << 63) - 1),
        ("00000000000000000000000001s", 1_000_000_000),
        ("0.9ns", 0),
    ],
)
def test_a_duration_is_read_as_go_reads_it(text: str, nanoseconds: int) -> None:
    assert parse_nanoseconds(text) == nanoseconds


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "-",
            "+",
            ".",
            "s",
            ".s",
            "5",
            "1h1",
            "1 s",
            " 1s",
            "1d",
            "++1s",
            "1..5s",
            "1.5.5s",
            "1e3s",
            "0x1s",
            "٣s",
        ),
        *("9223372036854775808ns", "-9223372036854775809ns", "2562047h47m16.854775808s", "9" * 30 + "s", "5S"),
    ],
)
def test_what_go_refuses_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_nanoseconds(text)


def test_an_error_says_what_to_write() -> None:
    with pytest.raises(ValueError, match=r"missing unit in duration '5': .* such as 5s"):
        parse_nanoseconds("5")
    with pytest.raises(ValueError, match="unknown unit 'd' in duration '5d': the units are"):
        parse_nanoseconds("5d")


def test_a_megabyte_of_digits_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="invalid duration"):
        parse_nanoseconds("9" * 1_000_000 + "s")


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_100, "1.1µs"),
        (2_200_000, "2.2ms"),
        (3_300_000_000, "3.3s"),
        (245_000_000_000, "4m5s"),
        (18_367_000_000_000, "5h6m7s"),
        (3_600_000_000_000, "1h0m0s"),
        (-90_000_000_000, "-1m30s"),
        ((1 << 63) - 1, "2562047h47m16.854775807s"),
        (-(1 << 63), "-2562047h47m16.854775808s"),
    ],
)
def test_a_duration_is_written_as_go_writes_it(nanoseconds: int, text: str) -> None:
    assert format_nanoseconds(nanoseconds) == text


@given(st.integers(min_value=-(1 << 63), max_value=(1 << 63) - 1))
def test_what_was_written_is_read_as_the_same(nanoseconds: int) -> None:
    # Go goes through floating point for fractions; nine digits of a second always survive that.
    assert parse_nanoseconds(format_nanoseconds(nanoseconds)) == nanoseconds


@given(st.timedeltas(min_value=timedelta(days=-100_000), max_value=timedelta(days=100_000)))
def test_a_timedelta_survives_the_round_trip(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


def test_below_a_microsecond_it_is_rounded_but_never_to_zero() -> None:
    assert parse_duration("1ns") == timedelta(microseconds=1)
    assert parse_duration("-1ns") == timedelta(microseconds=-1)
    assert parse_duration("1499ns") == timedelta(microseconds=1)
    assert parse_duration("1500ns") == timedelta(microseconds=2)


@given(st.text())
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        parse_duration(text)
