"""What a configuration file may say, and what it may not."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.drivers.proxmox.options import MachineSettings, ProxmoxOptions, ShapeOptions
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.validation import read_settings

GOOD: dict[str, Any] = {
    "url": "https://pve.example:8006",
    "user": "cloudgraft@pve!scaler",
    "token_file": Path("token"),
    "region": "lab",
    "shapes": {"small": ShapeOptions(cpu=2, memory="4Gi", disk="40Gi")},
}


def test_shapes_have_what_kubernetes_counts() -> None:
    (shape,) = ProxmoxOptions(**GOOD).offers()
    assert shape.capacity["memory"] == Quantity("4Gi")
    assert shape.capacity["ephemeral-storage"] == Quantity("40Gi")
    assert shape.labels["node.kubernetes.io/instance-type"] == "small"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"url": "pve.example"}, "https://pve.example:8006"),
        ({"url": "http://pve.example:8006"}, "readable on the way"),
        ({"fallback_urls": ["ftp://pve"]}, "not an address"),
        ({"url": "https://pve:port"}, "not an address"),
        ({"user": "cloudgraft"}, "cloudgraft@pve"),
        ({"user": "cloudgraft@pve"}, "without !"),
        ({"token_file": None}, "either tokenFile or passwordFile"),
        ({"password_file": Path("password")}, "either tokenFile or passwordFile"),
        ({"region": ""}, "region"),
        ({"pool": "a/b"}, "pool"),
        ({"nodes": ["pve 1"]}, "nodes"),
        ({"shapes": {}}, "shapes"),
        ({"insecure": True, "ca_file": Path("ca")}, "caFile"),
        ({"first_vmid": 99}, "firstVmid"),
        ({"first_vmid": 500, "last_vmid": 600}, "1000 VMIDs"),
        ({"memory_reserve": "much"}, "memoryReserve"),
        ({"cpu_ratio": -1.0}, "cpuRatio"),
        ({"timeout": timedelta(0)}, "timeout"),
        ({"list_delay": timedelta(seconds=-1)}, "listDelay"),
    ],
)
def test_what_can_never_work_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        ProxmoxOptions(**{**GOOD, **given})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"cpu": 0}, "cpu"),
        ({"memory": "1Ki"}, "memory"),
        ({"memory": "100M"}, "whole number of MiB"),
        ({"disk": 0}, "disk"),
        ({"pods": -1}, "pods"),
    ],
)
def test_shapes_that_no_machine_can_have_are_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        ShapeOptions(**{"cpu": 1, "memory": "1Gi", **given})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"template": True}, "template"),
        ({"template": ""}, "template"),
        ({"template": None}, "template"),
        ({"storage": "ceph"}, "fullClone"),
        ({"fullClone": "maybe"}, "fullClone"),
        ({"bridge": "a b"}, "bridge"),
        ({"vlan": 7}, "bridge"),
        ({"vlan": "x", "bridge": "vmbr0"}, "vlan"),
        ({"model": "ne2k"}, "model"),
        ({"disk": "hda"}, "disk"),
        ({"seedDrive": "virtio1"}, "seedDrive"),
        ({"shape": ""}, "shape"),
        ({"flavour": "x"}, "flavour"),
    ],
)
def test_a_machine_section_that_makes_no_sense_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        read_settings(MachineSettings, {"shape": "small", "template": 9000, **given})


def test_a_wider_range_and_http_to_this_machine_are_fine() -> None:
    ProxmoxOptions(**{**GOOD, "url": "http://127.0.0.1:8006", "first_vmid": 5000, "last_vmid": 5999})
    ProxmoxOptions(**{**GOOD, "url": "http://pve.example:8006", "insecure": True})
