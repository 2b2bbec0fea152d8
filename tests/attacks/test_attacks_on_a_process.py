"""The attacks at full size on a real server: its memory is bounded, and the autoscaler's calls get through."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.__main__ import CONNECTIONS, run
from tests.attacks.attacks import ATTACKS
from tests.attacks.victim import Setting

_MOST = 150  # MB that an attack may cost; without limits the first one takes 580 in 12 s


@pytest.mark.thorough
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ATTACKS)
def test_an_attack_costs_little_memory_and_no_call(tmp_path: Path, kind: str) -> None:
    setting = Setting.at(tmp_path)
    target = setting.target(seconds=8.0, connections=CONNECTIONS.get(kind, 1))
    outcome = run(kind, target, setting, files=1024)
    assert outcome.peak - outcome.before < _MOST
    assert outcome.probes.failed == 0, outcome.probes.reasons
    assert outcome.probes.new_ok > 0
    assert outcome.descriptors < 1024
