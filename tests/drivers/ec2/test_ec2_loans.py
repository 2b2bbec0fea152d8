"""Temporary credentials are hidden, and expired ones no longer slow down every log line."""

from __future__ import annotations

import itertools

from cloudgraft.drivers.ec2.session import HiddenCredentials
from cloudgraft.sdk.secrecy import redacted


def test_temporary_credentials_are_hidden_until_they_expire() -> None:
    numbers = itertools.count(1)

    def fetch() -> dict[str, str]:
        number = next(numbers)
        return {"access_key": "ASIA", "secret_key": f"loan-secret-{number}", "token": f"loan-token-{number}"}

    borrow = HiddenCredentials(fetch)
    for _ in range(3):
        borrow()
    told = redacted("loan-secret-1 loan-token-1 / loan-secret-2 loan-token-2 / loan-secret-3 loan-token-3")
    assert told == "loan-secret-1 loan-token-1 / [secret] [secret] / [secret] [secret]"
