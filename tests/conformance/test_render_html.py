"""The report as a web page."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from cloudgraft.conformance.render.html import to_html
from cloudgraft.conformance.rules import RULES
from tests.conformance.sample_report import of_every_kind, report, result

VOID = {"meta", "br"}


class Page(HTMLParser):
    """Reads a page strictly: every element that is opened is closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.text += data


def test_the_page_is_well_formed_and_loads_nothing() -> None:
    page = to_html(of_every_kind())
    read = Page(page)
    assert set(read.tags).isdisjoint({"script", "link", "img", "iframe", "object", "base", "form"})
    assert {name for name, _ in read.attributes} <= {
        "lang",
        "charset",
        "name",
        "content",
        "http-equiv",
        "class",
        "open",
    }
    assert re.search(r"url\(|@import|https?:", page) is None
    assert "default-src 'none'" in page


def test_what_the_server_said_is_escaped() -> None:
    page = to_html(of_every_kind())
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "\x1b" not in page
    page.encode()  # nothing in it that cannot be written to a file


def test_names_are_escaped_too() -> None:
    page = to_html(report(result("a<b>", rules=("R1",), message='"<i>"'), left_behind=("<u>",)))
    assert set(Page(page).tags).isdisjoint({"b", "i", "u"})


def test_the_page_has_verdict_failures_reasons_and_all_checks() -> None:
    text = Page(to_html(of_every_kind())).text
    expected = [
        "The server does not pass",
        "the target was 2 and is 2",
        RULES["R27"].why,
        RULES["R27"].fix,
        "R25: " + RULES["R25"].title,
        "NOT_FOUND",
        "the restart command ended with 3",
        "the server declares prices absent",
        "target_grows failed",
        "sim://g/1",
        "reads_answer",
        RULES["R14"].unobservable,
    ]
    assert [part for part in expected if part not in text] == []


def test_the_page_is_readable_in_dark_and_light() -> None:
    """Every colour comes from a variable, and every variable has a value for both."""
    page = to_html(report())
    light, _, rest = page.partition("@media (prefers-color-scheme: dark)")
    dark = rest.partition("} }")[0]
    names = set(re.findall(r"var\((--\w+)\)", page))
    assert names
    assert {name for name in names if f"{name}:" not in light or f"{name}:" not in dark} == set()
    assert set(re.findall(r"[^-]color: (?!var)([^;]+);", page)) == set()


def test_a_clean_report_has_no_empty_sections() -> None:
    text = Page(to_html(report(result("a")))).text
    assert "Failures" not in text
    assert "Skipped" not in text
    assert "Left behind" not in text
