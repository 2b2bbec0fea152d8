"""Values as text: whatever they hold, YAML reads them back as they are, and so does the pod."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cloudgraft.deploy.text import commented, dumped
from cloudgraft.validation.document import read_yaml

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    [
        "no",
        "1.10",
        "0755",
        "2026-11-19",
        "=",
        "~",
        "a: b",
        "# a",
        "a\nb\n",
        "  a\nb",
        "a \n b",
        "{{ x }}",
        "- a",
        "\u2028",
    ]
)
SCALAR = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
CONTENT = st.dictionaries(
    TEXT,
    st.recursive(
        SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=6
    ),
    max_size=4,
)
# Keys of the chart's values are names.
SETTINGS = st.dictionaries(
    st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,20}", fullmatch=True), SCALAR | st.lists(SCALAR, max_size=2), max_size=4
)


@pytest.mark.parametrize("text", ["1e3", "1234e56", "08", "0o17", "1.5e10", "y", "Off", "0x1F", ".5", "~", ""])
def test_text_that_helm_takes_for_something_else_is_quoted(text: str) -> None:
    assert commented({"a": text, "b": [{"c": text}]}, {}, []) == f'a: "{text}"\nb:\n  - {{c: "{text}"}}\n'


@given(content=CONTENT)
def test_content_comes_back_as_it_is(content: dict[str, Any]) -> None:
    assert yaml.safe_load(dumped(content)) == content


@given(content=CONTENT)
def test_the_loader_of_configurations_reads_the_same(content: dict[str, Any]) -> None:
    document = read_yaml(dumped(content), "pod")
    assert document.problems == []
    assert document.root.value == content


@given(content=CONTENT, settings=SETTINGS, reason=TEXT)
def test_reasons_change_no_value(content: dict[str, Any], settings: dict[str, Any], reason: str) -> None:
    values = {"server": {"config": dumped(content), "mounts": [settings], "settings": settings}}
    paths = [("server",), ("server", "config"), ("server", "mounts", 0), ("server", "settings")]
    assert yaml.safe_load(commented(values, dict.fromkeys(paths, reason), [reason])) == values
