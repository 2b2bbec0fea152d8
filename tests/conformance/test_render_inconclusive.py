"""An inconclusive check: shown with what it needs, neither passed nor failed, and with an exit code of its own."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest

from cloudgraft.conformance.render.for_programs import to_json, to_junit
from cloudgraft.conformance.render.html import to_html
from cloudgraft.conformance.render.table import progress_line
from cloudgraft.conformance.render.words import conclusion
from cloudgraft.conformance.report import Result, Status
from cloudgraft.conformance.rules import Level
from tests.conformance.sample_report import report, result
from tests.conformance.test_render_table import shown

NEED = "needs room for 12 machines; the cloud refused number 6: quota"
UNCLEAR = result("many", Status.INCONCLUSIVE, message=NEED)


def test_what_is_needed_is_in_every_form() -> None:
    given = report(result("a"), UNCLEAR)
    for text in (shown(given), to_json(given), to_html(given), to_junit(given), progress_line(UNCLEAR).plain):
        assert "inconclusive" in text.lower()
        assert NEED in " ".join(text.split())


def test_it_counts_neither_as_passed_nor_as_failed() -> None:
    given = report(result("a"), UNCLEAR)
    assert (given.is_passed, given.is_broken, given.failures) == (False, False, ())
    assert json.loads(to_json(given))["counts"]["inconclusive"] == 1
    case = ET.fromstring(to_junit(given).encode()).find(".//testcase[skipped]")
    assert case is not None
    assert "breaks no rule that could be judged, but 1 check had no clear result" in conclusion(given)


@pytest.mark.parametrize(
    ("others", "code"),
    [
        ((), 0),
        ((UNCLEAR,), 3),
        ((UNCLEAR, result("b", Status.FAILED)), 1),
        ((UNCLEAR, result("b", Status.FAILED, Level.NOTE)), 3),
        ((UNCLEAR, result("b", Status.ERROR)), 1),
    ],
)
def test_the_exit_code_says_what_is_the_matter(others: tuple[Result, ...], code: int) -> None:
    assert report(result("a"), *others).exit_code == code


def test_left_behind_machines_outweigh_it() -> None:
    given = report(UNCLEAR, left_behind=("sim://g/1",))
    assert given.exit_code == 1
    assert "1 check inconclusive, 1 machine left behind" in conclusion(given)
