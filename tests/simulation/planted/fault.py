"""The table of planted faults, each with the run that finds it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock

Patch = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """One protection that is taken away, and how that is found."""

    name: str
    what: str  # was taken away
    finds: str  # the invariant
    seed: int
    hours: float
    plan: str
    replicas: int
    patch: Patch


FAULTS: Final[dict[str, Planted]] = {}


def plant(
    name: str, what: str, *, finds: str, seed: int, plan: str = "", hours: float = 5.0, replicas: int = 1
) -> Callable[[Patch], Patch]:
    """Registers a fault; what is decorated takes the protection away for a while."""

    def register(patch: Patch) -> Patch:
        FAULTS[name] = Planted(
            name=name, what=what, finds=finds, seed=seed, hours=hours, plan=plan, replicas=replicas, patch=patch
        )
        return patch

    return register


def replaced(target: str, new: Any) -> AbstractContextManager[object]:
    """Puts something else in the place of a name, for a while."""
    return mock.patch(target, new)


def both(*patches: AbstractContextManager[object]) -> AbstractContextManager[object]:
    """Several at once."""
    stack = contextlib.ExitStack()
    for patch in patches:
        stack.enter_context(patch)
    return stack


def table() -> str:
    """All faults, as the page beside shows them."""
    lines = ["| planted fault | what is taken away | found by | seed | plan |", "|---|---|---|---|---|"]
    for fault in FAULTS.values():
        more = " --replicas 2" if fault.replicas > 1 else ""
        plan = f"`{fault.plan}`" if fault.plan else "none"
        run = f"`--seed {fault.seed} --hours {fault.hours:g}{more}`"
        lines.append(f"| `{fault.name}` | {fault.what} | `{fault.finds}` | {run} | {plan} |")
    return "\n".join(lines)
