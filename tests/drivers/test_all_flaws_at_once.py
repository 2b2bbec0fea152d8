"""A configuration with many mistakes is refused once, with all of them, each at its own place.

A section whose values have the wrong type cannot be looked at as a whole: pydantic makes no object of it. So there are
two stages within one section, but wrong types of one section and the sense of another come together.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.app.engine_wiring import desired_state
from cloudgraft.config import ConfigError, Where, parse, parse_options
from cloudgraft.validation.document import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Options that make no sense, and the places where that must be told."""

    options: str  # the class
    senseless: Mapping[str, Any]  # right types, wrong sense
    told: Collection[str]
    mistyped: Mapping[str, Any]  # the same file with wrong types, beside what makes no sense in other sections
    told_of_types: Collection[str]


SHAPE = {"cpu": 0, "memory": "much", "disk": "-1Gi"}
CASES = {
    "libvirt": Case(
        options="cloudgraft.drivers.libvirt.options:LibvirtOptions",
        senseless={"uri": "http://kvm1", "shapes": {}, "username": "me", "keepalive": "1ms", "poolReserve": "much"},
        told=["uri", "shapes", "username", "keepalive", "poolReserve"],
        mistyped={
            "shapes": {"a": SHAPE, "b": {**SHAPE, "cpu": 1, "disk": ""}},
            "networks": [{}, {"bridge": "br0", "model": "a b"}],
            "maxMachines": "many",
            "timeout": "1s",
        },
        told_of_types=[
            *("shapes.a.cpu", "shapes.a.memory", "shapes.a.disk", "shapes.b.memory"),
            *("networks[0]", "networks[1].model", "maxMachines", "timeout"),
        ],
    ),
    "openstack": Case(
        options="cloudgraft.drivers.openstack.options:OpenstackOptions",
        senseless={"authUrl": "http://keystone.example", "timeout": "0s", "regionalProviderID": True, "region": ""},
        told=["authUrl", "username", "passwordFile", "project", "timeout", "regionalProviderID"],
        mistyped={"authUrl": 5, "interface": "private", "gpus": ["a100"], "colour": "red"},
        told_of_types=["authUrl", "interface", "gpus", "colour"],
    ),
    "ec2": Case(
        options="cloudgraft.drivers.ec2.options:Ec2Options",
        senseless={
            "region": "eu central",
            "accessKeyIdFile": "id",
            "profile": "prod",
            "endpointUrl": "http://ec2.example",
            "pageSize": 4,
            "prices": {"m7i.large": "-1"},
            "spotPrices": True,
        },
        told=[
            *("region", "accessKeyIdFile", "profile", "endpointUrl", "pageSize"),
            *('prices."m7i.large"', "spotPrices"),
        ],
        mistyped={
            "region": 7,
            "assumeRole": {"roleArn": "nodes", "duration": "1m"},
            "pageSize": "long",
            "listDelay": "soon",
        },
        told_of_types=["region", "assumeRole.roleArn", "assumeRole.duration", "pageSize", "listDelay"],
    ),
    "ec2_asg": Case(
        options="cloudgraft.providers.ec2_asg.options:Ec2AsgOptions",
        senseless={
            "region": "eu central",
            "groups": ["a", ""],
            "overrides": {"b": {}, "c": {}},
            "changeTimeout": "0s",
            "pods": 0,
            "reserved": {"cpu": "-1", "memory": "much"},
        },
        told=["region", "groups", "overrides", "changeTimeout", "pods", "reserved.cpu", "reserved.memory"],
        mistyped={
            "region": "eu-central-1",
            "groups": "a",
            "overrides": {
                "a": {"minSize": -1, "maxSize": -2, "capacity": {"cpu": "x"}, "taints": [{"key": "", "value": ""}]}
            },
            "pods": "many",
        },
        told_of_types=[
            *("groups", "overrides.a.minSize", "overrides.a.maxSize", "overrides.a.capacity.cpu"),
            *("overrides.a.taints[0]", "pods"),
        ],
    ),
    "vsphere": Case(
        options="cloudgraft.drivers.vsphere.options:VsphereOptions",
        senseless={
            "server": "https://vcenter",
            "user": "",
            "passwordFile": "p",
            "datacenter": "/",
            "shapes": {},
            "datastore": "a",
            "datastoreCluster": "b",
            "pageSize": 0,
        },
        told=["server", "user", "datacenter", "cluster", "shapes", "datastore", "pageSize"],
        mistyped={
            "server": "vcenter",
            "user": 3,
            "datacenter": "DC0",
            "shapes": {"a": {**SHAPE, "extra": {"nvidia.com/gpu": "x"}}},
            "networks": "lan",
        },
        told_of_types=[
            *("user", "passwordFile", "networks", "shapes.a.cpu", "shapes.a.memory", "shapes.a.disk"),
            'shapes.a.extra."nvidia.com/gpu"',
        ],
    ),
    "proxmox": Case(
        options="cloudgraft.drivers.proxmox.options:ProxmoxOptions",
        senseless={
            "url": "http://pve.example",
            "fallbackUrls": ["https://pve2", "ftp://pve3"],
            "user": "root",
            "region": "",
            "nodes": ["a", "b c"],
            "shapes": {},
            "firstVmid": 1,
            "deleteTimeout": "0s",
        },
        told=["", "url", "fallbackUrls[1]", "user", "region", "nodes[1]", "shapes", "firstVmid", "deleteTimeout"],
        mistyped={"url": "https://pve", "user": "a@pve", "shapes": {"a": SHAPE}, "nodes": "all", "cpuRatio": "two"},
        told_of_types=["region", "nodes", "cpuRatio", "shapes.a.cpu", "shapes.a.memory", "shapes.a.disk"],
    ),
    "hetzner": Case(
        options="cloudgraft.drivers.hetzner.options:HetznerOptions",
        senseless={
            "tokenFile": "token",
            "location": "",
            "endpoint": "http://api.example",
            "timeout": "0s",
            "listDelay": "-1s",
        },
        told=["location", "endpoint", "timeout", "listDelay"],
        mistyped={"location": 1, "endpoint": [], "timeout": "soon", "token": "secret-word"},
        told_of_types=["tokenFile", "location", "endpoint", "timeout", "token"],
    ),
    "redfish": Case(
        options="cloudgraft.drivers.redfish.options:RedfishOptions",
        senseless={
            "hosts": [{"id": "a", "url": "https://bmc-1"}, {"id": "a", "url": "https://bmc-2"}],
            "concurrency": 0,
            "seedUrl": "ftp://seeds",
            "gracefulTime": "-1s",
        },
        told=["hosts", "hosts[0]", "hosts[1]", "concurrency", "seedUrl", "seedDirectory", "gracefulTime"],
        mistyped={
            "hosts": [{"id": "a", "url": "bmc-1", "system": "1"}, {"id": "b", "url": "http://bmc-2"}],
            "shapes": {"x": {"cpu": "few", "memory": "much", "resources": {"disk": "-1"}}},
            "concurrency": "all",
            "auth": "none",
        },
        told_of_types=[
            *("hosts[0].url", "hosts[0].system", "hosts[1].url", "concurrency", "auth"),
            *("shapes.x.cpu", "shapes.x.memory", "shapes.x.resources.disk"),
        ],
    ),
    "libcloud": Case(
        options="cloudgraft.drivers.libcloud.options:LibcloudOptions",
        senseless={
            "provider": "OVH",
            "secretFile": "s",
            "endpoint": "http://api.example",
            "timeout": "0s",
            "listDelay": "-1s",
        },
        told=["provider", "endpoint", "timeout", "listDelay"],
        mistyped={"provider": 4, "region": ["a"], "listDelay": "soon", "sekretFile": "s"},
        told_of_types=["provider", "region", "listDelay", "sekretFile", "secretFile"],
    ),
    "exec": Case(
        options="cloudgraft.drivers.exec.options:ExecOptions",
        senseless={
            "create": "",
            "delete": "rm 'x",
            "list": "labctl list | jq .",
            "env": {"A B": "x", "CLOUDGRAFT_X": "y", "C": "z"},
            "envFiles": {"C": "c.txt"},
            "concurrency": 0,
            "grace": "1h",
            "listDelay": "-1s",
            "providerID": "lab://all",
            "userDataLimit": -1,
        },
        told=[
            *("create", "delete", "list", "env", "env.CLOUDGRAFT_X", "env.C", "concurrency", "grace", "listDelay"),
            *("providerID", "userDataLimit"),
        ],
        mistyped={
            "create": "a",
            "delete": "b",
            "timeouts": {"create": "0s", "list": "-1s"},
            "ownership": "mine",
            "colour": "red",
        },
        told_of_types=["list", "timeouts.create", "timeouts.list", "ownership", "colour"],
    ),
    "http": Case(
        options="cloudgraft.drivers.http.options:Options",
        senseless={
            "url": "http://machines.example",
            "certFile": "c",
            "caFile": "ca",
            "timeout": "0s",
            "retries": -1,
            "maxBody": 1,
            "providerID": "lab://{id}",
        },
        told=["url", "certFile", "caFile", "timeout", "retries", "maxBody", "providerID"],
        mistyped={"url": 3, "retries": "some", "idempotency": "perhaps"},
        told_of_types=["url", "retries", "idempotency"],
    ),
    "static": Case(
        options="cloudgraft.drivers.static.options:StaticOptions",
        senseless={
            "powerOn": "",
            "powerOff": "off &&",
            "powerOnTime": "-1s",
            "concurrency": 0,
            "machines": [{"id": "a"}, {"id": "a"}],
        },
        told=["powerOn", "powerOff", "powerOnTime", "concurrency", "machines"],
        mistyped={
            "powerOn": "on",
            "machines": [{"id": "", "vars": {"a b": "x"}}, {"id": "b", "varFiles": {"c d": "x"}}],
            "timeouts": {"powerOff": "0s"},
            "stateFile": 7,
        },
        told_of_types=[
            *("powerOff", "machines[0].id", "machines[0].vars", "machines[1].varFiles", "timeouts.powerOff"),
            "stateFile",
        ],
    ),
    "simulated": Case(
        options="cloudgraft.simcloud.options:SimulatedOptions",
        senseless={
            "url": "https://sim.example/v1",
            "timeout": "0s",
            "bootTime": "-1s",
            "pageSize": 0,
            "quota": -1,
            "stock": {"small": -1},
            "prices": {"large": "-1"},
        },
        told=["url", "timeout", "bootTime", "pageSize", "quota", "stock.small", "prices.large"],
        mistyped={
            "shapes": {"big": {**SHAPE, "cpu": "-1", "extra": {"nvidia.com/gpu": "x"}, "hourly": "-1"}},
            "quota": "many",
        },
        told_of_types=[
            *("shapes.big.disk", "shapes.big.cpu", "shapes.big.memory", 'shapes.big.extra."nvidia.com/gpu"'),
            *("shapes.big.hourly", "quota"),
        ],
    ),
    "liqo": Case(
        options="cloudgraft.liqo.options:LiqoOptions",
        senseless={
            "discovery": {"address": "https://x"},
            "sizes": {"all": {"cpu": 1, "memory": "1Gi"}, "S": {"cpu": 1}, "M": {"cpu": "x", "memory": "-1"}},
            "unpeerAfter": "-1s",
            "lookEvery": "0s",
            "reserveFor": "1m",
            "priceCap": "-1",
            "clusterID": "My Cluster",
        },
        told=[
            *("sizes", "sizes.S", "sizes.M.cpu", "sizes.M.memory", "unpeerAfter", "lookEvery", "reserveFor"),
            *("priceCap", "clusterID"),
        ],
        mistyped={
            "discovery": {"address": "", "certFile": "c", "timeout": "0s"},
            "networking": {"serviceType": "ClusterIP", "port": 0, "mtu": 1},
            "timeouts": {"api": "0s", "node": "-1s"},
            "strategy": "dearest",
        },
        told_of_types=[
            *("discovery.address", "discovery.certFile", "discovery.timeout", "networking.serviceType"),
            *("networking.port", "networking.mtu", "timeouts.api", "timeouts.node", "sizes", "strategy"),
        ],
    ),
    "dock": Case(
        options="cloudgraft.dock.driver:DockOptions",
        senseless={
            "kind": "",
            "apiVersion": "v\u00e9",
            "machineClass": "small",
            "certFile": "c",
            "tokenFile": "t",
            "createTimeout": "0s",
            "listDelay": "-1s",
            "providerID": "x://",
        },
        told=["kind", "apiVersion", "certFile", "tokenFile", "createTimeout", "listDelay", "providerID"],
        mistyped={"kind": "K", "apiVersion": 1, "machineClass": ["a"], "completeList": "mostly"},
        told_of_types=["apiVersion", "machineClass", "completeList"],
    ),
    "router": Case(
        options="cloudgraft.drivers.router.options:RouterOptions",
        senseless={
            "shapes": {"a": [], "b": [{"cloud": "x"}, {"cloud": "x"}]},
            "coolDown": "-1s",
            "listTimeout": "0s",
        },
        told=["shapes.a", "shapes.b", "coolDown", "listTimeout"],
        mistyped={
            "shapes": {"a": [{"cloud": "x", "price": {"hourly": "-1", "currency": ""}}, {"clod": "y"}]},
            "order": "dearest",
        },
        told_of_types=[
            *("shapes.a[0].price.hourly", "shapes.a[0].price.currency"),
            *("shapes.a[1].cloud", "shapes.a[1].clod", "order"),
        ],
    ),
}
SETTINGS: dict[str, tuple[Mapping[str, Any], Collection[str]]] = {
    "libvirt": ({"shape": "", "size": "much", "boot": None}, ["shape", "size"]),
    "openstack": (
        {"shape": "", "image": "", "networks": ["auto", ""], "metadata": {"a/b": "x" * 300}},
        ["shape", "image", "networks", "metadata"],
    ),
    "ec2": (
        {"subnets": [""], "spotMaxPrice": "-1", "rootVolume": {"size": 8}, "tags": {"Name": "x", "aws:x": "y"}},
        ["shape", "image", "subnets", "spotMaxPrice", "rootVolume.device", "tags"],
    ),
    "vsphere": (
        {"shape": "a", "snapshot": "s", "datastore": "a", "datastoreCluster": "b", "extraConfig": {"": "x"}},
        ["snapshot", "datastore", "extraConfig"],
    ),
    "proxmox": (
        {"shape": "", "template": 0, "storage": "ceph", "vlan": 7, "model": "ne2k", "disk": "hda", "seedDrive": "x"},
        ["shape", "template", "storage", "vlan", "model", "disk", "seedDrive"],
    ),
    "hetzner": (
        {"shape": "", "image": 0, "publicIpv4": False, "publicIpv6": False, "labels": {"cloudgraft-x": "a b"}},
        ["shape", "image", "networks", "labels"],
    ),
    "simulated": ({"shape": "", "taints": [{"key": "", "value": "", "effect": "No"}]}, ["shape", "taints[0]"]),
    "redfish": ({"image": "x", "httpBootUrl": "y", "boot": "Pxe"}, ["image", "httpBootUrl"]),
    "libcloud": (
        {"shape": " ", "image": "", "networks": [""], "diskSize": 0},
        ["shape", "image", "networks", "diskSize"],
    ),
}
MODULES = {
    "simulated": "simcloud.options",
}


