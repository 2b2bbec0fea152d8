"""The kit is only worth what it catches: servers with one mistake each, and two without any."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from cloudgraft.conformance.checks import CHECKS
from cloudgraft.conformance.kit import KitConfig
from cloudgraft.conformance.report import Report, Result, Status
from cloudgraft.conformance.rules import Level
from cloudgraft.conformance.run import Session, run
from tests.conformance.planted.fault import Fault
from tests.conformance.planted.served import Served, served
from tests.conformance.planted.sound import PatientServer, SoundServer
from tests.conformance.planted.table import FAULTS
from tests.sampling import sampled

_ENOUGH_FAULTS = 30
_GO_BY_THE_CLOCK = {"options_are_answered_from_memory"}  # a busy machine breaks that note without any mistake


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How long the kit waits, and whether it is given its hooks."""

    patience: str = "20s"
    cleanup: str = "20s"
    call: str = "5s"
    with_help: bool = True


def kit_for(server: Served, directory: Path, manner: Manner) -> KitConfig:
    """A config for a planted world, where nothing but the mistakes takes long."""
    cloud_config = directory / "cloud-config.yaml"
    cloud_config.write_text(f"address: {server.address}\ngrpc_timeout: {manner.call}\n")
    hooks = {
        "stockOut": {"begin": server.command("sell-out"), "end": server.command("restock")},
        "slowCloud": {"begin": server.command("stall"), "end": server.command("go-on")},
        "restart": server.command("restart"),
        "lostMachine": server.command("lose {id}"),
    }
    return KitConfig.model_validate(
        {
            "cloudConfig": str(cloud_config),
            "group": "amber",
            "floorGroup": "beryl",
            "nodeName": "([^/]+)$",
            "patience": {
                **dict.fromkeys(("boot", "delete", "restart"), manner.patience),
                "hook": "20s",
                "cleanup": manner.cleanup,
            },
            "hooks": hooks if manner.with_help else {},
        }
    )


async def judged(fault: Fault, directory: Path) -> Report:
    """The report up to the first failed must: nothing that comes later is listed before it."""
    async with served(fault.server) as server:

        def stop_at_a_must(result: Result) -> None:
            if result.status is Status.FAILED and result.level is Level.MUST:
                running.cancel()

        call = "1s" if fault.is_slow else "5s"
        manner = Manner(patience="2s", cleanup="500ms", call=call, with_help=fault.with_help)
        session = Session(kit_for(server, directory, manner), progress=stop_at_a_must)
        running = asyncio.ensure_future(session.run())
        await asyncio.wait([running])
        if not running.cancelled():
            running.result()
        return session.report


def told(report: Report) -> str:
    unpassed = [result for result in report.results if result.status is not Status.PASSED]
    return "\n".join(f"{each.status} {each.check} {each.rules}: {each.message}" for each in unpassed)


@pytest.mark.parametrize("kind", [SoundServer, pytest.param(PatientServer, marks=pytest.mark.thorough)])
async def test_a_server_without_a_mistake_passes_everything(kind: type[SoundServer], tmp_path: Path) -> None:
    async with served(kind) as server:
        report = await run(kit_for(server, tmp_path, Manner()))
    assert report.is_passed, told(report)
    assert {failure.check for failure in report.failures} <= _GO_BY_THE_CLOCK, told(report)
    assert not report.count(Status.BLOCKED), told(report)
    assert [result.check for result in report.results if result.status is Status.SKIPPED] == ["http2_is_agreed_on"]


@pytest.mark.parametrize("fault", sampled(FAULTS, lambda fault: fault.name, every=25))
async def test_the_check_that_names_the_mistake_is_listed_first(fault: Fault, tmp_path: Path) -> None:
    report = await judged(fault, tmp_path)
    assert report.failures, f"not caught: {fault.mistake}\n{told(report)}"
    first = report.failures[0]
    assert first.check == fault.check, told(report)
    assert set(first.rules) & set(fault.rules), told(report)


def test_there_is_a_planted_fault_for_every_mistake_that_is_known() -> None:
    assert len(FAULTS) >= _ENOUGH_FAULTS
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert all(fault.mistake and fault.rules for fault in FAULTS)
    assert {fault.check for fault in FAULTS} <= {check.name for check in CHECKS}
