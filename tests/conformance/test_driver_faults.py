"""Drivers with one mistake each: the check that names the mistake fails, and is listed first."""

from __future__ import annotations

import pytest

from cloudgraft.conformance.driver import DRIVER_CHECKS, DRIVER_RULES, judge_driver
from cloudgraft.conformance.report import Status
from cloudgraft.sdk.driver import Driver
from tests.conformance import faulty_drivers as zoo
from tests.conformance.faulty_drivers import SETTINGS, GoodDriver, Zoo
from tests.conformance.judging import judged
from tests.sampling import sampled

FAULTS: dict[type[GoodDriver], str] = {
    zoo.ChangingTraits: "traits_are_declared",
    zoo.NotAList: "list_makes_sense",
    zoo.OtherName: "create_answers_with_the_machine",
    zoo.CutName: "create_answers_with_the_machine",
    zoo.NoId: "create_answers_with_the_machine",
    zoo.StateAsText: "a_new_machine_is_listed",
    zoo.SameMachineTwice: "a_new_machine_is_listed",
    zoo.LateList: "a_new_machine_is_listed",
    zoo.OtherIdInList: "machine_ids_are_their_own",
    zoo.ProviderIdChanges: "provider_ids_hold",
    zoo.ProviderIdIsShared: "provider_ids_hold",
    zoo.ProviderIdNotAsDeclared: "provider_ids_hold",
    zoo.RunsWithoutProviderId: "a_machine_gets_to_running",
    zoo.StaysPending: "a_machine_gets_to_running",
    zoo.NoTimeZone: "created_at_is_when_it_was_made",
    zoo.BornIn1970: "created_at_is_when_it_was_made",
    zoo.ForgetsTags: "marks_come_back",
    zoo.CutsTags: "marks_come_back",
    zoo.LowersTags: "unusual_group_ids_survive",
    zoo.DeletesNothing: "a_deleted_machine_goes",
    zoo.NeedsItsOwnMachines: "a_deleted_machine_goes",
    zoo.PositionAsId: "ids_outlive_a_deletion",
    zoo.DeletesByPrefix: "only_that_machine_is_deleted",
    zoo.DeletesTheTwin: "of_two_with_one_name_one_is_deleted",
    zoo.RefusesToDeleteTwice: "deleting_again_is_no_error",
    zoo.FillsInTags: "others_are_left_alone",
    zoo.Doubles: "a_second_create_adds_nothing",
    zoo.RefusesAgain: "a_second_create_is_answered_as_declared",
    zoo.LooksFirst: "two_creates_of_one_name_at_once",
    zoo.RemembersTokens: "a_new_driver_knows_the_old_machines",
    zoo.KeepsMachinesToItself: "a_new_driver_knows_the_old_machines",
    zoo.MixesUp: "many_creates_at_once",
    zoo.BreaksMeanwhile: "lists_work_meanwhile",
    zoo.ComesBack: "a_machine_can_be_deleted_in_mid_create",
    zoo.FirstPageOnly: "a_list_has_every_page",
    zoo.IgnoresCancellation: "a_cancelled_call_ends",
    zoo.DeniesWhatItDid: "a_cancelled_call_ends",
    zoo.KeepsItsLock: "it_works_after_cancelled_calls",
    zoo.MarksLater: "a_create_that_was_given_up_adds_one_at_most",
    zoo.TripsOverTheShape: "what_can_never_work_is_refused",
    zoo.MakesItAnyway: "what_can_never_work_is_refused",
    zoo.QuotaIsABug: "trouble_is_called_by_its_name",
    zoo.RateLimitIsAQuota: "trouble_is_called_by_its_name",
    zoo.ServerErrorIsUnavailable: "a_lost_answer_is_an_unknown_outcome",
    zoo.LostAnswerIsUnavailable: "a_lost_answer_is_an_unknown_outcome",
    zoo.RepeatsALostCreate: "a_lost_answer_is_an_unknown_outcome",
    zoo.DeniesOnce: "no_error_denies_a_machine",
    zoo.EmptyWhenAway: "a_cloud_that_is_away_has_no_list",
    zoo.SecretInError: "no_secret_is_shown",
    zoo.SecretInRepr: "no_secret_is_shown",
    zoo.ShowsUserData: "no_secret_is_shown",
    zoo.ShapesTwice: "shapes_are_sane",
    zoo.ShapesAsText: "shapes_are_sane",
    zoo.PricesAsFloats: "prices_are_sane",
    zoo.TwoCurrencies: "prices_are_sane",
    zoo.ClosesOnce: "it_starts_and_closes_twice",
    zoo.WaitsForItsCalls: "it_closes_while_calls_run",
}
NEEDS_HELP = {"a_crash_in_mid_create_adds_one_at_most"}  # of the author: see test_driver_processes.py


@pytest.mark.parametrize("kind", sampled(FAULTS, lambda kind: kind.__name__))
async def test_the_check_that_names_the_mistake_fails_first(kind: type[GoodDriver]) -> None:
    cloud = Zoo()
    settings = zoo.settings_for(kind, cloud)
    report = await judge_driver(lambda: kind(cloud), settings)
    assert not report.is_passed
    first = report.failures[0]
    assert first.check == FAULTS[kind], [(result.check, result.message) for result in report.failures]
    assert first.message
    assert zoo.SECRET not in repr(report)
    assert not report.count(Status.ERROR)
    if kind is not zoo.DeletesNothing:
        assert (report.left_behind, cloud.animals) == ((), {})


async def test_a_call_that_blocks_the_event_loop_is_found_with_its_place() -> None:
    """The checks that this one comes after create two machines."""
    cloud = Zoo()
    report = await judge_driver(lambda: zoo.Blocks(cloud), SETTINGS, only=["the_event_loop_is_free"])
    assert [failure.check for failure in report.failures] == ["the_event_loop_is_free"]
    assert "faulty_drivers.py" in report.failures[0].message


async def test_what_cannot_be_deleted_is_named() -> None:
    cloud = Zoo()
    settings = zoo.settings_for(zoo.DeletesNothing, cloud)
    report = await judge_driver(lambda: zoo.DeletesNothing(cloud), settings, only=["D24"])
    assert len(report.left_behind) == len(cloud.animals) > 0
    assert all(any(animal.ident in text for text in report.left_behind) for animal in cloud.animals.values())


async def test_a_good_driver_passes_every_check() -> None:
    cloud = Zoo()

    def make() -> Driver:
        return GoodDriver(cloud)

    report = await judged(make, zoo.settings_for(GoodDriver, cloud))
    skipped = {result.check for result in report.results if result.status is Status.SKIPPED}
    assert skipped == {"of_two_with_one_name_one_is_deleted", *NEEDS_HELP}
    assert cloud.animals == {}
    assert cloud.most <= SETTINGS.most_machines


def test_every_check_has_a_driver_that_fails_it() -> None:
    """But one, which needs a process to kill; and the event loop's, above."""
    assert {check.name for check in DRIVER_CHECKS} - set(FAULTS.values()) == {"the_event_loop_is_free", *NEEDS_HELP}


def test_every_rule_has_a_check() -> None:
    assert {rule for check in DRIVER_CHECKS for rule in check.rules} == set(DRIVER_RULES)


def test_checks_come_after_those_that_they_build_on() -> None:
    names = [check.name for check in DRIVER_CHECKS]
    assert len(set(names)) == len(names)
    for check in DRIVER_CHECKS:
        assert check.title.endswith("."), check.name
        assert all(names.index(before) < names.index(check.name) for before in check.after)
