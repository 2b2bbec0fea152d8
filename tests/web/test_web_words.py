"""The small parts: pages, tags, and who is taken for whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudgraft.sdk.errors import ConflictError, DeadlineError, InternalError, InvalidArgumentError, UnavailableError
from cloudgraft.web.authentication import ClientRule, Gatekeeper
from cloudgraft.web.pagination import cursor_after, etag_of, page, revision_of
from cloudgraft.web.problems import error_of


def test_pages_hold_everything_once_also_when_things_come_and_go_between_them() -> None:
    items = ["a", "b", "c", "d", "e"]
    first, cursor = page(items, limit=2, cursor="", key=str)
    assert list(first) == ["a", "b"]
    items.remove("b")
    items.append("aa")
    second, cursor = page(items, limit=2, cursor=cursor, key=str)
    assert list(second) == ["c", "d"]
    third, cursor = page(items, limit=2, cursor=cursor, key=str)
    assert (list(third), cursor) == (["e"], "")


@pytest.mark.parametrize("cursor", ["%%%", "é", "AAAA=AAAA", "gIA"])
def test_a_cursor_that_is_not_ours_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidArgumentError, match="begin again"):
        page(["a"], limit=1, cursor=cursor, key=str)


def test_a_cursor_may_stand_for_any_key() -> None:
    assert page(["ü/1", "ü/2"], limit=5, cursor=cursor_after("ü/1"), key=str) == (["ü/2"], "")


def test_a_revision_is_read_from_the_tag_that_was_given_for_it() -> None:
    assert revision_of(etag_of(7)) == 7
    assert revision_of("*") is None
    assert revision_of(None) is None
    for wrong in ("7", 'W/"7"', '"x"', '"7", "8"', f'"{"9" * 30}"'):
        with pytest.raises(InvalidArgumentError, match="If-Match"):
            revision_of(wrong)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (503, {"code": "unavailable", "detail": "away"}, UnavailableError),
        (502, None, DeadlineError),  # a proxy lost the answer: what was done is not known
        (503, None, DeadlineError),
        (503, {"code": "no-such-code"}, DeadlineError),
        (500, "<html>", InternalError),
        (412, {"code": "precondition"}, ConflictError),
        (418, {"code": "no-such-code"}, InternalError),
    ],
)
def test_an_answer_of_whatever_is_in_between_becomes_the_error_that_claims_least(
    status: int, body: object, kind: type[Exception]
) -> None:
    assert type(error_of(status, body, is_change=True)) is kind


def test_who_shows_more_is_not_taken_for_who_shows_less(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-that-is-long-enough")
    other = tmp_path / "other"
    other.write_text("another-one-that-is-long-enough")
    gatekeeper = Gatekeeper(
        [
            ClientRule(name="by-certificate", role="read-only", certificate="a.example"),
            ClientRule(name="by-both", role="operator", certificate="a.example", token_file=token),
            ClientRule(name="by-token", role="front", token_file=other),
        ],
        secure=True,
    )

    def name_of(names: list[str], token: bytes) -> str:
        caller = gatekeeper.identify(names, token)
        return caller.name if caller is not None else "-"

    assert name_of(["a.example"], b"") == "by-certificate"
    assert name_of(["a.example"], b"a-token-that-is-long-enough") == "by-both"
    assert name_of(["b.example"], b"a-token-that-is-long-enough") == "-"
    assert name_of([], b"another-one-that-is-long-enough") == "by-token"
    assert name_of([], b"a-guess") == "-"


def test_a_token_that_two_clients_share_is_the_one_whose_certificate_is_shown(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-that-is-long-enough")
    rules = [ClientRule(name=name, role="agent", certificate=name, token_file=token) for name in ("a", "b")]
    gatekeeper = Gatekeeper(rules, secure=True)
    caller = gatekeeper.identify(["b"], b"a-token-that-is-long-enough")
    assert caller is not None
    assert caller.name == "b"
