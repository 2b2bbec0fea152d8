"""One module for each cloud, found by being here: each has a ``JUDGE``."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from clouds.judge import Judge

__all__ = ["judges"]


def judges() -> Mapping[str, Judge]:
    """All of them, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}").JUDGE for name in names}
