"""One codec for stored and sent JSON: it reads what it wrote, and tells the place of what cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic.alias_generators import to_camel

from cloudgraft.json_codec import (
    AMOUNTS,
    FLAG,
    NUMBER,
    TAINTS,
    TEXT,
    TEXTS,
    WHOLE,
    Codec,
    Form,
    Key,
    Mistake,
    expecting,
    items,
    maybe,
    parsed,
    record,
)
from cloudgraft.sdk.errors import CloudgraftError, InternalError, InvalidArgumentError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Taint


@dataclass(frozen=True, kw_only=True)
class Box:
    name: str
    max_size: int = 1
    labels: dict[str, str] | None = None
    note: str = "none"


BOX = record(Box, spelling=to_camel, name=TEXT, max_size=WHOLE, labels=maybe(TEXTS), note=Key(TEXT, may_miss=True))
CLOSED = record(Box, is_closed=True, missing_is_null=True, name=TEXT, max_size=Key(maybe(WHOLE), "size"))


def _mistake(codec_of: Any, data: object) -> Mistake:
    seen: list[Mistake] = []

    def explain(what: str, mistake: Mistake) -> CloudgraftError:
        seen.append(mistake)
        return InternalError(what)

    with pytest.raises(InternalError, match="it"):
        Codec(codec_of, explain).read(data, "it")
    return seen[0]


def test_what_is_written_is_read_as_it_was() -> None:
    box = Box(name="a", max_size=3, labels={"x": "y"}, note="")
    written = Codec(BOX).write(box)
    assert written == {"name": "a", "maxSize": 3, "labels": {"x": "y"}, "note": ""}
    assert Codec(BOX).read(written, "it") == box


def test_null_is_the_default_where_it_may_be() -> None:
    assert Codec(BOX).read({"name": "a", "maxSize": 1, "labels": None}, "it") == Box(name="a")
    assert Codec(CLOSED).read({"name": "a", "size": None}, "it") == Box(name="a")
    assert Codec(CLOSED).read({"name": "a"}, "it") == Box(name="a")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"maxSize": 1, "labels": None}, "it cannot be read: name is missing"),
        ({"name": None, "maxSize": 1, "labels": None}, "it cannot be read: name is missing"),
        ({"name": 1, "maxSize": 1, "labels": None}, r"it cannot be read: name is of the wrong kind \(int\)"),
        ({"name": "a", "maxSize": True, "labels": None}, r"maxSize is of the wrong kind \(bool\)"),
        ({"name": "a", "maxSize": "1", "labels": None}, r"maxSize is of the wrong kind \(str\)"),
        ({"name": "a", "maxSize": 1.0, "labels": None}, r"maxSize is of the wrong kind \(float\)"),
        ({"name": "a", "maxSize": 1, "labels": {"x": 1}}, r"labels.x is of the wrong kind \(int\)"),
        ({"name": "a", "maxSize": 1, "labels": None, "note": None}, "note is missing"),
        ([], r"it cannot be read:  is of the wrong kind \(list\)"),
    ],
)
def test_nothing_is_guessed(data: object, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        Codec(BOX).read(data, "it")
    assert caught.value.__cause__ is None  # it would carry the values


def test_a_number_may_be_whole_and_a_flag_may_not() -> None:
    assert repr(Codec(record(dict, a=NUMBER)).read({"a": 1}, "it")) == "{'a': 1.0}"
    with pytest.raises(InvalidArgumentError):
        Codec(record(dict, a=FLAG)).read({"a": 1}, "it")


def test_text_stays_as_it_is_whatever_is_in_it() -> None:
    """Clouds and scripts send half of a surrogate pair; what becomes of it is decided where it is stored."""
    data = {"name": "\ud800", "maxSize": 1, "labels": {"\ud800": "\ud800"}}
    assert Codec(BOX).read(data, "it") == Box(name="\ud800", labels={"\ud800": "\ud800"})


def test_other_keys_are_passed_over_unless_the_form_is_closed() -> None:
    assert Codec(BOX).read({"name": "a", "maxSize": 1, "labels": None, "later": 1}, "it") == Box(name="a")
    mistake = _mistake(record(dict, box=CLOSED), {"box": {"name": "a", "siez": 1, "zz": 2}})
    assert (mistake.place, mistake.unknown_key, mistake.known) == ("box", "siez", ["name", "size"])


def test_a_field_s_own_name_is_no_key_where_the_key_is_another() -> None:
    """Neither beside the key, where it could pass for it, nor in its place."""
    for data in ({"name": "a", "size": 1, "max_size": 7}, {"name": "a", "max_size": 7}):
        assert _mistake(CLOSED, data).unknown_key == "max_size"
    assert Codec(record(Box, name=TEXT, max_size=Key(WHOLE, "size"))).read(
        {"name": "a", "size": 1, "max_size": 7}, "it"
    ) == Box(name="a")


def test_a_mistake_has_its_place_its_value_and_what_was_expected() -> None:
    form: Form[dict[str, Any]] = record(dict, rows=items(record(dict, name=expecting("a text", TEXT))))
    mistake = _mistake(form, {"rows": [{"name": "a"}, {"name": 7}, {"name": 8}]})
    assert (mistake.place, mistake.value, mistake.expected) == ("rows[1].name", 7, "a text")


def test_what_a_parser_says_is_told() -> None:
    with pytest.raises(InvalidArgumentError, match=r"it cannot be read: cpu.x is wrong: 'much' is not a quantity"):
        Codec(record(dict, cpu=AMOUNTS)).read({"cpu": {"x": "much"}}, "it")


def test_an_error_that_is_no_mistake_in_the_text_comes_through() -> None:
    def broken(text: str) -> str:
        raise KeyError(text)

    with pytest.raises(KeyError):
        Codec(record(dict, a=parsed(broken))).read({"a": "x"}, "it")


def test_amounts_are_the_text_that_they_were() -> None:
    form: Form[dict[str, Any]] = record(dict, amounts=AMOUNTS, taints=TAINTS)
    data = {"amounts": {"cpu": "1000m"}, "taints": [{"key": "a", "value": "", "effect": "NoExecute"}]}
    read = Codec(form).read(data, "it")
    assert read == {"amounts": {"cpu": Quantity("1")}, "taints": (Taint(key="a", effect="NoExecute"),)}
    assert AMOUNTS.write(read["amounts"]) == {"cpu": "1000m"}
