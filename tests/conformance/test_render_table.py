"""The report for a terminal."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from cloudgraft.conformance.driver.rules import DRIVER_RULES
from cloudgraft.conformance.render.table import progress_line, view
from cloudgraft.conformance.report import Report, Status
from cloudgraft.conformance.rules import RULES, Level
from tests.conformance.sample_report import exchange, of_every_kind, report, result


def shown(given: Report, *, is_terminal: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=300, force_terminal=is_terminal, color_system="standard" if is_terminal else None)
    console.print(view(given))
    return out.getvalue()


def test_failures_come_first_and_musts_before_shoulds() -> None:
    text = shown(of_every_kind())
    places = [text.index(part) for part in ("FAILED must target_grows", "FAILED should labels", "FAILED note types")]
    assert places == sorted(places)
    assert places[0] == 0
    assert places[-1] < text.index("COULD NOT BE JUDGED") < text.index("Blocked") < text.index("Checks by level")


def test_a_failure_says_the_rule_what_was_sent_what_came_back_why_and_what_to_do() -> None:
    failed = result("grows", Status.FAILED, message="it is still 2", exchanges=(exchange(7), exchange(is_failed=True)))
    text = shown(report(failed))
    expected = [
        "Something about grows holds.",
        "it is still 2",
        f"R27: {RULES['R27'].title}",
        f"R25: {RULES['R25'].title}",
        'NodeGroupTargetSize id: "g7"',
        "(4 ms) targetSize: 2",
        "NOT_FOUND",
        RULES["R27"].why,
        RULES["R27"].fix,
    ]
    assert [part for part in expected if part not in text] == []
    assert RULES["R25"].why not in text


def test_a_failure_of_a_driver_says_its_rule_why_and_what_to_do() -> None:
    failed = replace(result("named", Status.FAILED, message="it is named other"), rules=("D3",))
    text = shown(replace(report(failed), release=""))
    rule = DRIVER_RULES["D3"]
    assert [part for part in (f"D3: {rule.title}", rule.why, rule.fix) if part not in text] == []
    assert "The driver does not pass" in text
    assert "as the engine calls it" in text


def test_only_the_last_calls_are_shown_and_the_number_of_the_others() -> None:
    failed = result("grows", Status.FAILED, exchanges=tuple(exchange(number) for number in range(10)))
    text = shown(report(failed))
    assert "… 4 before these" in text
    assert '"g3"' not in text
    assert '"g4"' in text
    assert "before these" not in shown(report(result("g", Status.FAILED, exchanges=failed.exchanges[:6])))


def test_musts_are_red() -> None:
    text = shown(report(result("grows", Status.FAILED)), is_terminal=True)
    assert "\x1b[1;31mFAILED \x1b[0m" in text


def test_skips_and_blocked_checks_are_listed_with_reasons() -> None:
    lines = shown(of_every_kind()).splitlines()
    assert any("prices" in line and "R84" in line and "declares prices absent" in line for line in lines)
    assert any("deletes_count" in line and "target_grows failed" in line for line in lines)


def test_what_is_left_behind_is_named() -> None:
    assert "sim://g/1" in shown(of_every_kind())


def test_the_summary_counts_by_level_and_ends_with_a_verdict() -> None:
    lines = [" ".join(line.split()) for line in shown(of_every_kind()).splitlines()]
    assert "must 1 1 0 1 0 1" in lines
    assert "should 0 1 1 0 0 0" in lines
    assert lines[-1] == (
        "The server does not pass: 2 violations (1 must, 1 should), 1 check blocked by them, 1 check could not be "
        "judged, 1 machine left behind; 1 passed, 1 skipped. 1 note to read."
    )
    good = shown(report(result("a"), result("b", Status.SKIPPED))).splitlines()[-1]
    assert good == "The server keeps the contract: 1 check passed, 1 skipped."


def test_a_server_cannot_play_with_the_terminal() -> None:
    text = shown(of_every_kind())
    assert "\x1b" not in text
    assert "\x00" not in text
    assert "\\x1b[2J" in text


def test_markup_of_the_server_is_text() -> None:
    assert "[red]x[/red]" in shown(report(result("grows", Status.FAILED, message="[red]x[/red]")))


def test_a_check_that_ended_is_one_line() -> None:
    failed = result("grows", Status.FAILED, Level.SHOULD, message="it is\nstill 2")
    assert progress_line(failed).plain == "failed  should grows [R27 R25] 0.2s: it is still 2"
    assert progress_line(result("grows", message="unsaid")).plain == "passed  must   grows [R27 R25] 0.2s"
