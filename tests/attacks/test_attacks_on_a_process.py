"""The attacks on a real server: its memory is bounded, and the autoscaler's calls get through."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.__main__ import CONNECTIONS, Outcome, run
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


@pytest.mark.thorough
def test_a_flooded_dock_leaves_the_autoscalers_port_alone(tmp_path: Path, transport: str) -> None:
    """As found by use: 2,000 sockets on the dock, at `ulimit -n 1024`."""
    setting = Setting.at(tmp_path, transport=transport)
    outcome = run(["silent"], setting.dock_target(seconds=2.0, connections=2000), setting, files=1024, at_dock=True)
    check_other_port(outcome)


@pytest.mark.thorough
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["idle-after-handshake", "open-streams", "slow-headers", "whole-calls"])
def test_attacks_on_the_dock_leave_the_autoscalers_port_alone(tmp_path: Path, transport: str, kind: str) -> None:
    setting = Setting.at(tmp_path, transport=transport)
    outcome = run([kind], setting.dock_target(seconds=5.0, connections=1000), setting, files=1024, at_dock=True)
    check_other_port(outcome)


def check_other_port(outcome: Outcome) -> None:
    """All calls at the port that is not attacked succeed, also those of an autoscaler that has just started."""
    assert (outcome.probes.failed, outcome.probes.new_failed) == (0, 0), outcome.probes.reasons
    assert outcome.probes.new_ok > 0
    assert outcome.descriptors < 512
    assert any('listener="dock"' in line for line in outcome.refused)
