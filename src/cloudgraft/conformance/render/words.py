"""Provides the words that all forms of a report share.

Much of a report is text from the server under test: it is escaped, never interpreted.
"""

from __future__ import annotations

from typing import Final

from cloudgraft.conformance.driver.rules import DRIVER_RULES
from cloudgraft.conformance.report import Report, Result, Status
from cloudgraft.conformance.rules import RULES, Level, Rule

_ALL: Final = {**RULES, **DRIVER_RULES}


def clean(text: str) -> str:
    """The text with control characters escaped; line ends stay."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def headline(text: str, longest: int = 700) -> str:
    """The text on one line, shortened."""
    line = " ".join(clean(text).split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def is_violation(result: Result) -> bool:
    """Whether the result makes the server fail; a broken note does not."""
    return result.status is Status.FAILED and result.level is not Level.NOTE


def rules_of(result: Result) -> list[Rule]:
    """The rules that a check is about, the main one first."""
    return [_ALL[rule] for rule in result.rules if rule in _ALL]


def advice(result: Result) -> Rule | None:
    """The rule whose reason and remedy are shown with a failure: the first that the check names."""
    return next(iter(rules_of(result)), None)


def as_called(report: Report) -> str:
    """The subject of the report and its caller: only a server is called by an autoscaler of some release."""
    name = headline(report.server)
    return (
        f"{name}, as the autoscaler {report.release} calls it" if report.release else f"{name}, as the engine calls it"
    )


def conclusion(report: Report) -> str:
    """The outcome in one sentence."""
    who = "server" if report.release else "driver"
    passed, skipped = report.count(Status.PASSED), report.count(Status.SKIPPED)
    if report.is_passed:
        return f"The {who} keeps the contract: {_many(passed, 'check')} passed, {skipped} skipped.{_notes(report)}"
    unclear = report.count(Status.INCONCLUSIVE)
    if not report.is_broken:
        return (
            f"The {who} breaks no rule that could be judged, but {_many(unclear, 'check')} had no clear result: see "
            f"what is needed; {passed} passed, {skipped} skipped.{_notes(report)}"
        )
    troubles = []
    if violations := [result for result in report.failures if is_violation(result)]:
        troubles.append(f"{_many(len(violations), 'violation')} ({_levels(violations)})")
    if blocked := report.count(Status.BLOCKED):
        troubles.append(f"{_many(blocked, 'check')} blocked by them")
    if errors := report.count(Status.ERROR):
        troubles.append(f"{_many(errors, 'check')} could not be judged")
    if unclear:
        troubles.append(f"{_many(unclear, 'check')} inconclusive")
    if report.left_behind:
        troubles.append(f"{_many(len(report.left_behind), 'machine')} left behind")
    return f"The {who} does not pass: {', '.join(troubles)}; {passed} passed, {skipped} skipped.{_notes(report)}"


def _notes(report: Report) -> str:
    notes = sum(result.level is Level.NOTE for result in report.failures)
    return f" {_many(notes, 'note')} to read." if notes else ""


def _levels(results: list[Result]) -> str:
    counts = {level: sum(result.level is level for result in results) for level in Level}
    return ", ".join(f"{count} {level}" for level, count in counts.items() if count)


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
