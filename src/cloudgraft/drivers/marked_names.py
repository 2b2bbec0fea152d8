"""Which machine it is, when somebody has renamed it: our mark says so, and a cloud's name is only what it is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["NAME_TAG", "known_name"]

NAME_TAG: Final = "cloudgraft-name"  # which every machine of the engine's is ordered with


def known_name(tags: Mapping[str, str], name: str) -> str:
    """The name that a machine was ordered under, as far as its marks tell; else the one that it has."""
    return tags.get(NAME_TAG) or name
