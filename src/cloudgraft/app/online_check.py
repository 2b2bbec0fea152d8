"""Asks every cloud of a configuration whether it answers: credentials, list, machine types. Creates nothing.

The clouds are asked side by side, each with its own time limits. One that does not answer hides nothing of the others
(law 6).
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from cloudgraft.app.trial_machine import Trial, TrialResult
from cloudgraft.config import Config
from cloudgraft.config.sections.clouds import EntryPointCloud
from cloudgraft.engine.clock import SystemClock
from cloudgraft.engine.groups.desired import Catalog, CloudDeclaration, GroupDeclaration
from cloudgraft.engine.machines.identity import TAG_CLUSTER_ID
from cloudgraft.engine.reconcile.calls import Caller
from cloudgraft.sdk.driver import DriverTraits, Machine, Ownership
from cloudgraft.sdk.duration import format_duration
from cloudgraft.sdk.errors import CloudgraftError

T = TypeVar("T")
Tell = Callable[[str, str], None]  # a cloud, and what it is asked for now
_SLOW: Final = 0.5  # of listTimeout: a list that takes longer may soon fail


@dataclass(slots=True, kw_only=True)
class CloudAnswer:
    """What one cloud answered. None is what it was not asked for, or did not answer."""

    cloud: str
    driver: str
    skipped: str = ""  # why it was not asked
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    traits: DriverTraits | None = None
    machines: int | None = None
    list_seconds: float | None = None
    catalog: Catalog | None = None
    trial: TrialResult | None = None


async def ask_clouds(
    config: Config,
    clouds: Mapping[str, CloudDeclaration],
    *,
    tell: Tell = lambda *_: None,
    trial_of: GroupDeclaration | None = None,
) -> Sequence[CloudAnswer]:
    """Asks all of them. With ``trial_of``, creates one machine of that group in its cloud and deletes it again."""
    asked = [
        _ask(config, name, declared, tell, trial_of if trial_of is not None and trial_of.cloud == name else None)
        for name, declared in clouds.items()
    ]
    return await asyncio.gather(*asked)


async def _ask(
    config: Config, name: str, declared: CloudDeclaration, tell: Tell, trial_of: GroupDeclaration | None
) -> CloudAnswer:
    answer = CloudAnswer(cloud=name, driver=declared.settings.driver)
    if _dials_in(config, name):
        answer.skipped = "its driver dials in to the running server: `cloudgraft dock drivers` shows it there"
        return answer
    driver = declared.make()
    settings = dataclasses.replace(declared.settings, observe_only=True)  # the last guard: only read-only calls pass
    caller = Caller(driver, settings, SystemClock(), may_act=lambda: True, on_outcome=lambda: None)
    try:
        await _look(caller, answer, tell)
        if trial_of is not None and not answer.errors:
            trial = Trial(driver, caller, declared.settings, trial_of, cluster=config.cluster)
            answer.trial = await trial.run(lambda step: tell(name, step))
            answer.errors += answer.trial.errors
            answer.warnings += answer.trial.warnings
    finally:
        await caller.close()
        tell(name, "")
    return answer


def _dials_in(config: Config, name: str) -> bool:
    cloud = config.clouds[name]
    return isinstance(cloud, EntryPointCloud) and cloud.driver == "dock" and not cloud.options.get("address")


async def _look(caller: Caller, answer: CloudAnswer, tell: Tell) -> None:
    tell(answer.cloud, "list")
    began = time.monotonic()
    machines = await _answered(caller.list, answer)
    if machines is None:
        return  # a cloud that does not list has the same answer for the rest
    answer.list_seconds, answer.machines = time.monotonic() - began, len(machines)
    answer.traits = caller.traits  # a plugin declares them once it runs
    answer.warnings += _doubts(machines, answer.list_seconds, caller)
    tell(answer.cloud, "machine types")
    answer.catalog = await _answered(caller.catalog, answer)


async def _answered(call: Callable[[], Awaitable[T]], answer: CloudAnswer) -> T | None:
    try:
        return await call()
    except CloudgraftError as error:
        answer.errors.append(error.message)
    return None


def _doubts(machines: Sequence[Machine], seconds: float, caller: Caller) -> list[str]:
    found = []
    limit = caller.settings.list_timeout
    if seconds > limit.total_seconds() * _SLOW:
        found.append(
            f"the list took {seconds:.1f} s, and one that takes longer than engine.listTimeout, "
            f"{format_duration(limit)}, fails: raise it"
        )
    tagged = sum(TAG_CLUSTER_ID in machine.tags for machine in machines)
    if tagged and caller.traits.ownership is Ownership.NAME:
        found.append(
            f"the driver declares that the cloud keeps only names, but {tagged} of {len(machines)} machines show our "
            "tags: ownership by tags is the stronger proof"
        )
    return found
