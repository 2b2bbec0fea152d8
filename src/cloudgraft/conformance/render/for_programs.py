"""Renders a report for programs: as JSON, and as the JUnit XML that CI systems read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC
from typing import Any
from xml.etree import ElementTree as ET

from cloudgraft.conformance.render.words import advice, clean, conclusion, headline, is_violation, rules_of
from cloudgraft.conformance.report import Exchange, Report, Result, Status

# -- JSON --------------------------------------------------------------------------------------------------------------


def to_json(report: Report) -> str:
    """The report; results are in the order in which the checks ran."""
    data = {
        "server": report.server,
        "release": report.release,
        "started": report.started.isoformat(),
        "passed": report.is_passed,
        "verdict": conclusion(report),
        "counts": {status.value: report.count(status) for status in Status},
        "failures": [result.check for result in report.failures],
        "leftBehind": list(report.left_behind),
        "results": [_result(result) for result in report.results],
    }
    return json.dumps(data, indent=2)


def _result(result: Result) -> dict[str, Any]:
    main = advice(result)
    return {
        "check": result.check,
        "title": result.title,
        "rules": list(result.rules),
        "level": result.level.value,
        "status": result.status.value,
        "message": result.message,
        "seconds": round(result.seconds, 3),
        "why": main.why if main else "",
        "fix": main.fix if main else "",
        "exchanges": [_exchange(exchange) for exchange in result.exchanges],
    }


def _exchange(exchange: Exchange) -> dict[str, Any]:
    return {
        "rpc": exchange.rpc,
        "sent": exchange.sent,
        "answered": exchange.answered,
        "seconds": round(exchange.seconds, 6),
        "failed": exchange.is_failed,
    }


# -- JUnit XML ---------------------------------------------------------------------------------------------------------
# One testcase per check.
# The shape is the common part of what Jenkins, GitLab and others accept. They know passed, failed, error and skipped:
#
# - a violation of level must or should is a failure;
# - a check that could not be judged is an error, and so are machines that the kit left behind;
# - a note that does not hold is skipped with its message, because it must not stop a build;
# - a consequence of another failure is skipped, so that the number of failures is the number of mistakes;
# - an inconclusive check is skipped with what it needs: it neither passed nor failed.


_SUITE = "cloudgraft conformance"
_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'


def to_junit(report: Report) -> str:
    """The XML document."""
    cases = [_case(result) for result in report.results]
    if report.left_behind:
        cases.append(_left_behind(report))
    counts = {
        "tests": str(len(cases)),
        "failures": str(sum(case.find("failure") is not None for case in cases)),
        "errors": str(sum(case.find("error") is not None for case in cases)),
        "skipped": str(sum(case.find("skipped") is not None for case in cases)),
        "time": f"{sum(result.seconds for result in report.results):.3f}",
    }
    root = ET.Element("testsuites", {"name": _SUITE, **counts})
    started = report.started.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds")
    suite = ET.SubElement(root, "testsuite", {"name": _SUITE, **counts, "timestamp": started})
    properties = ET.SubElement(suite, "properties")
    for name, value in (("server", report.server), ("release", report.release)):
        ET.SubElement(properties, "property", {"name": name, "value": headline(value)})
    suite.extend(cases)
    ET.indent(root)
    return f"{_DECLARATION}{ET.tostring(root, encoding='unicode')}\n"


def _case(result: Result) -> ET.Element:
    name = f"{result.check} [{' '.join(result.rules)}]" if result.rules else result.check
    case = ET.Element(
        "testcase",
        {"classname": f"conformance.{result.level}", "name": name, "time": f"{result.seconds:.3f}"},
    )
    match result.status:
        case Status.PASSED:
            return case
        case Status.FAILED if is_violation(result):
            _outcome(case, "failure", result.level.value, result.message).text = "\n".join(_details(result))
        case Status.FAILED:
            _outcome(case, "skipped", "note", f"note: {result.message}")
        case Status.ERROR:
            _outcome(case, "error", "error", result.message).text = "\n".join(_details(result))
        case _:
            _outcome(case, "skipped", result.status.value, f"{result.status}: {result.message}")
    return case


def _left_behind(report: Report) -> ET.Element:
    case = ET.Element("testcase", {"classname": "conformance", "name": "nothing_is_left_behind", "time": "0.000"})
    message = "the kit made machines that it could not delete"
    _outcome(case, "error", "leftBehind", message).text = "\n".join(map(headline, report.left_behind))
    return case


def _outcome(case: ET.Element, tag: str, kind: str, message: str) -> ET.Element:
    return ET.SubElement(case, tag, {"message": headline(message), "type": kind})


def _details(result: Result) -> Iterator[str]:
    """The details of a failure, as in the other forms, as plain text."""
    yield f"what must hold: {clean(result.title)}"
    yield f"what came instead: {clean(result.message)}"
    for rule in rules_of(result):
        yield f"rule {rule.id}: {rule.title}"
    if main := advice(result):
        yield f"why it matters: {main.why}"
        yield f"how to fix it: {main.fix}"
    for exchange in result.exchanges:
        yield from _call(exchange)


def _call(exchange: Exchange) -> Iterator[str]:
    yield f"sent: {exchange.rpc} {headline(exchange.sent)}"
    yield f"came back ({exchange.seconds * 1000:.0f} ms): {headline(exchange.answered)}"
