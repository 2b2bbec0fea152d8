"""grpc_timeout is read and shown to the last nanosecond as Go's time.ParseDuration and Duration.String do."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudgraft.sdk.duration import format_duration, format_nanoseconds, parse_duration, parse_nanoseconds

_SECOND = 10**9
_MINUTE = 60 * _SECOND
_HOUR = 60 * _MINUTE
_INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("-0", 0),
        ("5s", 5 * _SECOND),
        ("+5s", 5 * _SECOND),
        ("-5s", -5 * _SECOND),
        (".5s", _SECOND // 2),
        ("1.s", _SECOND),
        ("1h2m3.5s", _HOUR + 2 * _MINUTE + 3 * _SECOND + _SECOND // 2),
        ("100ms", 100_000_000),
        ("1us", 1000),
        ("1\u00b5s", 1000),  # the micro sign
        ("1\u03bcs", 1000),  # the Greek letter
        ("3m30s", 3 * _MINUTE + 30 * _SECOND),
        ("30s3m", 3 * _MINUTE + 30 * _SECOND),
        ("0.100000000000000000000h", 6 * _MINUTE),
        ("0.3333333333333333333h", 20 * _MINUTE),  # rounded in floating point, as Go does
        ("0.830103483285477580700h", 49 * _MINUTE + 48 * _SECOND + 372_539_827),
        ("9007199254.740993ms", (1 << 53) + 1),
        ("9223372036854775807ns", (1 << 63) - 1),
        ("-9223372036854775808ns", -(1 << 63)),
        ("9223372036s854ms775us807ns", (1 << 63) - 1),
    ],
)
def test_a_text_that_go_takes_gives_the_same_nanoseconds(text: str, nanoseconds: int) -> None:
    assert parse_nanoseconds(text) == nanoseconds


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "-",
            "+",
            "s",
            ".",
            "-.",
            ".s",
            "+.s",
            "3",
            "1e3s",
            "1d",
            "5 s",
            " 5s",
            "5s ",
            "\u0663s",
            "1.2.3s",
            "--5s",
        ),
        *("9223372036854775808ns", "9223372036854775.808us", "3000000h", "9" * 1_000_000 + "s"),
    ],
    ids=lambda text: text[:30],
)
def test_a_text_that_go_refuses_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"5s|units are") as refused:
        parse_nanoseconds(text)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1100, "1.1µs"),
        (2_200_000, "2.2ms"),
        (3_300_000_000, "3.3s"),
        (4 * _MINUTE + 5 * _SECOND, "4m5s"),
        (5 * _HOUR + 7_001_000_000, "5h0m7.001s"),
        (8 * _MINUTE + 1, "8m0.000000001s"),
        (-(1 << 63), "-2562047h47m16.854775808s"),
    ],
)
def test_a_duration_is_written_as_go_writes_it(nanoseconds: int, text: str) -> None:
    assert format_nanoseconds(nanoseconds) == text


@given(_INT64)
def test_what_is_written_is_read_back_exactly(nanoseconds: int) -> None:
    assert parse_nanoseconds(format_nanoseconds(nanoseconds)) == nanoseconds


@given(st.timedeltas(timedelta(days=-100_000), timedelta(days=100_000)))
def test_a_timedelta_survives_the_way_through_its_text(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@given(st.text(st.sampled_from("0123456789.+-hmsnuµ ")))
def test_any_text_is_either_a_duration_of_64_bits_or_a_value_error(text: str) -> None:
    try:
        nanoseconds = parse_nanoseconds(text)
    except ValueError:
        return
    assert -(1 << 63) <= nanoseconds < 1 << 63
