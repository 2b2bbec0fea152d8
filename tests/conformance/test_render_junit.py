"""The report as JUnit XML, held against what Jenkins and GitLab read."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from xml.etree import ElementTree as ET

import pytest

from cloudgraft.conformance.render.for_programs import to_junit
from cloudgraft.conformance.report import Report, Status
from cloudgraft.conformance.rules import RULES, Level
from tests.conformance.sample_report import of_every_kind, report, result

# The elements and attributes of the schema of Jenkins' xUnit plugin that are used here.
ATTRIBUTES = {
    "testsuites": {"name", "tests", "failures", "errors", "skipped", "time"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time", "timestamp"},
    "properties": set[str](),
    "property": {"name", "value"},
    "testcase": {"classname", "name", "time"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "skipped": {"message", "type"},
}
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"properties", "testcase"},
    "properties": {"property"},
    "testcase": {"failure", "error", "skipped"},
}


def read(given: Report) -> ET.Element:
    return ET.fromstring(to_junit(given).encode())


def case(root: ET.Element, check: str) -> ET.Element:
    (found,) = [each for each in root.iter("testcase") if each.attrib["name"].split(" ")[0] == check]
    return found


def outcome(root: ET.Element, check: str) -> list[tuple[str, str]]:
    return [(each.tag, each.attrib["message"]) for each in case(root, check)]


def test_the_document_has_only_what_ci_systems_know() -> None:
    root = read(of_every_kind())
    assert root.tag == "testsuites"
    for element in root.iter():
        assert set(element.attrib) == ATTRIBUTES[element.tag]
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set())
    suite = root[0]
    assert [child.tag for child in suite][:2] == ["properties", "testcase"]


def test_there_is_one_testcase_per_check_and_one_for_what_is_left_behind() -> None:
    root = read(of_every_kind())
    names = [each.attrib["name"] for each in root.iter("testcase")]
    assert names == [
        "reads_answer [R27 R25]",
        "labels_are_set [R69]",
        "target_grows [R27 R25]",
        "types_are_known [R80]",
        "deletes_count [R27 R25]",
        "prices [R84]",
        "restarts [T9]",
        "nothing_is_left_behind",
    ]
    assert case(root, "labels_are_set").attrib["classname"] == "conformance.should"


def test_the_counts_are_those_of_the_elements() -> None:
    root = read(of_every_kind())
    for element in (root, root[0]):
        assert element.attrib["tests"] == "8"
        for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert element.attrib[attribute] == str(len(list(root.iter(tag))))
        assert element.attrib["time"] == "1.750"


def test_violations_fail_and_nothing_else_does() -> None:
    root = read(of_every_kind())
    assert [each.attrib["type"] for each in root.iter("failure")] == ["should", "must"]
    assert outcome(root, "reads_answer") == []
    assert outcome(root, "types_are_known") == [("skipped", "note: no types")]
    assert outcome(root, "deletes_count") == [("skipped", "blocked: target_grows failed")]
    assert outcome(root, "prices") == [("skipped", "skipped: the server declares prices absent")]
    assert outcome(root, "restarts") == [("error", "the restart command ended with 3")]
    assert outcome(root, "nothing_is_left_behind") == [("error", "the kit made machines that it could not delete")]


def test_a_failure_carries_the_whole_story() -> None:
    text = case(read(of_every_kind()), "target_grows")[0].text or ""
    for part in (RULES["R27"].why, RULES["R27"].fix, "rule R25", 'sent: NodeGroupTargetSize id: "g0"', "NOT_FOUND"):
        assert part in text


def test_characters_that_xml_forbids_are_escaped() -> None:
    document = to_junit(of_every_kind())
    assert "\x1b" not in document
    assert "\x00" not in document
    document.encode()


def test_the_time_is_utc_without_a_zone_as_the_schema_wants_it() -> None:
    given = report(result("a"))
    later = timezone(timedelta(hours=2))
    moved = Report(server="s", release="1.37", started=given.started.astimezone(later), results=given.results)
    stamp = read(moved)[0].attrib["timestamp"]
    assert stamp == "2030-01-02T03:04:05"
    datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S")  # noqa: DTZ007 - the schema has no zone


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize("level", list(Level))
def test_the_document_is_red_exactly_when_the_report_is(status: Status, level: Level) -> None:
    given = report(result("a", status, level))
    red = read(given).find(".//failure") is not None or read(given).find(".//error") is not None
    assert red is given.is_broken  # inconclusive checks break nothing
