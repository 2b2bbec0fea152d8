"""Replicas under faults: every answer is explained by some order of the changes, and planted faults are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.replicas.trial import Trial

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(600)]


async def test_every_answer_is_explained_whatever_happens_to_replicas_and_database(tmp_path: Path) -> None:
    result = await Trial(seed=1, seconds=40.0).run(tmp_path)
    assert not result.wrong, result
    assert result.injected


async def test_replicas_without_fencing_are_found(tmp_path: Path) -> None:
    """A leader that was stopped goes on answering and writing when it wakes up."""
    result = await Trial(seed=1, seconds=30.0, faults=("stop",), planted="no fencing").run(tmp_path)
    assert any("no order of the changes explains" in wrong for wrong in result.wrong)
