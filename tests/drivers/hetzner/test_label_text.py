"""Any text becomes a label and comes back unchanged, or is refused; nothing is cut."""

from __future__ import annotations

import random
import re

import pytest

from cloudgraft.drivers.common.label_text import GOOGLE, HETZNER, LabelText
from cloudgraft.sdk.errors import InvalidArgumentError

TAKEN = {
    HETZNER: re.compile(r"|[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9._-]{0,61}[A-Za-z0-9]"),
    GOOGLE: re.compile(r"[a-z0-9_-]{0,63}"),
}


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("", ""),
        ("lab-small", "lab-small"),
        ("a.B_c", "a.B_c"),
        ("lab/small", "x--lab_2fsmall"),
        ("-a-", "x---a_2d"),
        ("x--a", "x--x--a"),
        ("b--a", "x--b--a"),
        ("über", "x--_c3_bcber"),
        ("中" * 10, "b--4s4k3zfy"),
    ],
)
def test_a_label_is_readable_where_it_can_be(text: str, label: str) -> None:
    assert HETZNER.encode(text, "it").startswith(label)
    assert HETZNER.decode(HETZNER.encode(text, "it")) == text


def test_capitals_are_kept_where_a_cloud_has_none() -> None:
    assert GOOGLE.encode("Lab.1", "it") == "x--_4cab_2e1"
    assert GOOGLE.decode("x--_4cab_2e1") == "Lab.1"


@pytest.mark.parametrize("form", [HETZNER, GOOGLE])
def test_whatever_is_taken_comes_back_and_is_a_label(form: LabelText) -> None:
    chance = random.Random(7)
    labels: dict[str, str] = {}
    for _ in range(1000):
        alphabet = chance.choice(["ab-_.", "aB/ü中 \n\0", "xb-_2f", "\U0001f600a"])
        text = "".join(chance.choice(alphabet) for _ in range(chance.randrange(70)))
        try:
            label = form.encode(text, "it")
        except InvalidArgumentError:
            continue
        assert TAKEN[form].fullmatch(label), (text, label)
        assert form.decode(label) == text
        assert labels.setdefault(label, text) == text  # no two texts share one
    assert len(labels) > 400


@pytest.mark.parametrize("label", ["x--_zz", "x--plain", "b--!", "b--a", "x--_ff", "b--ab2f6", "x--_61"])
def test_what_was_not_made_here_comes_back_as_it_is(label: str) -> None:
    assert HETZNER.decode(label) == label


def test_what_does_not_fit_is_refused_and_named() -> None:
    with pytest.raises(InvalidArgumentError, match="the group's id is too long"):
        HETZNER.encode("a" * 64, "the group's id")
    with pytest.raises(InvalidArgumentError, match="no proper text"):
        HETZNER.encode("\ud800", "it")
