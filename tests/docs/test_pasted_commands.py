"""A block of commands works when it is pasted at once: the shell does not wait for a server in the background.

:mod:`tests.docs.terminal` does wait, as a reader does who types. So only the text of a page shows this mistake.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.terminal import ROOT, Command, steps
from tests.docs.test_docs_run import PAGES

CALL = re.compile(r"\bcloudgraft call (?!--list)")


def too_early(page: str) -> Iterator[str]:
    """The first call after each server that is started in the background, if it does not wait for the server."""
    is_starting = False
    for step in steps(page):
        if not isinstance(step, Command):
            continue
        if step.text.endswith("&"):
            is_starting = True
        elif is_starting and CALL.search(step.text):
            is_starting = False
            if " --wait" not in step.text and not step.text.startswith("until "):
                yield step.text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_call_waits_for_a_server_that_was_just_started(page: Path) -> None:
    assert list(too_early(page.read_text())) == [], "say `cloudgraft call --wait …`"


@pytest.mark.parametrize(
    ("commands", "found"),
    [
        (["cloudgraft serve &", "cloudgraft call NodeGroups"], ["cloudgraft call NodeGroups"]),
        (["cloudgraft serve &", "cloudgraft call --wait NodeGroups", "cloudgraft call Refresh"], []),
        (["cloudgraft serve &", "cloudgraft call NodeGroups \\\n    --wait --address unix:/s"], []),
        (["python acme.py &", "cloudgraft serve &", "cat x", "cloudgraft call Refresh"], ["cloudgraft call Refresh"]),
        (
            ["cloudgraft serve &", "cloudgraft call --wait Refresh", "cloudgraft serve &", "cloudgraft call Cleanup"],
            ["cloudgraft call Cleanup"],
        ),
        (["cloudgraft serve &", "until cloudgraft call Refresh; do sleep 1; done", "cloudgraft call Cleanup"], []),
        (["cloudgraft serve &", "cloudgraft call --list"], []),
        (["cloudgraft call NodeGroups"], []),
    ],
)
def test_calls_that_come_too_early_are_found(commands: list[str], found: list[str]) -> None:
    block = "".join(f"$ {command}\n" for command in commands)
    assert list(too_early(f"```console\n{block}```\n")) == found
