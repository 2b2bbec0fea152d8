"""The kit's rules for drivers on the Liqo driver, over the fake Liqo."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cloudgraft.conformance.driver import DriverSettings, Trouble, judge_driver
from cloudgraft.conformance.report import Report, Status
from cloudgraft.liqo.driver import LiqoDriver
from cloudgraft.liqo.options import LiqoOptions
from tests.liqo.liqo_market import MemoryMarket
from tests.liqo.liqo_world import World, world_of

SAMPLE = ("create_answers_with_the_machine", "shapes_are_sane", "prices_are_sane")
# What cannot be judged here: no pages, no process of its own, no two of one name, and no answer of the API gets lost.
MAY_BE_SKIPPED = {
    "a_list_has_every_page",
    "a_crash_in_mid_create_adds_one_at_most",
    "of_two_with_one_name_one_is_deleted",
    "a_lost_answer_is_an_unknown_outcome",
}


@pytest.fixture
async def large(tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(tmp_path, "cluster-a", "cluster-b", "cluster-c") as made:
        yield made


def _troubled(world: World, trouble: Trouble) -> LiqoDriver | None:
    home = world.directory / trouble.name
    home.mkdir(exist_ok=True)
    kubeconfig = world.consumer.kubeconfig(home)
    market: MemoryMarket = world.market
    match trouble:
        case Trouble.STOCK_OUT:
            market = MemoryMarket()
        case Trouble.AWAY:
            text = kubeconfig.read_text()
            kubeconfig.write_text(text.replace(str(world.consumer.port), "9"))
        case Trouble.AUTHENTICATION:
            kubeconfig.write_text(kubeconfig.read_text().replace(world.consumer.token, "nobody-knows-this"))
        case _:
            return None
    return LiqoDriver(_options(world, kubeconfig), market)


def _options(world: World, kubeconfig: Path) -> LiqoOptions:
    return world.options(kubeconfig=kubeconfig)


async def _judged(world: World, only: tuple[str, ...]) -> Report:
    settings = DriverSettings(
        machine={"shape": "S"},
        at_once=4,
        interruptions=6,
        troubled=lambda trouble: _troubled(world, trouble),
        secrets=["not-a-secret"],
    )
    return await judge_driver(world.driver, settings, only=only)


def _check(report: Report) -> None:
    failed = [f"{one.check}: {one.message}" for one in report.results if one.status in {Status.FAILED, Status.ERROR}]
    skipped = {one.check for one in report.results if one.status is Status.SKIPPED}
    assert not failed, "\n".join(failed)
    assert skipped <= MAY_BE_SKIPPED
    assert not report.left_behind


@pytest.mark.thorough
async def test_what_is_most_easily_wrong(large: World) -> None:
    _check(await _judged(large, SAMPLE))


@pytest.mark.thorough
@pytest.mark.timeout(300)
async def test_every_rule_for_drivers(large: World) -> None:
    _check(await _judged(large, ()))
