"""Explains that there is no group or cloud of a name, and suggests the nearest one."""

from __future__ import annotations

from collections.abc import Iterable

from cloudgraft.engine.engine import Engine
from cloudgraft.sdk.common.nearest import nearest
from cloudgraft.sdk.errors import NotFoundError

_LONGEST = 500  # characters of the names that there are


def unknown(kind: str, name: str, known: Iterable[str], *, why: str = "") -> NotFoundError:
    """The error for a name of that kind, such as "node group", that is not among the known ones."""
    there = sorted(known)
    like = nearest(name, there)
    hint = f"; did you mean {like!r}?" if like else ""
    return NotFoundError(f"there is no {kind} {name!r}{why}; there is: {', '.join(there)[:_LONGEST] or 'none'}{hint}")


def unknown_group(engine: Engine, name: str, *, kind: str = "node group", why: str = "") -> NotFoundError:
    """The error for a node group that the engine does not have, with the state of the configuration."""
    if engine.is_pending(name):
        why = f"{why} yet: the changed configuration that has it waits for the autoscaler's next Refresh"
    return unknown(kind, name, {*engine.fleet.groups, *engine.left_out()}, why=why)
