"""Documents that somebody else wrote are read within limits."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cloudgraft.documents import MOST_YAML_BYTES, ForeignDocumentError, parse_json, parse_yaml

ALIASES = "a0: &a0 [x, x]\n" + "".join(f"a{one}: &a{one} [{', '.join([f'*a{one - 1}'] * 9)}]\n" for one in range(1, 12))
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{one}: &a{one} {{<<: [{', '.join([f'*a{one - 1}'] * 9)}]}}\n" for one in range(1, 12)
)
PLAIN = "".join(f"key{one}: some value\n" for one in range(40))  # as long as the bombs


@pytest.mark.parametrize("bomb", [ALIASES, MERGES], ids=["aliases", "merges"])
def test_a_bomb_takes_no_longer_than_a_plain_document(bomb: str) -> None:
    """The 674 bytes of nested merge keys took for ever; here a hundred plain documents of that length are the limit."""
    assert len(bomb) < 1000
    began = time.process_time()
    for _ in range(100):
        parse_yaml(PLAIN)
    limit = time.process_time() - began
    began = time.process_time()
    with pytest.raises(ForeignDocumentError, match="anchors or aliases"):
        parse_yaml(bomb)
    assert time.process_time() - began < limit


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x" * (MOST_YAML_BYTES + 1), "more than 65536 bytes"),
        ("é" * (MOST_YAML_BYTES // 2 + 1), "more than 65536 bytes"),
        ("a: &a 1\n", "anchors"),
        ("a: *a\n", "aliases"),
        ("? &a b\n: c\n", "anchors"),
        ("<<: {a: 1}\n", "merge keys"),
        ("a: {<<: {b: 1}}\n", "merge keys"),
        ("a: !!python/object/apply:os.system [ls]\n", "tags"),
        ("a: !!binary aGk=\n", "tags"),
        ("[" * 100, "deeper than 32"),
        ("{a: " * 100, "deeper than 32"),
        ("- " * 100, "deeper than 32"),
        ("".join(f"{' ' * depth}a:\n" for depth in range(100)), "deeper than 32"),
        ("a: 'secret\n", "not valid YAML"),
        ("? [a]\n: b\n", "not valid YAML"),
        ("a: \x00", "not valid YAML"),
        ("%YAML 9.9\n", "not valid YAML"),
        ("a: \ud800", "not valid YAML"),
    ],
)
def test_what_is_beyond_the_limits_is_refused_without_a_quote(text: str, why: str) -> None:
    with pytest.raises(ForeignDocumentError, match=why) as told:
        parse_yaml(text)
    assert "secret" not in told.value.message


def test_numbers_that_take_long_are_texts() -> None:
    assert parse_yaml(f"a: {'9' * 5000}") == {"a": "9" * 5000}
    assert parse_yaml("a: 59:59:59") == {"a": "59:59:59"}
    assert parse_yaml("{a: 5, b: -3, c: 007, d: 1e3}") == {"a": 5, "b": -3, "c": "007", "d": "1e3"}


def test_an_empty_text_is_nothing_and_the_first_document_counts() -> None:
    assert parse_yaml("") is None
    assert parse_yaml("a: ~\n---\nb: 2\n") == {"a": None}


_VALUES: Callable[[st.SearchStrategy[object]], st.SearchStrategy[object]] = lambda inner: st.one_of(  # noqa: E731 - for recursive()
    st.lists(inner, max_size=4), st.dictionaries(st.text("abc-_", min_size=1, max_size=5), inner, max_size=4)
)


@given(st.recursive(st.one_of(st.none(), st.booleans(), st.integers(-(10**17), 10**17), st.text(max_size=20)), _VALUES))
def test_plain_documents_are_read_as_they_were_written(value: object) -> None:
    text = yaml.safe_dump(value, allow_unicode=True)
    assert parse_yaml(text) == yaml.safe_load(text)


def test_json_is_held_to_bytes_and_values() -> None:
    assert parse_json(b'{"a": [1, 2]}', most_bytes=100) == {"a": [1, 2]}
    with pytest.raises(ForeignDocumentError, match="more than 100 bytes"):
        parse_json("[" + " " * 100 + "]", most_bytes=100)
    with pytest.raises(ForeignDocumentError, match="more than 1000 values"):
        parse_json(b"[" + b"{}," * 999 + b"{}]", most_bytes=100_000, most_values=1000)
