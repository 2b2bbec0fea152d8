"""The word that was probably meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudgraft.sdk.common.nearest import nearest

KNOWN = ["listen", "maxSize", "nodeGroups"]
words = st.text(max_size=30)


@pytest.mark.parametrize(("wrong", "meant"), [("lsiten", "listen"), ("nodeGroup", "nodeGroups"), ("zzz", None)])
def test_a_slip_has_its_word_and_nonsense_has_none(wrong: str, meant: str | None) -> None:
    assert nearest(wrong, KNOWN) == meant


def test_words_are_compared_as_they_are_folded_and_given_back_as_they_are_known() -> None:
    assert nearest("MAXSIZE", KNOWN) is None
    assert nearest("MAXSIZE", KNOWN, fold=str.lower) == "maxSize"


def test_a_higher_cutoff_wants_more() -> None:
    assert nearest("listing", KNOWN, cutoff=0.6) == "listen"
    assert nearest("listing", KNOWN, cutoff=0.8) is None


@given(words, st.lists(words, max_size=8))
def test_it_is_one_of_the_known_words_and_a_known_word_is_nearest_to_itself(wrong: str, known: list[str]) -> None:
    assert nearest(wrong, known) in {*known, None}
    assert all(nearest(word, known) == word for word in known)


def test_of_a_long_text_only_its_beginning_counts() -> None:
    assert nearest("a" * 100 + "b" * 100_000, ["a" * 100, "b" * 100]) == "a" * 100


def test_where_nothing_is_known_nothing_is_near() -> None:
    assert nearest("listen", []) is None
