"""Temporary tokens of a cloud."""

from __future__ import annotations

import itertools

from cloudgraft.drivers.libcloud.google import _Token
from cloudgraft.sdk.secrecy import redacted


class Login:
    """Lends tokens that are over at once."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def get_new_token(self) -> dict[str, object]:
        return {"access_token": f"a-google-token-{next(self._numbers)}", "expires_in": 0}


def test_google_token_is_hidden_until_it_expires() -> None:
    token = _Token(Login())
    assert [token.access_token for _ in range(3)][-1] == "a-google-token-3"
    told = redacted("a-google-token-1 / a-google-token-2 / a-google-token-3")
    assert told == "a-google-token-1 / [secret] / [secret]"
