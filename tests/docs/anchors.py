"""Finds the link targets of a Markdown page."""

from __future__ import annotations

import re

from tests.docs.terminal import FENCE


def anchors(page: str) -> set[str]:
    """The headings as GitHub writes them in links, and the ids of `<a id="...">`."""
    text = FENCE.sub("", page)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    named = re.findall(r'<a id="([^"]+)">', text)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings} | {*named}
