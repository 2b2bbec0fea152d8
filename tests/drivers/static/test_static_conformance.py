"""The kit's rules for drivers on `static`, with real commands."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.conformance.driver import DriverSettings, Trouble
from cloudgraft.sdk.driver import Driver
from tests.conformance.judging import judged
from tests.conformance.test_driver_processes import NO_LOSS, NO_PROCESS, NO_TWINS, passed
from tests.drivers.exec.exec_scripts import nothing_left
from tests.drivers.static.static_machines import STATE, hosts, static_driver

SKIPPED = (NO_LOSS, NO_PROCESS, NO_TWINS, "a_list_has_every_page", "shapes_are_sane", "prices_are_sane")
MOST = ("a_deleted_machine_goes",)


@pytest.mark.thorough
@pytest.mark.parametrize("state", [None, STATE], ids=["blind", "seeing"])
@pytest.mark.timeout(300)
async def test_it_keeps_every_rule_for_drivers(tmp_path: Path, state: str | None) -> None:
    def troubled(trouble: Trouble) -> Driver | None:
        match trouble:
            case Trouble.STOCK_OUT:
                full = static_driver(tmp_path, power_state=state, machines=hosts(1), state_file=tmp_path / "full.json")
                full._assignments.take(hosts(1)[0], "somebody", {})
                return full
            case Trouble.AWAY:
                (tmp_path / "broken.json").write_text("{")
                return static_driver(tmp_path, state_file=tmp_path / "broken.json")
        return None

    settings = DriverSettings(
        wrong_machine={"select": {"rack": "nowhere"}},
        at_once=3,
        interruptions=4,
        late=timedelta(0),
        troubled=troubled,
    )
    async with nothing_left(tmp_path):
        report = await judged(lambda: static_driver(tmp_path, power_state=state, machines=hosts(40)), settings)
    passed(report, *SKIPPED)


async def test_it_keeps_the_rules_that_are_most_easily_broken(tmp_path: Path) -> None:
    async with nothing_left(tmp_path):
        await judged(
            lambda: static_driver(tmp_path, machines=hosts(12)),
            DriverSettings(at_once=3, interruptions=2, late=timedelta(0)),
            only=MOST,
        )