def problems(kind: type, section: Mapping[str, Any], *path: str | int) -> list[tuple[str, str]]:
    """Keys and messages, in the order of the places."""
    where = Where(document=Document.without_file("cloudgraft.yaml"), base_dir=Path("/etc/cloudgraft"), path=path)
    with pytest.raises(ConfigError) as caught:
        parse_options(kind, section, where)
    assert "secret-word" not in str(caught.value)
    return [(problem.key, problem.message) for problem in caught.value.problems]


def options_class(name: str) -> type:
    module, _, cls = CASES[name].options.partition(":")
    found: type = getattr(importlib.import_module(module), cls)
    return found


def below(prefix: str, keys: Collection[str]) -> set[str]:
    return {f"{prefix}.{key}" if key else prefix for key in keys}


@pytest.mark.parametrize("driver", CASES)
def test_all_that_makes_no_sense_is_told_at_once(driver: str) -> None:
    case = CASES[driver]
    found = problems(options_class(driver), case.senseless, "clouds", "x")
    assert {key for key, _ in found} == below("clouds.x", case.told)
    assert len(found) == len(set(found)), "nothing is told twice"


@pytest.mark.parametrize("driver", CASES)
def test_wrong_types_come_together_with_what_makes_no_sense_elsewhere(driver: str) -> None:
    case = CASES[driver]
    found = problems(options_class(driver), case.mistyped, "clouds", "x")
    assert {key for key, _ in found} == below("clouds.x", case.told_of_types)


