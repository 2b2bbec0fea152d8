"""A report for programs: everything that is known, as JSON."""

from __future__ import annotations

import json
from typing import Any

from cloudgraft.conformance.render.words import advice, verdict
from cloudgraft.conformance.report import Exchange, Report, Result, Status

__all__ = ["to_json"]


def to_json(report: Report) -> str:
    """The report; results are in the order in which the checks ran."""
    data = {
        "server": report.server,
        "release": report.release,
        "started": report.started.isoformat(),
        "passed": report.is_passed,
        "verdict": verdict(report),
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
