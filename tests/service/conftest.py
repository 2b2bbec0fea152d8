"""The service that most tests call."""

from __future__ import annotations

import pytest

from tests.service.service_bench import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()
