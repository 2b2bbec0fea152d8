"""How the tests are run."""

from __future__ import annotations

import os


def pytest_xdist_auto_num_workers() -> int:
    """Two for each core: half of the time a test waits for a process that it started."""
    return 2 * (os.cpu_count() or 1)
