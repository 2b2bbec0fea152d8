"""Connects drivers that dial in: the hub, the runner of a driver, and the link to the engine.

An author of a driver needs :func:`run`, and perhaps the rest of what is named here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudgraft.dock.runner import (
        ClassData,
        Code,
        DockedDriver,
        DockRunner,
        MachineClass,
        MachineClassMeta,
        MachineError,
        RunnerOptions,
        RunnerSettings,
        Secret,
        SecretMeta,
        Speech,
        Tls,
        current_class,
        from_2018,
        run,
        run_until_told,
    )

__all__ = [
    "ClassData",
    "Code",
    "DockRunner",
    "DockedDriver",
    "MachineClass",
    "MachineClassMeta",
    "MachineError",
    "RunnerOptions",
    "RunnerSettings",
    "Secret",
    "SecretMeta",
    "Speech",
    "Tls",
    "current_class",
    "from_2018",
    "run",
    "run_until_told",
]


def __getattr__(name: str) -> object:
    """Imports the runner's names on first use, so that a hub does not load them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cloudgraft.dock import runner  # noqa: PLC0415

    found: object = getattr(runner, name)
    return found
