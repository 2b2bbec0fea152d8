"""Label selectors mean what they mean to Kubernetes."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudgraft.discovery.search.selector import Selector
from cloudgraft.sdk.errors import InvalidArgumentError

_LABELS = {"country": "italy", "example.org/tier": "a", "cores": "8", "empty": ""}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "country",
        "country=italy",
        "country == italy",
        " country = italy , cores=8",
        "country!=france",
        "missing!=france",
        "country in (italy,france)",
        "country notin (spain, france)",
        "missing notin (x)",
        "!missing",
        "! missing, country",
        "example.org/tier in (a)",
        "empty=",
        "empty=,country",
        "empty in (,x)",
        "cores>4,cores<16",
    ],
)
def test_a_selector_matches_what_kubernetes_would_match(text: str) -> None:
    assert Selector.parse(text).matches(_LABELS)


@pytest.mark.parametrize(
    "text",
    [
        "country=france",
        "missing",
        "!country",
        "country!=italy",
        "country in (spain)",
        "country notin (italy)",
        "missing=",
        "missing in (a)",
        "cores>8",
        "country>1",
        "missing<1",
        "country,missing",
    ],
)
def test_a_selector_does_not_match_what_kubernetes_would_not_match(text: str) -> None:
    assert not Selector.parse(text).matches(_LABELS)


@pytest.mark.parametrize(
    "text",
    [
        "=",
        "a=b=c",
        "a b",
        "a,,b",
        ",a",
        "a,",
        "a in",
        "a in ()",
        "a in (b",
        "a in b",
        "a>b",
        "!",
        "!!a",
        "a=b c",
        "-a=b",
        "a=-b",
        "a" * 64,
        f"a={'b' * 64}",
        "a/b/c",
        "a=b)",
        "(a)",
        "a=ü",
        "a\0=b",
    ],
)
def test_what_is_no_selector_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"is no label selector.*write it like"):
        Selector.parse(text)


@given(st.text(alphabet="ab=!,()<> in\t/.-0", max_size=40))
def test_any_text_is_understood_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidArgumentError):
        Selector.parse(text).matches(_LABELS)
