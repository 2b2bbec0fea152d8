"""Keeps Python's warnings from becoming exceptions in a process that calls clouds.

``python -W error`` and ``PYTHONWARNINGS=error`` raise a library's warning inside the library: in the middle of a call
to a cloud. A driver would report that as a refusal.
"""

from __future__ import annotations

import re
import warnings
from typing import Any


def warnings_never_raise() -> None:
    """Makes this process show warnings that its filters would raise. All other filters stay as they are.

    For the entry points of programs only: filters belong to the whole process.
    """
    filters: list[Any] = list(warnings.filters)
    warnings.resetwarnings()
    for action, message, category, module, line in filters:
        warnings.filterwarnings(
            "default" if action == "error" else action,
            message=_pattern(message),
            category=category,
            module=_pattern(module),
            lineno=line,
            append=True,
        )


def _pattern(expected: str | re.Pattern[str] | None) -> str:
    """Returns the pattern as text. Python stores it as text, compiled, or as None."""
    return expected.pattern if isinstance(expected, re.Pattern) else expected or ""
