"""Finds the group of a template node, which the autoscaler invents to simulate a scale-up."""

from __future__ import annotations

from collections.abc import Container

_TEMPLATE = "template-node-for-"


def group_of_template(name: str, ids: Container[str]) -> str | None:
    """Returns the group of a template node, named ``template-node-for-<id>-…`` (R81); None for any other node.

    The longest matching id wins, as one id may be the prefix of another.
    """
    if not name.startswith(_TEMPLATE):
        return None
    rest = name.removeprefix(_TEMPLATE)
    while "-" in rest:
        rest = rest.rpartition("-")[0]
        if rest in ids:
            return rest
    return None
