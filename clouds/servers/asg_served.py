"""The provider ``ec2-asg`` in a server, before the conformance kit with its hooks."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from cloudgraft.conformance import KitConfig, Report, Result, Status, run
from cloudgraft.conformance.checks import CHECKS
from clouds.servers.aws_cloud import AwsCloud
from e2e.waiting import until
from tests.conformance.kit_served import restartable

__all__ = ["NOT_JUDGED", "kit_report", "provider_entry"]

# An increase that the kit has given up may still be under way when its next check begins: not in one run.
_APART: Final = "a_given_up_deletion_is_done_once_or_not"
_LEFT_OUT: Final = {
    "a_restart_in_the_middle_loses_nothing": "started while AWS hangs, the server knows nothing: what it knows is AWS's"
}
NOT_JUDGED: Final = frozenset(
    {
        *_LEFT_OUT,
        "http2_is_agreed_on",  # needs TLS
        "fresh_nodes_are_found_by_name",  # AWS does not describe names with a group
        "nodes_are_deleted_by_name",
        "a_lost_machine_can_be_deleted",  # moto makes another at once; see the tests of faults
    }
)
_SECONDS: Final = 60.0
_CHAOS: Final = Path(__file__).with_name("asg_chaos.py")
Progress = Callable[[Result], None]


def provider_entry(cloud: AwsCloud, *groups: str, **more: Any) -> dict[str, Any]:
    """The provider for these groups, as it is in a configuration file; ``more`` are options of it."""
    options = {**cloud.account("served"), "groups": list(groups), "interval": "0s", **more}
    return {"type": "ec2-asg", "options": options, "snapshot": {"refreshEvery": "200ms"}}


async def kit_report(
    cloud: AwsCloud, small: str, floor: str, directory: Path, *, progress: Progress | None = None
) -> Report:
    """Judges a server with these two empty groups: one with room for twelve, one with room for four."""
    address = f"unix:{directory}/s"  # the same after a restart
    more = {"overrides": {floor: {"minSize": 2}}, "prices": {"t3.micro": "0.01"}}
    provider = provider_entry(cloud, small, floor, **more)
    file = directory / "cloudgraft.yaml"
    server = {"listen": address, "ops": None}
    file.write_text(json.dumps({"cluster": "test", "server": server, "providers": [provider]}), "utf-8")
    with restartable(file) as restart:
        await asyncio.to_thread(until, (directory / "s").exists, "the server listens", seconds=_SECONDS)
        kit = _kit(address, small, floor, [sys.executable, str(_CHAOS), cloud.proxy.url], restart)
        names = [check.name for check in CHECKS if check.name not in (_APART, *_LEFT_OUT)]
        first = await run(kit, only=names, progress=progress)
        second = await run(kit, only=[_APART], progress=progress)
    return dataclasses.replace(
        first,
        results=(*first.results, *second.results, *_left_out()),
        left_behind=(*first.left_behind, *second.left_behind),
    )


def _kit(address: str, small: str, floor: str, chaos: list[str], restart: list[str]) -> KitConfig:
    return KitConfig.model_validate(
        {
            "address": address,
            "group": small,
            "floorGroup": floor,
            "providerID": "^aws:///",
            "patience": {"boot": "20s", "delete": "20s", "restart": "60s", "hook": "30s", "cleanup": "20s"},
            "hooks": {
                "stockOut": {"begin": [*chaos, "hold", small], "end": [*chaos, "release", small]},
                "slowCloud": {"begin": [*chaos, "hang"], "end": [*chaos, "clear"]},
                "restart": restart,
            },
        }
    )


def _left_out() -> list[Result]:
    return [
        Result(
            check=check.name,
            title=check.title,
            rules=check.rules,
            level=check.level,
            status=Status.SKIPPED,
            message=_LEFT_OUT[check.name],
        )
        for check in CHECKS
        if check.name in _LEFT_OUT
    ]
