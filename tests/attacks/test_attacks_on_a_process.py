"""The attacks on a real server: its memory is bounded, and the autoscaler's calls get through."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.__main__ import CONNECTIONS, run
from tests.attacks.attacks import ATTACKS
from tests.attacks.victim import Setting
from tests.needs import needs_native
from tests.transports import NATIVE

_MOST = {"native": 60, "grpcio": 150}  # MB that an attack may cost; without limits the first one takes 580 in 12 s


@needs_native
@pytest.mark.parametrize("transport", [NATIVE], indirect=True)
def test_all_attacks_at_once_cost_little_memory_and_no_call(tmp_path: Path, transport: str) -> None:
    setting = Setting.at(tmp_path, transport=transport)
    outcome = run([*ATTACKS], setting.target(allowed=True, seconds=2.0), setting)
    assert outcome.peak - outcome.before < _MOST[transport]
    assert outcome.probes.failed == 0, outcome.probes.reasons
    assert outcome.probes.new_ok > 0


@pytest.mark.thorough
@pytest.mark.timeout(120)
@pytest.mark.parametrize("whose", ["stranger", "allowed"])
@pytest.mark.parametrize("kind", ATTACKS)
def test_an_attack_costs_little_memory_and_no_call(tmp_path: Path, transport: str, kind: str, whose: str) -> None:
    setting = Setting.at(tmp_path, transport=transport)
    target = setting.target(allowed=whose == "allowed", seconds=5.0, connections=CONNECTIONS.get(kind, 1))
    outcome = run([kind], target, setting, files=1024)
    assert outcome.peak - outcome.before < _MOST[transport]
    assert outcome.probes.failed == 0, outcome.probes.reasons
    assert outcome.probes.new_ok > 0
    assert outcome.descriptors < 1024
