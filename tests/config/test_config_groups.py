"""Node groups: what a good one becomes, and what is told of a bad one."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from cloudgraft.config import Config, ConfigError, machine_settings, missing_prices, parse
from cloudgraft.config.sections.groups import NodeGroupConfig
from cloudgraft.sdk import AutoscalingOptions, Quantity, Taint

HEAD = "cluster: prod\nclouds: {lab: {driver: plugin, command: [a]}, sim: {driver: plugin, command: [a]}}\n"


def _parse(groups: str, base_dir: Path) -> Config:
    return parse(HEAD + textwrap.dedent(groups), base_dir, name="f")


def _group(entry: str, base_dir: Path) -> NodeGroupConfig:
    [group] = _parse(f"nodeGroups: [{entry}]", base_dir).groups()
    return group


def _lines(groups: str, base_dir: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        _parse(groups, base_dir)
    return str(caught.value).splitlines()


# -- good ones --------------------------------------------------------------------------------------------------------


def test_the_least_group_has_defaults_for_the_rest(tmp_path: Path) -> None:
    group = _group("{id: small, cloud: lab, maxSize: 10, machine: {shape: small}}", tmp_path)
    assert (group.id, group.cloud, group.min_size, group.max_size) == ("small", "lab", 0, 10)
    assert (group.machine, group.shape, group.zone, group.spread) == ({"shape": "small"}, "small", "", ())
    assert (group.options.as_options(), group.price) == (None, None)
    template = group.template
    assert (template.labels, template.taints, template.capacity, template.reserved) == ({}, (), {}, {})
    assert (template.eviction_hard.memory, template.eviction_hard.nodefs) == ("100Mi", "10%")


def test_a_group_may_say_everything(tmp_path: Path) -> None:
    config = _parse(
        """
        nodeGroups:
          - id: lab-small
            cloud: lab
            minSize: 1
            maxSize: 10
            machine: {shape: 4c8g, disks: [{size: 5}]}
            template:
              labels: {pool: lab, example.com/tier: ""}
              annotations: {example.com/note: "what ever: it is"}
              taints: [{key: dedicated, value: batch, effect: NoSchedule}, {key: dedicated, effect: NoExecute}]
              capacity: {cpu: 4, memory: 8Gi, ephemeral-storage: 1e11, nvidia.com/gpu: 1}
              allocatable: {cpu: 3.9}
              reserved: {memory: 500Mi}
              evictionHard: {memory.available: 5%, nodefs.available: 1Gi}
            options:
              scaleDownUtilizationThreshold: 0.65
              scaleDownGpuUtilizationThreshold: 1
              scaleDownUnneededTime: 5m
              scaleDownUnreadyTime: 0s
              maxNodeProvisionTime: 10m
              maxNodeStartupTime: 3m
              zeroOrMaxNodeScaling: false
              ignoreDaemonSetsUtilization: true
              allowNonAtomicScaleUpToMax: true
            price: {hourly: "0.05", currency: EUR}
        """,
        tmp_path,
    )
    [group] = config.groups()
    assert group.machine == {"shape": "4c8g", "disks": [{"size": 5}]}
    template = group.template
    assert template.labels == {"pool": "lab", "example.com/tier": ""}
    assert template.annotations == {"example.com/note": "what ever: it is"}
    assert [taint.as_taint() for taint in template.taints] == [
        Taint(key="dedicated", value="batch"),
        Taint(key="dedicated", effect="NoExecute"),
    ]
    assert template.capacity == {
        "cpu": Quantity(4),
        "memory": Quantity("8Gi"),
        "ephemeral-storage": Quantity("100G"),
        "nvidia.com/gpu": Quantity(1),
    }
    assert (template.allocatable, template.reserved) == ({"cpu": Quantity("3900m")}, {"memory": Quantity("500Mi")})
    assert (template.eviction_hard.memory, template.eviction_hard.nodefs) == ("5%", "1Gi")
    assert group.options.as_options() == AutoscalingOptions(
        scale_down_utilization_threshold=0.65,
        scale_down_gpu_utilization_threshold=1.0,
        scale_down_unneeded_time=timedelta(minutes=5),
        scale_down_unready_time=timedelta(0),
        max_node_provision_time=timedelta(minutes=10),
        max_node_startup_time=timedelta(minutes=3),
        zero_or_max_node_scaling=False,
        ignore_daemon_sets_utilization=True,
        allow_non_atomic_scale_up_to_max=True,
    )
    assert group.price is not None
    assert (group.price.hourly, group.price.currency) == (Decimal("0.05"), "EUR")


def test_zones_make_a_group_each(tmp_path: Path) -> None:
    config = _parse(
        """
        nodeGroups:
          - {id: g, cloud: lab, maxSize: 2, zones: [a, b], machine: {shape: s}}
          - {id: h, cloud: sim, maxSize: 1}
        """,
        tmp_path,
    )
    assert [(g.id, g.index, g.zone, g.machine) for g in config.groups()] == [
        ("g-a", 0, "a", {"shape": "s", "zone": "a"}),
        ("g-b", 0, "b", {"shape": "s", "zone": "b"}),
        ("h", 1, "", {}),
    ]


def test_zones_and_shapes_together_make_a_group_for_each_pair(tmp_path: Path) -> None:
    config = _parse("nodeGroups: [{id: g, cloud: lab, maxSize: 2, zones: [a, b], shapes: [s, l]}]", tmp_path)
    assert [(g.id, g.shape, g.zone, g.spread) for g in config.groups()] == [
        ("g-s-a", "s", "a", ("shape", "zone")),
        ("g-s-b", "s", "b", ("shape", "zone")),
        ("g-l-a", "l", "a", ("shape", "zone")),
        ("g-l-b", "l", "b", ("shape", "zone")),
    ]


def test_secrets_in_machine_settings_are_in_no_repr(tmp_path: Path) -> None:
    config = _parse("nodeGroups: [{id: g, cloud: lab, maxSize: 2, machine: {pin: hunter2}}]", tmp_path)
    assert "hunter2" not in repr(config)
    assert "hunter2" not in repr(config.groups())


# -- bad ones ---------------------------------------------------------------------------------------------------------

WORD = "letters, digits, '-', '_' and '.', at most 63, beginning and ending with a letter or digit"
GROUPS = {
    "id missing": ("cloud: lab, maxSize: 1", "f:3:14: nodeGroups[0].id: is missing (for example id: lab-small)"),
    "id blank": (
        "id: ' ', cloud: lab, maxSize: 1",
        (
            "f:3:19: nodeGroups[0].id: must be 1 to 1024 characters, without control characters and without spaces at "
            "its ends (for example lab-small)"
        ),
    ),
    "max missing": ("id: g, cloud: lab", "f:3:14: nodeGroups[0].maxSize: is missing (for example maxSize: 10)"),
    "min above max": (
        "id: g, cloud: lab, minSize: 3, maxSize: 2",
        "f:3:55: nodeGroups[0].maxSize: must not be less than minSize, which is 3",
    ),
    "negative": (
        "id: g, cloud: lab, minSize: -1, maxSize: 2",
        "f:3:43: nodeGroups[0].minSize: must be a number of machines (for example 10)",
    ),
    "cloud misspelt": (
        "id: g, cloud: labb, maxSize: 1",
        "f:3:29: nodeGroups[0].cloud: there is no cloud labb (did you mean lab?)",
    ),
    "unknown cloud": (
        "id: g, cloud: moon, maxSize: 1",
        "f:3:29: nodeGroups[0].cloud: there is no cloud moon (there is: lab, sim)",
    ),
    "typo": (
        "id: g, cloud: lab, maxSize: 1, zone: [a]",
        "f:3:46: nodeGroups[0].zone: unknown key (did you mean zones?)",
    ),
    "no zones": ("id: g, cloud: lab, maxSize: 1, zones: []", "f:3:53: nodeGroups[0].zones: needs at least one entry"),
    "zone twice": (
        "id: g, cloud: lab, maxSize: 1, zones: [a, a]",
        "f:3:57: nodeGroups[0].zones[1]: a is there twice (each becomes a group, so name it once)",
    ),
    "zones and zone": (
        "id: g, cloud: lab, maxSize: 1, zones: [a], machine: {zone: b}",
        ("f:3:53: nodeGroups[0].zones: does not go together with machine.zone, which it sets (remove one of the two)"),
    ),
    "zones and label": (
        "id: g, cloud: lab, maxSize: 1, zones: [a], template: {labels: {topology.kubernetes.io/zone: b}}",
        (
            "f:3:53: nodeGroups[0].zones: does not go together with the label topology.kubernetes.io/zone, "
            "which it sets (remove one of the two)"
        ),
    ),
    "shapes and shape": (
        "id: g, cloud: lab, maxSize: 1, shapes: [a], machine: {shape: b}",
        (
            "f:3:54: nodeGroups[0].shapes: does not go together with machine.shape, which it sets "
            "(remove one of the two)"
        ),
    ),
    "one price for several shapes": (
        "id: g, cloud: lab, maxSize: 1, shapes: [a, b], price: {hourly: '1', currency: EUR}",
        ("f:3:54: nodeGroups[0].shapes: of more than one kind cannot have one price (write a group for each shape)"),
    ),
    "number that is none": (
        "id: g, cloud: lab, maxSize: 1, machine: {a: [{b: .inf}]}",
        "f:3:64: nodeGroups[0].machine.a[0].b: must be a finite number",
    ),
    "label key": (
        "id: g, cloud: lab, maxSize: 1, template: {labels: {-a: b}}",
        (
            f"f:3:66: nodeGroups[0].template.labels.-a: a label's key must be {WORD}; a domain and a slash may stand "
            "before it (for example example.com/pool)"
        ),
    ),
    "label domain": (
        "id: g, cloud: lab, maxSize: 1, template: {labels: {Example.com/a: b}}",
        (
            'f:3:66: nodeGroups[0].template.labels."Example.com/a": what is before the slash of a label\'s key must be '
            "a domain in lower case (for example example.com/pool)"
        ),
    ),
    "label value": (
        "id: g, cloud: lab, maxSize: 1, template: {labels: {a: 'b c'}}",
        f"f:3:69: nodeGroups[0].template.labels.a: a label's value must be empty, or {WORD}",
    ),
    "norway as a label": (
        "id: g, cloud: lab, maxSize: 1, template: {labels: {country: no}}",
        ('f:3:75: nodeGroups[0].template.labels.country: must be a string, but YAML reads no as false (write "no")'),
    ),
    "taint effect": (
        "id: g, cloud: lab, maxSize: 1, template: {taints: [{key: a, effect: NoSchedul}]}",
        (
            "f:3:83: nodeGroups[0].template.taints[0].effect: must be one of NoSchedule, PreferNoSchedule, NoExecute "
            "(did you mean NoSchedule?)"
        ),
    ),
    "taint without effect": (
        "id: g, cloud: lab, maxSize: 1, template: {taints: [{key: a}]}",
        "f:3:66: nodeGroups[0].template.taints[0].effect: is missing (for example effect: NoSchedule)",
    ),
    "taint twice": (
        "id: g, cloud: lab, maxSize: 1, template: {taints: [{key: a, effect: NoExecute}, {key: a, effect: NoExecute}]}",
        "f:3:101: nodeGroups[0].template.taints[1].key: a node has only one taint a with NoExecute (remove one)",
    ),
    "quantity": (
        "id: g, cloud: lab, maxSize: 1, template: {capacity: {memory: 8GB}}",
        (
            "f:3:76: nodeGroups[0].template.capacity.memory: '8GB' is not a quantity "
            '(write a number with an optional unit, such as "4", "500m", "1.5Gi", "2G" or "1e3")'
        ),
    ),
    "negative quantity": (
        "id: g, cloud: lab, maxSize: 1, template: {reserved: {cpu: -1}}",
        "f:3:73: nodeGroups[0].template.reserved.cpu: must not be negative (for example 4, 500m or 16Gi)",
    ),
    "half a pod": (
        "id: g, cloud: lab, maxSize: 1, template: {capacity: {pods: 1.5}}",
        "f:3:74: nodeGroups[0].template.capacity.pods: must be a whole number",
    ),
    "boolean quantity": (
        "id: g, cloud: lab, maxSize: 1, template: {capacity: {cpu: yes}}",
        "f:3:73: nodeGroups[0].template.capacity.cpu: must be a quantity (for example 4, 500m or 16Gi)",
    ),
    "threshold": (
        "id: g, cloud: lab, maxSize: 1, template: {evictionHard: {memory.available: 101%}}",
        (
            'f:3:90: nodeGroups[0].template.evictionHard."memory.available": must be between 0% and 100% '
            "(for example 10%)"
        ),
    ),
    "option": (
        "id: g, cloud: lab, maxSize: 1, options: {scaleDownUnneeded: 5m}",
        "f:3:56: nodeGroups[0].options.scaleDownUnneeded: unknown key (did you mean scaleDownUnneededTime?)",
    ),
    "provision time of zero": (
        "id: g, cloud: lab, maxSize: 1, options: {maxNodeProvisionTime: 0s}",
        "f:3:78: nodeGroups[0].options.maxNodeProvisionTime: must be more than zero (for example 5s)",
    ),
    "price": (
        "id: g, cloud: lab, maxSize: 1, price: {hourly: 0.05, currency: EUR}",
        'f:3:62: nodeGroups[0].price.hourly: must be a string, but YAML reads 0.05 as a number (write "0.05")',
    ),
}


@pytest.mark.parametrize(("entry", "expected"), GROUPS.values(), ids=list(GROUPS))
def test_a_wrong_group_gives_one_line(tmp_path: Path, entry: str, expected: str) -> None:
    assert _lines(f"nodeGroups: [{{{entry}}}]", tmp_path) == [expected]


def test_a_group_without_any_cloud_to_be_in_is_told_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        parse("cluster: a\nnodeGroups: [{id: g, cloud: lab, maxSize: 1}]", tmp_path, name="f")
    assert str(caught.value) == ("f:2:29: nodeGroups[0].cloud: there is no cloud lab (write clouds with its driver)")


def test_what_is_wrong_between_groups_is_told_with_what_is_wrong_in_them(tmp_path: Path) -> None:
    """All at once: cross checks look at the file, not at what came out of it."""
    assert _lines(
        """\
        guards: {maxSpendPerDay: {amount: "5", currency: USD}}
        nodeGroups:
          - {id: g-a, cloud: lab, maxSize: one, price: {hourly: "1", currency: EUR}}
          - {id: g, cloud: moon, maxSize: 1, zones: [a, b]}
          - {id: h, cloud: lab, maxSize: 1, labels: {}}
          - {id: h, cloud: lab, maxSize: 1, price: {hourly: "1", currency: USD}}
        """,
        tmp_path,
    ) == [
        "f:3:50: guards.maxSpendPerDay.currency: is USD, but EUR in line 5 (all prices and limits are in one currency)",
        "f:5:36: nodeGroups[0].maxSize: must be a whole number, not a string",
        "f:6:10: nodeGroups[1].id: the id g-a is there twice, first in line 5 (every group needs an id of its own)",
        "f:6:20: nodeGroups[1].cloud: there is no cloud moon (there is: lab, sim)",
        (
            "f:7:37: nodeGroups[2].labels: unknown key (known here: cloud, id, join, machine, maxSize, minSize, "
            "options, price, shapes, template, zones)"
        ),
        "f:8:10: nodeGroups[3].id: the id h is there twice, first in line 7 (every group needs an id of its own)",
        "f:8:68: nodeGroups[3].price.currency: is USD, but EUR in line 5 (all prices and limits are in one currency)",
    ]


def test_an_id_that_is_too_long_with_its_zone_is_told(tmp_path: Path) -> None:
    [line] = _lines(f"nodeGroups: [{{id: {'g' * 1024}, cloud: lab, maxSize: 1, zones: [a]}}]", tmp_path)
    assert line == "f:3:19: nodeGroups[0].id: is longer than 1024 characters with zone and shape"


# -- prices under a spend guard ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guards", "expected"),
    [
        ("", []),
        ("guards: {maxSpendPerDay: {amount: '5', currency: EUR}}", ["nodeGroups[0].price", "nodeGroups[1].price"]),
    ],
)
def test_under_a_spend_guard_every_group_needs_a_price(tmp_path: Path, guards: str, expected: list[str]) -> None:
    """Law 10. Whether the driver has a price is known later; then this tells where one is missing."""
    config = _parse(
        f"{guards}\nnodeGroups: [{{id: g, cloud: lab, maxSize: 1, zones: [a, b]}}, {{id: h, cloud: sim, maxSize: 1}}]",
        tmp_path,
    )
    problems = missing_prices(config, {"g-a", "g-b", "h"})
    assert [problem.key for problem in problems] == expected
    assert missing_prices(config, set()) == []


def test_a_clouds_spend_guard_is_about_its_own_groups(tmp_path: Path) -> None:
    money = "{amount: '5', currency: EUR}"
    lab = f"lab: {{driver: plugin, command: [a], engine: {{guards: {{maxSpendPerDay: {money}}}}}}}"
    config = parse(
        f"cluster: a\nclouds: {{{lab}, sim: {{driver: plugin, command: [a]}}}}\n"
        "nodeGroups: [{id: g, cloud: lab, maxSize: 1}, {id: h, cloud: sim, maxSize: 1}]",
        tmp_path,
        name="f",
    )
    [problem] = missing_prices(config, {"g", "h"})
    assert str(problem) == (
        "f:3:14: nodeGroups[0].price: is missing: the driver plugin knows no price, and maxSpendPerDay needs one of "
        'every group (for example price: {hourly: "0.05", currency: EUR})'
    )


# -- machine settings -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Disk:
    size_gb: int = 1
    image: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Settings:
    shape: str
    zone: str = ""
    user_data_file: str = ""
    disks: tuple[Disk, ...] = ()
    wait: timedelta = timedelta(0)


@dataclass(frozen=True, kw_only=True)
class Bare:
    size: int = 0


def _settings(settings_type: type | None, entry: str, base_dir: Path) -> dict[str, object]:
    config = _parse(f"nodeGroups: [{{id: g, cloud: lab, maxSize: 1, {entry}}}]", base_dir)
    group = config.groups()[0]
    return machine_settings(settings_type, group, config.where("nodeGroups", group.index))


def test_a_driver_gets_the_settings_of_the_file_with_absolute_paths(tmp_path: Path) -> None:
    entry = "zones: [a], machine: {shape: s, userDataFile: join.yaml, wait: 5s, disks: [{sizeGb: 2, image: i.img}, {}]}"
    assert _settings(Settings, entry, tmp_path) == {
        "shape": "s",
        "zone": "a",
        "userDataFile": str(tmp_path / "join.yaml"),
        "wait": "5s",
        "disks": [{"sizeGb": 2, "image": str(tmp_path / "i.img")}, {}],
    }


def test_a_driver_that_declares_no_settings_gets_them_as_they_are(tmp_path: Path) -> None:
    assert _settings(None, "machine: {userDataFile: join.yaml, x: [1]}", tmp_path) == {
        "userDataFile": "join.yaml",
        "x": [1],
    }


def test_wrong_settings_are_told_with_their_place_and_without_their_value(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        _settings(Settings, "machine: {shap: s, disks: [{sizeGb: 0x1f}, {size: 7}], shape: 12.50}", tmp_path)
    assert str(caught.value).splitlines() == [
        "f:3:56: nodeGroups[0].machine.shap: unknown key (did you mean shape?)",
        "f:3:90: nodeGroups[0].machine.disks[1].size: unknown key (did you mean sizeGb?)",
        "f:3:108: nodeGroups[0].machine.shape: must be a string, but YAML reads it as a number (put it into quotes)",
    ]


def test_zones_of_a_driver_without_zones_are_told_where_they_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        _settings(Bare, "zones: [a], shapes: [s], machine: {size: much}", tmp_path)
    assert str(caught.value).splitlines() == [
        "f:3:53: nodeGroups[0].zones: the machines of this driver have no zone (remove it)",
        "f:3:66: nodeGroups[0].shapes: the machines of this driver have no shape (remove it)",
        "f:3:87: nodeGroups[0].machine.size: must be a whole number, not a string",
    ]
