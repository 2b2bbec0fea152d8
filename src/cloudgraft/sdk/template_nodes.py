"""The nodes that the autoscaler makes up to think about a group that may have none."""

from __future__ import annotations

from collections.abc import Container

__all__ = ["group_of_template"]

_TEMPLATE = "template-node-for-"


def group_of_template(name: str, ids: Container[str]) -> str | None:
    """R81: the group of a template node, which is named ``template-node-for-<id>-…``; None for any other node.

    The longest known id that fits, as one id may begin another.
    """
    if not name.startswith(_TEMPLATE):
        return None
    rest = name.removeprefix(_TEMPLATE)
    while "-" in rest:
        rest = rest.rpartition("-")[0]
        if rest in ids:
            return rest
    return None
