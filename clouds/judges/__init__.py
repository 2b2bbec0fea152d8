"""One module for each cloud, found by being here: each has a ``JUDGE``, or several under names of their own."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from clouds.judge import Judge

__all__ = ["judges"]


def judges() -> Mapping[str, Judge]:
    """All of them, by name."""
    found: dict[str, Judge] = {}
    for name in (module.name for module in pkgutil.iter_modules(__path__)):
        module = importlib.import_module(f"{__name__}.{name}")
        found |= module.JUDGES if hasattr(module, "JUDGES") else {name: module.JUDGE}
    return dict(sorted(found.items()))
