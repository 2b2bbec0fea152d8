"""A report with one result of every kind, in which the server says things that a careless page would obey."""

from __future__ import annotations

from datetime import UTC, datetime

from cloudgraft.conformance.report import Exchange, Report, Result, Status
from cloudgraft.conformance.rules import Level

HOSTILE = "<script>alert(1)</script>\x1b[2J & ]]> \ud800 \x00"


def exchange(number: int = 0, *, is_failed: bool = False) -> Exchange:
    return Exchange(
        rpc="NodeGroupTargetSize",
        sent=f'id: "g{number}"',
        answered=f"NOT_FOUND: {HOSTILE}" if is_failed else "targetSize: 2",
        seconds=0.0042,
        is_failed=is_failed,
    )


def result(
    check: str,
    status: Status = Status.PASSED,
    level: Level = Level.MUST,
    *,
    rules: tuple[str, ...] = ("R27", "R25"),
    message: str = "",
    exchanges: tuple[Exchange, ...] = (),
) -> Result:
    return Result(
        check=check,
        title=f"Something about {check} holds.",
        rules=rules,
        level=level,
        status=status,
        message=message,
        exchanges=exchanges,
        seconds=0.25,
    )


def report(*results: Result, left_behind: tuple[str, ...] = ()) -> Report:
    return Report(
        server="127.0.0.1:8086",
        release="1.37",
        started=datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC),
        results=results,
        left_behind=left_behind,
    )


def of_every_kind() -> Report:
    calls = tuple(exchange(number) for number in range(9))
    return report(
        result("reads_answer"),
        result("labels_are_set", Status.FAILED, Level.SHOULD, rules=("R69",), message="there is no zone label"),
        result(
            "target_grows",
            Status.FAILED,
            message=f"the target was 2 and is 2 {HOSTILE}",
            exchanges=(*calls, exchange(9, is_failed=True)),
        ),
        result("types_are_known", Status.FAILED, Level.NOTE, rules=("R80",), message="no types"),
        result("deletes_count", Status.BLOCKED, message="target_grows failed"),
        result("prices", Status.SKIPPED, Level.SHOULD, rules=("R84",), message="the server declares prices absent"),
        result("restarts", Status.ERROR, rules=("T9",), message="the restart command ended with 3"),
        left_behind=("sim://g/1",),
    )
