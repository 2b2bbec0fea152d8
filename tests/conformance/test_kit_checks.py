"""The table of checks: complete, in a possible order, each about a rule that can be seen."""

from __future__ import annotations

import pytest

from cloudgraft.conformance.check import Check, Need, server_checks
from cloudgraft.conformance.checks import CHECKS
from cloudgraft.conformance.rules import RULES, Level
from cloudgraft.conformance.run import selected
from cloudgraft.conformance.stage import Stage
from cloudgraft.sdk.errors import InvalidArgumentError


def test_every_rule_that_can_be_seen_is_named_by_a_check_and_no_other_is() -> None:
    named = {rule for each in CHECKS for rule in each.rules}
    assert named == {rule.id for rule in RULES.values() if not rule.unobservable}


def test_names_are_unique_and_titles_are_sentences() -> None:
    assert len({each.name for each in CHECKS}) == len(CHECKS)
    assert all(each.title.endswith(".") and not each.title[0].islower() for each in CHECKS)


@pytest.mark.parametrize("each", CHECKS, ids=lambda each: each.name)
def test_a_check_comes_after_those_that_it_builds_on(each: Check[Stage]) -> None:
    earlier = [other.name for other in CHECKS[: CHECKS.index(each)]]
    assert set(each.after) <= set(earlier)


def test_the_level_of_a_check_is_the_highest_of_its_rules_unless_it_says_otherwise() -> None:
    async def looks_at_something(stage: Stage) -> None:
        """Something holds,
        in two lines.

        And more.
        """

    checks = server_checks()
    made = checks.check("R80", "R78")(looks_at_something)
    assert (made.level, made.name) == (Level.SHOULD, "looks_at_something")
    assert made.title == "Something holds, in two lines."
    assert checks.check("R80", "R78", level=Level.MUST, needs=(Need.RESTART,))(looks_at_something).level is Level.MUST
    assert checks[0] is made


def test_checks_are_selected_by_rule_in_either_case_and_by_name() -> None:
    assert selected([]) == CHECKS
    assert {each.name for each in selected(["r5"])} == {"cleanup_deletes_nothing"}
    names = [each.name for each in selected(["cleanup_deletes_nothing", "R9"])]
    assert names == ["http2_is_agreed_on", "cleanup_deletes_nothing"]
    with pytest.raises(InvalidArgumentError, match="no rule and no check named X1, nonsense"):
        selected(["X1", "nonsense"])
