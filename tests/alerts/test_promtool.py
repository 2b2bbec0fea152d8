"""promtool's unit tests of the rules: each alert fires when it should, at its time, and not otherwise.

The input is written as promtool writes series: ``0x10`` is eleven times 0, ``0+60x10`` grows by 60 a minute.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.alerts.rules import RULES, alerts
from tests.needs import needs_programs

_JOB = 'job="cloudgraft", instance="a"'
_DAY = 86400


@dataclass(frozen=True)
class Case:
    """Series that make an alert fire at a minute and not a minute earlier, and series that never do."""

    at: int
    fires: Mapping[str, str]
    quiet: Mapping[str, str]


def series(name: str, labels: str = "") -> str:
    return f"{name}{{{_JOB}{', ' if labels else ''}{labels}}}"


CERTIFICATE = series("cloudgraft_tls_certificate_expiry_timestamp_seconds")
CALL = 'cloud="sim", call="create"'
GUARD = 'cloud="", guard="maxMachines"'
SPEND = 'cloud="", guard="maxSpendPerDay"'
COUNT = series("cloudgraft_rpc_duration_seconds_count", 'rpc="Refresh"')
FAST = series("cloudgraft_rpc_duration_seconds_bucket", 'rpc="Refresh", le="2.5"')
INFO = series("cloudgraft_transport_info", 'transport="grpcio"')
OPS = series("cloudgraft_connections_limit", 'listener="ops"')
OTHER = OPS.replace('job="cloudgraft"', 'job="other"')
LAST_CALL = series("cloudgraft_last_allowed_call_timestamp_seconds")
LIMIT = series("cloudgraft_connections_limit", 'listener="autoscaler"')
OPEN = series("cloudgraft_connections", 'listener="autoscaler"')
REFUSED = series("cloudgraft_refused_clients_total", 'listener="autoscaler", reason="unknown"')

CASES = {
    # The last of all installations; and replicas of one, of which another goes on.
    "CloudgraftAbsent": Case(
        10, {OPS: "64x4 stale"}, {OPS: "64x4 stale", OPS.replace('instance="a"', 'instance="b"'): "64x40"}
    ),
    # The other replica is not called: it must not count.
    "CloudgraftNobodyGetsIn": Case(
        16,
        {LAST_CALL: "0+60x5 300x30", LAST_CALL.replace('"a"', '"b"'): "0x40", INFO: "1x40"},
        {LAST_CALL: "0+60x40", LAST_CALL.replace('"a"', '"b"'): "0x40", INFO: "1x40"},
    ),
    "CloudgraftNoLeader": Case(
        7,
        {series("cloudgraft_leader"): "1x4 0x20", series("cloudgraft_leader").replace('"a"', '"b"'): "0x30"},
        {series("cloudgraft_leader"): "1x4 0x20", series("cloudgraft_leader").replace('"a"', '"b"'): "0x4 1x30"},
    ),
    "CloudgraftRefusesClients": Case(8, {REFUSED: "0+120x30"}, {REFUSED: "0+30x30"}),
    "CloudgraftConnectionsNearLimit": Case(8, {OPEN: "0x2 41x30", LIMIT: "100x40"}, {OPEN: "40x40", LIMIT: "100x40"}),
    "CloudgraftSlowAnswers": Case(
        8, {COUNT: "0+60x30", FAST: "0+60x5 359 418 477 537+60x20"}, {COUNT: "5+60x40", FAST: "4+60x10 662+60x30"}
    ),
    "CloudgraftCertificateExpires": Case(
        3, {CERTIFICATE: f"{20 * _DAY}x2 {10 * _DAY}x20"}, {CERTIFICATE: f"{15 * _DAY}x40", INFO: "1x40"}
    ),
    "CloudgraftCloudDown": Case(
        8,
        {series("cloudgraft_cloud_up", 'cloud="sim"'): "1x2 0x30"},
        {series("cloudgraft_cloud_up", 'cloud="sim"'): "1x2 0x4 1x30"},
    ),
    "CloudgraftListTooOld": Case(
        11,
        {series("cloudgraft_cloud_list_age_seconds", 'cloud="sim"'): "0+60x30"},
        {series("cloudgraft_cloud_list_age_seconds", 'cloud="sim"'): "0+60x10 0x30"},
    ),
    "CloudgraftDriverAway": Case(
        8,
        {series("cloudgraft_dock_driver_up", 'kind="K", api_version="v1"'): "1x2 0x30"},
        {series("cloudgraft_dock_driver_up", 'kind="K", api_version="v1"'): "1x2 0x4 1x30"},
    ),
    "CloudgraftCallsNearTimeout": Case(
        5,
        {series("cloudgraft_cloud_calls_near_timeout_total", CALL): "0x4 1x30"},
        {series("cloudgraft_cloud_calls_near_timeout_total", CALL): "7x40"},
    ),
    "CloudgraftCreatesFail": Case(
        6,
        {series("cloudgraft_cloud_calls_total", f'{CALL}, result="unavailable"'): "0x4 2 5x30"},
        {
            series("cloudgraft_cloud_calls_total", f'{CALL}, result="unavailable"'): "0x4 1 3x30",
            series("cloudgraft_cloud_calls_total", f'{CALL}, result="ok"'): "0+60x40",
            series("cloudgraft_cloud_calls_total", 'cloud="sim", call="delete", result="unavailable"'): "0+60x40",
        },
    ),
    "CloudgraftMachinesFail": Case(
        5,
        {series("cloudgraft_failed_machines_total", 'group="g", cloud="sim", class="other"'): "0x4 1x30"},
        {series("cloudgraft_failed_machines_total", 'group="g", cloud="sim", class="other"'): "3x40"},
    ),
    "CloudgraftRequestTooOld": Case(
        16,
        {series("cloudgraft_group_oldest_pending_seconds", 'group="g", cloud="sim"'): "0+60x30"},
        {series("cloudgraft_group_oldest_pending_seconds", 'group="g", cloud="sim"'): "0+60x15 0x30"},
    ),
    "CloudgraftOrphans": Case(
        18,
        {series("cloudgraft_orphans", 'cloud="sim", kind="unknown"'): "0x2 1x30"},
        {
            series("cloudgraft_orphans", 'cloud="sim", kind="unknown"'): "0x2 1x10 0x30",
            series("cloudgraft_orphans", 'cloud="sim", kind="released"'): "1x40",
        },
    ),
    "CloudgraftTemplateDrift": Case(
        18,
        {series("cloudgraft_group_drift", 'group="g", cloud="sim"'): "0x2 2x30"},
        {series("cloudgraft_group_drift", 'group="g", cloud="sim"'): "0x2 2x10 0x30"},
    ),
    "CloudgraftGuardNearlyUsed": Case(
        8,
        {series("cloudgraft_guard_used", GUARD): "0x2 9x30", series("cloudgraft_guard_limit", GUARD): "10x40"},
        {
            series("cloudgraft_guard_used", GUARD): "8x40",
            series("cloudgraft_guard_limit", GUARD): "10x40",
            series("cloudgraft_guard_used", SPEND): "9x40",
            series("cloudgraft_guard_limit", SPEND): "10x40",
        },
    ),
    "CloudgraftSpendNearLimit": Case(
        8,
        {series("cloudgraft_guard_used", SPEND): "0x2 9x30", series("cloudgraft_guard_limit", SPEND): "10x40"},
        {
            series("cloudgraft_guard_used", SPEND): "8x40",
            series("cloudgraft_guard_limit", SPEND): "10x40",
            series("cloudgraft_guard_used", GUARD): "9x40",
            series("cloudgraft_guard_limit", GUARD): "10x40",
        },
    ),
}

# What one case of an alert cannot show.
MORE = (
    # One installation of two is gone.
    ("CloudgraftAbsent", Case(10, {OPS: "64x4 stale", OTHER: "64x40"}, {OPS: "64x40", OTHER: "64x40"})),
    # None was ever there; and a node manager alone, which has no transport.
    ("CloudgraftAbsent", Case(5, {}, {OPS: "64x40", LAST_CALL: "0x40"})),
    # A node manager has no autoscaler that calls it, beside a server of another job that is called.
    (
        "CloudgraftNobodyGetsIn",
        Case(
            16,
            {LAST_CALL: "0+60x5 300x30", INFO: "1x40"},
            {
                LAST_CALL.replace('job="cloudgraft"', 'job="other"'): "0x40",
                LAST_CALL: "0+60x40",
                INFO: "1x40",
            },
        ),
    ),
)


def test_every_alert_has_a_case() -> None:
    assert list(CASES) == [rule["alert"] for rule in alerts()]


def _firing(alert: str, minute: int, *, is_expected: bool) -> dict[str, Any]:
    value = {"labels": "{}", "value": int(is_expected)}
    expr = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)'
    return {"expr": expr, "eval_time": f"{minute}m", "exp_samples": [value]}


def _tests(alert: str, case: Case) -> list[dict[str, Any]]:
    def group(name: str, given: Mapping[str, str], expectations: list[dict[str, Any]]) -> dict[str, Any]:
        inputs = [{"series": one, "values": values} for one, values in given.items()]
        return {"name": name, "interval": "1m", "input_series": inputs, "promql_expr_test": expectations}

    before, after = _firing(alert, case.at - 1, is_expected=False), _firing(alert, case.at, is_expected=True)
    never = [_firing(alert, minute, is_expected=False) for minute in range(0, 31, 2)]
    return [group(f"{alert} fires", case.fires, [before, after]), group(f"{alert} is quiet", case.quiet, never)]


def _after_a_day() -> dict[str, Any]:
    """An installation that was removed is forgotten, while another goes on."""
    alert, gone = "CloudgraftAbsent", 4 + 24 * 60
    return {
        "name": f"{alert} ends",
        "interval": "1m",
        "input_series": [{"series": OPS, "values": "64x4 stale"}, {"series": OTHER, "values": f"64x{gone + 10}"}],
        "promql_expr_test": [
            _firing(alert, gone - 1, is_expected=True),
            _firing(alert, gone + 1, is_expected=False),
        ],
    }


@pytest.mark.thorough
@needs_programs("promtool")
def test_each_alert_fires_at_its_time_and_not_otherwise(tmp_path: Path) -> None:
    tests = [test for alert, case in (*CASES.items(), *MORE) for test in _tests(alert, case)]
    tests.append(_after_a_day())
    document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(document))
    done = subprocess.run(
        ["promtool", "test", "rules", tmp_path / "tests.yaml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