@pytest.mark.parametrize("driver", SETTINGS)
def test_a_groups_machine_section_is_told_of_as_a_whole(driver: str) -> None:
    section, told = SETTINGS[driver]
    module = importlib.import_module(f"cloudgraft.{MODULES.get(driver, f'drivers.{driver}.options')}")
    found = problems(module.MachineSettings, section, "nodeGroups", 0, "machine")
    assert {key for key, _ in found} == below("nodeGroups[0].machine", told)


def test_clouds_and_groups_are_refused_together_at_the_start() -> None:
    file = """
cluster: test
clouds:
  a: {driver: hetzner, tokenFile: t, location: "", timeout: 0s}
  b: {driver: proxmox, url: "https://pve", user: "x@pve!t", tokenFile: t, region: r, shapes: {s: {cpu: 0, memory: x}}}
nodeGroups:
  - {id: one, cloud: a, minSize: 0, maxSize: 1, machine: {shape: "", image: 0}}
  - {id: two, cloud: b, minSize: 0, maxSize: 1, machine: {shape: s, template: 0, model: ne2k}}
"""
    config = parse(file, name="cloudgraft.yaml", base_dir=Path("/etc/cloudgraft"))
    with pytest.raises(ConfigError) as caught:
        desired_state(config)
    assert [(problem.line, problem.key) for problem in caught.value.problems] == [
        (4, "clouds.a.location"),
        (4, "clouds.a.timeout"),
        (5, "clouds.b.shapes.s.cpu"),
        (5, "clouds.b.shapes.s.memory"),
        (7, "nodeGroups[0].machine.shape"),
        (7, "nodeGroups[0].machine.image"),
        (8, "nodeGroups[1].machine.template"),
        (8, "nodeGroups[1].machine.model"),
    ]


def test_a_host_of_a_file_is_told_by_its_number_however_long_the_files_name_is(tmp_path: Path) -> None:
    file = tmp_path / ("a-long-name-" * 10) / "hosts.yaml"
    file.parent.mkdir()
    file.write_text("hosts: [{id: a, url: 'ftp://x', username: me, passwordFile: p, shape: big}]")
    text = f"""
        cluster: lab
        server: {{listen: "127.0.0.1:8086"}}
        clouds: {{metal: {{driver: redfish, hostsFile: {file}}}}}
        nodeGroups: [{{id: g, cloud: metal, maxSize: 1, machine: {{}}}}]
    """
    config = parse(text, name="cloudgraft.yaml", base_dir=tmp_path)
    with pytest.raises(ConfigError) as caught:
        desired_state(config)
    assert f"{file}: hosts[0].url: is no address" in str(caught.value)
