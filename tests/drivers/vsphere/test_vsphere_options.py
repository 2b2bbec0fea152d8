"""What a file may say about a vCenter and its machines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.drivers.vsphere.options import MachineSettings, ShapeOptions, Size, VsphereOptions, shapes_of, size_of
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.validation import read_settings


def options(**changes: Any) -> VsphereOptions:
    given: dict[str, Any] = {
        "server": "vcenter.example",
        "user": "cloudgraft@vsphere.local",
        "password_file": Path("password"),
        "datacenter": "DC0",
        "cluster": "C0",
        "shapes": {"small": ShapeOptions(cpu=2, memory="4Gi", disk="40Gi")},
    }
    return VsphereOptions(**{**given, **changes})


@pytest.mark.parametrize(
    ("server", "address"),
    [
        ("vcenter.example", ("vcenter.example", 443)),
        ("10.0.0.1:8989", ("10.0.0.1", 8989)),
        ("[::1]", ("::1", 443)),
        ("[::1]:8443", ("::1", 8443)),
    ],
)
def test_the_address_has_a_port_or_https_own(server: str, address: tuple[str, int]) -> None:
    assert options(server=server).address() == address


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"server": "https://root:hunter2hunter2@vcenter.example"}, "server"),
        ({"user": ""}, "user"),
        ({"datacenter": "/"}, "datacenter"),
        ({"folder": ""}, "folder"),
        ({"cluster": ""}, "resourcePool"),
        ({"insecure": True, "ca_file": Path("ca.crt")}, "caFile"),
        ({"datastore": "a", "datastore_cluster": "b"}, "datastoreCluster"),
        ({"shapes": {}}, "shapes"),
        ({"page_size": 0}, "pageSize"),
    ],
)
def test_what_can_never_work_is_refused_at_the_start(changes: Mapping[str, Any], word: str) -> None:
    with pytest.raises(InvalidArgumentError, match=word) as caught:
        options(**changes)
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize(
    ("shape", "word"),
    [
        ({"cpu": 0, "memory": "4Gi"}, "cpu"),
        ({"cpu": 2, "memory": "1001Ki"}, "memory"),
        ({"cpu": 2, "memory": "a lot"}, "memory"),
        ({"cpu": 2, "memory": "4Gi", "disk": "1Ki"}, "disk"),
        ({"cpu": 2, "memory": "4Gi", "extra": {"nvidia.com/gpu": "x"}}, "nvidia"),
    ],
)
def test_a_shape_that_no_machine_can_have_is_refused(shape: Mapping[str, Any], word: str) -> None:
    with pytest.raises(InvalidArgumentError, match=word):
        ShapeOptions(**shape)


def test_a_shape_is_told_in_the_units_of_the_api_and_of_kubernetes() -> None:
    assert size_of(options(), "small") == Size(cpus=2, memory_mib=4096, disk_bytes=40 << 30)
    (shape,) = shapes_of(options())
    assert shape.capacity == {
        "cpu": Quantity(2),
        "memory": Quantity("4Gi"),
        "pods": Quantity(110),
        "ephemeral-storage": Quantity("40Gi"),
    }
    assert shape.labels == {"node.kubernetes.io/instance-type": "small"}


def test_an_unknown_shape_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(InvalidArgumentError, match="small"):
        size_of(options(), "huge")


def test_a_group_says_its_own_in_the_words_of_the_file() -> None:
    own = {"linkedClone": True, "resourcePool": "nodes", "networks": ["a"], "extraConfig": {"x": "1"}}
    assert read_settings(MachineSettings, {"shape": "small", **own}) == MachineSettings(
        shape="small", linked_clone=True, resource_pool="nodes", networks=["a"], extra_config={"x": "1"}
    )


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({}, "shape"),
        ({"shape": "small", "nets": []}, "nets"),
        ({"shape": "small", "networks": "a"}, "networks"),
        ({"shape": "small", "extraConfig": "x"}, "extraConfig"),
        ({"shape": "small", "extraConfig": {"guestinfo.userdata": "x"}}, "guestinfo"),
        ({"shape": "small", "extraConfig": {"CloudGraft.name": "x"}}, "CloudGraft"),
        ({"shape": "small", "snapshot": "base"}, "linkedClone"),
        ({"shape": "small", "datastore": "a", "datastoreCluster": "b"}, "datastoreCluster"),
    ],
)
def test_a_section_that_makes_no_sense_is_refused(given: Mapping[str, object], word: str) -> None:
    with pytest.raises(InvalidArgumentError, match=word):
        read_settings(MachineSettings, given)
