"""Torture of right and of wrong drivers before the simulated cloud, with real servers that are really killed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.sdk.driver import Idempotency
from cloudgraft.torture.judge import Rule
from cloudgraft.torture.prepare import remove
from cloudgraft.torture.report import Verdict
from tests.torture.rig import World, install_faulty, job, simulated, tortured

_SLOW = {"latency": [0.1, 0.5]}
_NONE = {"idempotency": Idempotency.NONE}
RIGHT = {
    "slow": World(chaos=_SLOW),
    "unique name": World(
        cloud={"idempotency": Idempotency.UNIQUE_NAME}, declared={"idempotency": "unique_name"}, chaos=_SLOW
    ),
    "not idempotent": World(cloud=_NONE, declared={"idempotency": "none"}, chaos=_SLOW),
    "late lists": World(cloud={"list_lag": timedelta(seconds=1)}, declared={"listLag": "1s"}, chaos=_SLOW),
    "late lists, not idempotent, lost answers": World(
        cloud={**_NONE, "list_lag": timedelta(seconds=2), "quota": 5},
        declared={"idempotency": "none", "listLag": "2500ms"},
        chaos={"create": {"lost": 0.5}},
    ),
    "slow creates": World(chaos={"create": {"latency": [0.5, 1.5]}}),
    "lost answers": World(chaos={**_SLOW, "create": {"lost": 0.3}, "delete": {"lost": 0.3}}),
}
# What is wrong, and the rules that may find it first.
WRONG = {
    "not idempotent, declared as idempotent": (
        World(cloud=_NONE, chaos={"create": {"latency": [1.5, 3.0]}}),
        {Rule.DOUBLE},
    ),
    "a lost answer is called a refusal": (
        World(
            driver="says-nothing-was-done",
            cloud=_NONE,
            declared={"idempotency": "none"},
            chaos={"create": {"lost": 0.5}},
        ),
        {Rule.DOUBLE, Rule.REFUSED},
    ),
    "a lost answer is called a refusal, and lists are late": (
        World(
            driver="says-nothing-was-done",
            cloud={**_NONE, "list_lag": timedelta(seconds=2), "quota": 5},
            declared={"idempotency": "none", "listLag": "2500ms"},
            chaos={"create": {"lost": 0.5}},
        ),
        {Rule.DOUBLE, Rule.REFUSED},
    ),
    "a list that is later than declared": (
        World(cloud={"list_lag": timedelta(seconds=2)}),
        {Rule.MISSING, Rule.RETURNED},
    ),
    "a list without the last machine": (World(driver="forgets-the-last"), {Rule.MISSING, Rule.FOREIGN}),
    "a delete that does nothing": (World(driver="deletes-nothing"), {Rule.DELETED}),
    "a create that drops the tags": (World(driver="drops-tags"), {Rule.MARKS}),
    "a delete that harms others": (World(driver="deletes-others"), {Rule.FOREIGN}),
}


# They show only if a kill falls into a short time, which a busy machine may miss.
BY_CHANCE = (
    "not idempotent, declared as idempotent",
    "a lost answer is called a refusal",
    "a lost answer is called a refusal, and lists are late",
    "a list that is later than declared",
)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "packages"
    directory.mkdir()
    monkeypatch.syspath_prepend(str(directory))
    return install_faulty(directory)


@pytest.mark.timeout(180)
async def test_a_right_driver_holds(tmp_path: Path, packages: Path) -> None:
    await _holds(tmp_path, World(chaos={"latency": [0.0, 0.05]}), packages, kills=2, seed=1)


@pytest.mark.thorough
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [2, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in (1, 3))])
@pytest.mark.parametrize("world", RIGHT.values(), ids=RIGHT)
async def test_no_right_driver_is_accused(tmp_path: Path, packages: Path, world: World, seed: int) -> None:
    await _holds(tmp_path, world, packages, kills=8, seed=seed)


async def _holds(tmp_path: Path, world: World, packages: Path, *, kills: int, seed: int) -> None:
    with simulated(tmp_path, world) as (cloud, file):
        run = job(file, packages=packages, kills=kills, seed=seed)
        report = await tortured(run)
        assert (report.verdict, report.violations, report.trouble) == (Verdict.HELD, [], ""), report.history
        assert (report.kills_done, report.left_behind) == (kills, ())
        assert [machine.name for machine in cloud.machines()] == ["db-1"]
        made = [entry for entry in cloud.ledger() if entry.name != "db-1"]
        assert made
        if cloud.options.idempotency is not Idempotency.NONE:
            assert len({entry.name for entry in made}) == len(made)
        remove(run.paths)


@pytest.mark.timeout(180)
async def test_a_wrong_driver_is_found(tmp_path: Path, packages: Path) -> None:
    await _is_found(tmp_path, packages, "a create that drops the tags", seed=1)


@pytest.mark.thorough
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [2, pytest.param(3, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=pytest.mark.exhaustive) if what in BY_CHANCE else what for what in WRONG]
)
async def test_every_wrong_driver_is_found(tmp_path: Path, packages: Path, what: str, seed: int) -> None:
    await _is_found(tmp_path, packages, what, seed=seed)


async def _is_found(tmp_path: Path, packages: Path, what: str, *, seed: int) -> None:
    world, rules = WRONG[what]
    with simulated(tmp_path, world) as (_, file):
        run = job(file, packages=packages, kills=20, creates=200, patience=5.0, seed=seed)
        report = await tortured(run)
    assert report.verdict is Verdict.VIOLATED, report.trouble
    assert {finding.rule for finding in report.violations} & rules, report.violations
    assert report.history
    assert run.paths.journal.exists()
    remove(run.paths)
