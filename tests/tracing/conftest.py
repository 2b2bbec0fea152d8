"""Time enough for whole servers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Each waits for several things, one after the other, and for each up to half of the time that a test has."""
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.timeout(300))
