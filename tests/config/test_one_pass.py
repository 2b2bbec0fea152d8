"""Problems of the file, of drivers, groups, routers and providers are reported together, each once, by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudgraft.app.wiring import assemble, check_parts
from cloudgraft.config import ConfigError, load
from cloudgraft.service.metrics import ServiceMetrics


def wrong(text: str, base_dir: Path) -> list[str]:
    """The keys of all problems that one start reports, in their order."""
    file = base_dir / "f.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        assemble(load(file, find=check_parts), ServiceMetrics())
    lines = [problem.line for problem in caught.value.problems]
    assert lines == sorted(lines)
    assert len(set(caught.value.problems)) == len(lines)
    return [problem.key for problem in caught.value.problems]


def test_a_wrong_section_hides_no_problem_of_drivers_and_groups(tmp_path: Path) -> None:
    keys = wrong(
        """\
cluster: Prod
clouds:
  sim: {driver: simulated, wrong: 1, engine: {maxCalls: many}}
  lab: {driver: nosuch}
nodeGroups:
  - {id: a, cloud: sim, maxSize: ten, machine: {shape: small, typo: 1}}
  - {id: b, cloud: lab, maxSize: 5, machine: {whatever: 1}}
  - {cloud: sim, machine: {shap: small}}
  - nonsense
  - {id: c, cloud: nowhere, maxSize: 5, machine: {typo: 1}}
  - {id: d, cloud: sim, maxSize: 5, machine: {typo: 1, shape: small}, template: {taints: [{effect: No}]}}
providers:
  - {type: nosuch}
  - {type: memory, options: {typo: 1}}
  - {type: externalgrpc, address: nowhere}
engine: {webhook: {url: "https://a.example", kinds: [nosuch]}}
""",
        tmp_path,
    )
    assert keys == [
        "cluster",
        "clouds.sim.wrong",
        "clouds.sim.engine.maxCalls",
        "clouds.lab.driver",
        "nodeGroups[0].maxSize",
        "nodeGroups[0].machine.typo",
        "nodeGroups[2].id",
        "nodeGroups[2].maxSize",
        "nodeGroups[2].machine.shape",
        "nodeGroups[2].machine.shap",
        "nodeGroups[3]",
        "nodeGroups[4].cloud",
        "nodeGroups[5].machine.typo",
        "nodeGroups[5].template.taints[0].key",
        "nodeGroups[5].template.taints[0].effect",
        "providers[0].type",
        "providers[1].options.typo",
        "providers[2].address",
        "engine.webhook.kinds[0]",
    ]


# The dock is wrong. It is not true that the cloud "needs a section dock".
DOCK = """\
clouds: {d: {driver: dock, kind: K, apiVersion: v1, machineClass: c}}
nodeGroups: []
dock: {listen: nowhere}
"""
# The price is wrong, and not missing.
PRICE = """\
clouds: {e: {driver: static, powerOn: a, powerOff: a, machines: [{id: a}]}}
nodeGroups: [{id: g, cloud: e, maxSize: 1, price: {hourly: 5, currency: EUR}}]
guards: {maxSpendPerDay: {amount: "40", currency: EUR}}
"""
# The cloud that the router uses is there, and wrong.
ROUTED = """\
clouds:
  lab: {driver: nosuch}
  r: {driver: router, shapes: {s: [{cloud: lab, machine: {shape: s}}]}}
nodeGroups: []
"""
# Without its taints, the template seems to contradict the router's cloud.
TAINTED = """\
clouds:
  sim: {driver: simulated}
  r: {driver: router, shapes: {s: [{cloud: sim, machine: {shape: small, taints: [{key: a, effect: NoSchedule}]}}]}}
nodeGroups:
  - {id: g, cloud: r, maxSize: 1, machine: {shape: s}, template: {taints: [{key: a, effect: X}]}}
"""


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (DOCK, "dock.listen"),
        (PRICE, "nodeGroups[0].price.hourly"),
        (ROUTED, "clouds.lab.driver"),
        (TAINTED, "nodeGroups[0].template.taints[0].effect"),
    ],
)
def test_a_wrong_section_causes_no_false_problem_elsewhere(text: str, key: str, tmp_path: Path) -> None:
    assert wrong(f"cluster: t\n{text}", tmp_path) == [key]


def test_files_of_which_nothing_is_left_are_reported_too(tmp_path: Path) -> None:
    assert wrong("- a\n- b\n", tmp_path) == [""]
    assert wrong("cluster: {a\n", tmp_path) == [""]


def test_groups_of_a_router_with_wrong_settings_are_still_compared_with_it(tmp_path: Path) -> None:
    text = """\
cluster: t
clouds:
  sim: {driver: simulated}
  r: {driver: router, shapes: {s: [{cloud: sim, machine: {shape: small}}]}}
nodeGroups: [{id: g, cloud: r, maxSize: 1, machine: {shape: other, typo: 1}}]
"""
    assert wrong(text, tmp_path) == ["nodeGroups[0].machine.shape", "nodeGroups[0].machine.typo"]


def test_a_section_that_lacks_several_keys_hides_no_problem_elsewhere(tmp_path: Path) -> None:
    text = """\
cluster: t
server: {tls: {ca: c}}
clouds: {sim: {driver: simulated, wrong: 1}}
nodeGroups: [{id: g, cloud: sim, maxSize: 1, machine: {shape: small, typo: 1}}]
"""
    keys = wrong(text, tmp_path)
    assert [key for key in keys if not key.startswith("server.tls.")] == [
        "clouds.sim.wrong",
        "nodeGroups[0].machine.typo",
    ]
