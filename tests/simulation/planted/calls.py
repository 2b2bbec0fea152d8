"""Takes away protections context calls to clouds."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from cloudgraft.engine.machines import outcomes
from cloudgraft.engine.machines.outcomes import CreateFailed
from cloudgraft.engine.reconcile.sender import Sender
from cloudgraft.sdk.driver import MachineSpec
from cloudgraft.sdk.errors import UnavailableError
from tests.simulation.planted.fault import plant, replaced

__all__: list[str] = []

Patch = AbstractContextManager[object]


@plant(
    "lost-answer-is-refusal",
    "a create whose answer was lost counts as refused, and is made again",
    finds="second-create",
    seed=6,
    plan="20:creates-lost:east,3000,1,0",
)
def lost_answer_is_refusal() -> Patch:
    real = outcomes.after

    def after(record: Any, outcome: Any, now: float) -> Any:
        if isinstance(outcome, CreateFailed):
            outcome = CreateFailed(UnavailableError(outcome.error.message))
        return real(record, outcome, now)

    return replaced("cloudgraft.engine.reconcile.sender.after", after)


@plant(
    "call-before-commit",
    "the cloud is called before the journal has the intent",
    finds="call-before-journal",
    seed=6,
)
def call_before_commit() -> Patch:
    real = Sender._create

    async def create(self: Any, names: list[str]) -> None:
        planned = self._ordered(names)
        for record in planned.machines:
            self._caller.create(record, None)
        await asyncio.sleep(0)
        await real(self, names)

    return replaced("cloudgraft.engine.reconcile.sender.Sender._create", create)


@plant(
    "new-name-for-retry",
    "a retry is made under a name of its own",
    finds="call-before-journal",
    seed=6,
    plan="20:creates-fail:east,300,1,0",
)
def new_name_for_retry() -> Patch:
    def spec(**values: Any) -> MachineSpec:
        made = MachineSpec(**values)
        if made.name in seen:
            return replace(made, name=f"{made.name}-2")
        seen.add(made.name)
        return made

    seen: set[str] = set()
    return replaced("cloudgraft.engine.reconcile.calls.MachineSpec", spec)
