"""What the tests of the configuration share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory with a short name: messages cut off what is long, and pytest's own grows with every run."""
    with tempfile.TemporaryDirectory(prefix="cg") as directory:
        yield Path(directory).resolve()
