"""One driver before its judge: the conformance suite, a scale-up and a scale-down through the engine, and what else.

A provider is judged likewise, by the conformance kit and without an engine.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from cloudgraft.app.engine_wiring import desired_state
from cloudgraft.config import load
from cloudgraft.conformance.driver import judge_driver
from cloudgraft.conformance.driver.suite import explained
from cloudgraft.conformance.report import Report, Result, Status
from cloudgraft.sdk.driver import Driver
from clouds.judge import Case, Judge, ProviderCase, Tell
from e2e.cloudgraft_process import CloudgraftServer
from e2e.waiting import until

__all__ = ["Check", "Trial", "document", "is_served", "try_driver"]

_MACHINES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    is_passed: bool
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What became of one driver."""

    name: str
    driver: str
    judged_by: str = ""
    checks: tuple[Check, ...] = ()
    not_run: str = ""  # why it was not judged
    seconds: float = 0.0

    @property
    def is_passed(self) -> bool:
        """Whether it was judged, and nothing was found."""
        return not self.not_run and bool(self.checks) and all(check.is_passed for check in self.checks)


def try_driver(name: str, judge: Judge, directory: Path, tell: Tell) -> Trial:
    """Judges one driver; never raises for what is wrong with it."""
    if why := judge.missing():
        return Trial(name=name, driver=judge.driver, not_run=why)
    began = time.monotonic()
    checks: list[Check] = []
    judged_by = ""
    try:
        tell(f"{name}: starting its cloud ...")
        with judge.open(directory, tell) as case:
            judged_by = case.judged_by
            tell(f"{name}: {judged_by} is up")
            checks += _judged(case, directory, lambda text: tell(f"{name}: {text}"))
    except Exception:  # noqa: BLE001 - whatever it is, the other drivers are judged too
        checks.append(Check(name="its cloud", is_passed=False, detail=traceback.format_exc(limit=8)))
    took = time.monotonic() - began
    return Trial(name=name, driver=judge.driver, judged_by=judged_by, checks=tuple(checks), seconds=took)


def _judged(case: Case | ProviderCase, directory: Path, tell: Tell) -> list[Check]:
    scale = case.scale if isinstance(case, ProviderCase) else partial(_scale, case, directory)
    checks = [_conformance(case, directory, tell), _attempt("scale-up and scale-down", scale, tell)]
    checks += [_attempt(name, check, tell) for name, check in case.more.items()]
    if left := list(case.alive()):
        checks.append(Check(name="nothing is left", is_passed=False, detail=", ".join(left)))
    return checks


def _attempt(name: str, check: Callable[[], None], tell: Tell) -> Check:
    try:
        check()
    except Exception:  # noqa: BLE001 - a check that fails is a result
        tell(f"{name}: failed")
        return Check(name=name, is_passed=False, detail=traceback.format_exc(limit=8))
    tell(f"{name}: passed")
    return Check(name=name, is_passed=True)


# -- conformance -------------------------------------------------------------------------------------------------------


def _conformance(case: Case | ProviderCase, directory: Path, tell: Tell) -> Check:
    def progress(result: Result) -> None:
        tell(f"{result.check}: {result.status}")

    if isinstance(case, ProviderCase):
        report, explain = case.conformance(progress), _in_one_line
    else:
        report = asyncio.run(judge_driver(_maker(case, directory), case.settings, progress=progress))
        explain = explained
    return Check(name="conformance", is_passed=report.is_passed, detail=_summary(report, explain))


def _maker(case: Case, directory: Path) -> Callable[[], Driver]:
    """Drivers from a configuration file, as a user has them."""
    file = directory / "conformance.yaml"
    file.write_text(yaml.safe_dump(document(case)), "utf-8")
    return desired_state(load(file)).clouds["judged"].make


def _in_one_line(result: Result) -> str:
    """By the kit's rules, which `cloudgraft conformance --list` tells."""
    return f"{result.check} ({', '.join(result.rules)}): {result.message}"


def _summary(report: Report, explain: Callable[[Result], str]) -> str:
    lines = [f"{report.count(Status.PASSED)} passed, {report.count(Status.SKIPPED)} not judged"]
    lines += [explain(result) for result in report.results if result.status in {Status.FAILED, Status.ERROR}]
    lines += [f"left behind: {name}" for name in report.left_behind]
    return "\n".join(lines)


# -- the engine --------------------------------------------------------------------------------------------------------


def document(
    case: Case, *, cluster: str = "judged", engine: Mapping[str, Any] | None = None, most: int = _MACHINES
) -> dict[str, Any]:
    """A configuration file with this cloud, and one group of its machines."""
    group: dict[str, Any] = {"id": "judged", "cloud": "judged", "minSize": 0, "maxSize": most}
    group["machine"] = dict(case.settings.machine)
    if case.capacity is not None:
        group["template"] = {"capacity": dict(case.capacity)}
    cloud = {**case.cloud, "engine": {"observeEvery": "1s", **case.cloud.get("engine", {}), **(engine or {})}}
    return {"cluster": cluster, "clouds": {**case.others, "judged": cloud}, "nodeGroups": [group]}


def is_served(server: CloudgraftServer) -> bool:
    """Whether the autoscaler is told of the group, which it is from a Refresh after the cloud's first lists on."""
    server.call("Refresh", {})
    return any(group["served"] for group in server.groups().values())


def _scale(case: Case, directory: Path) -> None:
    """Up by the autoscaler's call, down by its other one; the cloud itself is asked what there is."""
    home = directory / "engine"
    home.mkdir()
    server = CloudgraftServer(home, document(case))
    server.start()
    seconds = case.boot_time.total_seconds()
    try:
        until(lambda: is_served(server), "the group is served", seconds=seconds, check=server.check)
        server.call("NodeGroupIncreaseSize", {"id": "judged", "delta": _MACHINES})
        wanted = {"judged": {"running": _MACHINES}}
        until(lambda: server.states() == wanted, "the machines run", seconds=seconds, check=server.check)
        machines = server.groups()["judged"]["machines"]
        names = sorted(machine["name"] for machine in machines)
        assert sorted(case.alive()) == names, f"the cloud has {sorted(case.alive())}, the engine {names}"
        nodes = [{"providerID": machine["providerId"], "name": machine["name"]} for machine in machines]
        server.call("NodeGroupDeleteNodes", {"id": "judged", "nodes": nodes})
        until(lambda: not server.states(), "the engine sees them gone", seconds=seconds, check=server.check)
        until(lambda: not case.alive(), "the cloud has none of them", seconds=seconds)
    finally:
        server.stop()
