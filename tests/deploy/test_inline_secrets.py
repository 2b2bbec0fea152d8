"""Texts of a configuration that look like secrets, wherever they stand."""

from __future__ import annotations

import pytest

from cloudgraft.deploy.inline_secrets import inline_secrets


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ({"options": {"password": "x"}}, ("options", "password")),
        ({"create": ["/opt/c", "--password", "pw12345"]}, ("create", 2)),
        ({"command": ["./p", "--token=abc123"]}, ("command", 1)),
        ({"url": "https://me:pw@h.example:9/x"}, ("url",)),
        ({"env": {"DSN": "db"}}, ("env", "DSN")),
        ({"env": {"GITHUB_PAT": "ghp"}}, ("env", "GITHUB_PAT")),
        ({"env": {"SSHPASS": "foo"}}, ("env", "SSHPASS")),
        ({"options": {"key": "-----BEGIN PRIVATE KEY-----"}}, ("options", "key")),
        ({"create": ["bash", "-c", "curl -H 'Authorization: Bearer abc' x"]}, ("create", 2)),
        ({"webhook": {"url": "https://hooks.slack.com/services/T0/B0/X"}}, ("webhook", "url")),
    ],
)
def test_a_secret_is_found_once_at_its_place(content: dict[str, object], place: tuple[str | int, ...]) -> None:
    assert inline_secrets({"clouds": content}) == [("clouds", *place)]


def test_what_holds_no_secret_is_left_alone() -> None:
    harmless = {
        "url": "https://h.example:8006/api",
        "tokenFile": "/run/token",
        "create": ["/opt/c", "--token-file", "secrets/api.token", "--verbose"],
        "env": {"PATH": "/bin", "AUTHOR": "me"},
        "text": "a bearer of news",
    }
    assert inline_secrets({"clouds": harmless}) == []
