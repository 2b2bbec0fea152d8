"""The report as JSON."""

from __future__ import annotations

import json

from cloudgraft.conformance.render.for_programs import to_json
from cloudgraft.conformance.rules import RULES
from tests.conformance.sample_report import HOSTILE, of_every_kind, report, result


def test_everything_that_is_known_is_there() -> None:
    given = of_every_kind()
    data = json.loads(to_json(given))
    assert data["server"] == "127.0.0.1:8086"
    assert data["release"] == "1.37"
    assert data["started"] == "2030-01-02T03:04:05+00:00"
    assert data["passed"] is False
    assert data["counts"] == {"passed": 1, "failed": 3, "skipped": 1, "blocked": 1, "inconclusive": 0, "error": 1}
    assert data["failures"] == ["target_grows", "labels_are_set", "types_are_known"]
    assert data["leftBehind"] == ["sim://g/1"]
    assert [each["check"] for each in data["results"]] == [each.check for each in given.results]


def test_a_result_has_its_rules_its_reason_and_all_its_calls() -> None:
    found = json.loads(to_json(of_every_kind()))["results"][2]
    assert found["rules"] == ["R27", "R25"]
    assert (found["level"], found["status"]) == ("must", "failed")
    assert (found["why"], found["fix"]) == (RULES["R27"].why, RULES["R27"].fix)
    assert len(found["exchanges"]) == 10
    assert found["exchanges"][-1] == {
        "rpc": "NodeGroupTargetSize",
        "sent": 'id: "g9"',
        "answered": f"NOT_FOUND: {HOSTILE}",
        "seconds": 0.0042,
        "failed": True,
    }


def test_a_pass_is_a_pass() -> None:
    data = json.loads(to_json(report(result("a"))))
    assert data["passed"] is True
    assert data["verdict"] == "The server keeps the contract: 1 check passed, 0 skipped."
