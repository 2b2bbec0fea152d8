"""A restart with a clock that was set: nothing is late, nothing waits for ever, and what was spent stays spent."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest

from cloudgraft.engine.clock import SystemClock
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.groups.specs import EngineSettings, GuardLimits, Money
from cloudgraft.store.sql import SqlJournal
from tests.engine.engine_rig import EPOCH, HandClock, Rig, fake, group

HOUR = 3600.0


class SetClock(HandClock):
    """The wall clock of a rig, beside a timer that nobody sets; the rig's cloud goes by the true time."""

    def __init__(self) -> None:
        super().__init__()
        self.jump = 0.0

    def wall(self) -> float:
        return self.time + self.jump


@dataclass
class SetRig(Rig):
    """An engine on the real clock class, over a wall clock that is set."""

    boot: str = "one"

    def make(self) -> Engine:
        journal = SqlJournal.sqlite(self.directory / "journal.db", cluster_id=self.cluster_id)
        assert isinstance(self.clock, SetClock)
        clock = SystemClock(self.clock.wall, lambda: self.clock.time - EPOCH, lambda: self.boot)
        return Engine(self.desired_state(), journal, clock=clock, is_stepped=True)

    async def restart_with(self, jump: float, *, boot: str) -> None:
        """The process ends, somebody sets the clock, and it starts again."""
        await self.engine.clean()
        assert isinstance(self.clock, SetClock)
        self.clock.jump, self.boot = jump, boot
        await self.restart()


def a_rig(directory: Path, **changes: object) -> SetRig:
    return SetRig(directory, clock=SetClock(), **changes)  # type: ignore[arg-type]  # a test names fields of its own


@pytest.mark.parametrize("boot", ["one", "another"])
async def test_an_unknown_create_is_settled_although_the_clock_went_back(tmp_path: Path, boot: str) -> None:
    rig = a_rig(tmp_path)
    await rig.start()
    rig.chaos(create={"dropped": {"next": 1}})
    await rig.provider.increase_size("g", 1)
    await rig.turn()
    await rig.restart_with(-6 * HOUR, boot=boot)
    await rig.settle(15)
    assert (await rig.states(), len(rig.alive())) == (["running"], 1)
    await rig.engine.close()


@pytest.mark.parametrize("boot", ["one", "another"])
@pytest.mark.parametrize("jump", [30 * HOUR, -30 * HOUR])
async def test_no_booting_machine_fails_when_the_clock_was_set(tmp_path: Path, jump: float, boot: str) -> None:
    rig = a_rig(tmp_path)
    await rig.start()
    await rig.provider.increase_size("g", 3)
    await rig.turn()
    await rig.restart_with(jump, boot=boot)
    await rig.settle(5)
    assert (await rig.states(), len(rig.alive())) == (["running"] * 3, 3)
    await rig.engine.close()


@pytest.mark.parametrize("jump", [30 * HOUR, -30 * HOUR])
async def test_what_was_spent_stays_spent_when_the_clock_is_set(tmp_path: Path, jump: float) -> None:
    cap = GuardLimits(max_spend_per_day=Money(amount=Decimal("0.5"), currency="EUR"))
    priced = group(price=Money(amount=Decimal("0.1"), currency="EUR"))
    rig = a_rig(tmp_path, settings=EngineSettings(guards=cap), groups=[priced])
    await rig.start()
    await rig.provider.increase_size("g", 4)
    await rig.settle(30, seconds=60)
    await rig.provider.delete_nodes("g", [fake(i) for i in await rig.shown()])
    await rig.settle(5)
    before = rig.engine.guard_usage.use()[0].used
    assert (before > 0, rig.alive()) == (True, [])
    await rig.restart_with(jump, boot="one")
    await rig.settle(2)
    assert rig.engine.guard_usage.use()[0].used >= before
    await rig.engine.close()


async def test_the_journal_holds_how_far_the_clock_has_come(tmp_path: Path) -> None:
    rig = a_rig(tmp_path)
    await rig.start()
    rig.clock.advance(100)
    await rig.engine.clean()
    saved = (await rig.engine.journal.load()).progress
    assert saved is not None
    assert (saved.at, saved.boot_id, saved.boot_time) == (EPOCH + 100, "one", 100.0)
    await rig.engine.close()
