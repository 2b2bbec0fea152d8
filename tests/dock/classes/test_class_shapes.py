"""What a machine class tells of its nodes."""

from __future__ import annotations

from typing import Any

import pytest

from cloudgraft.dock.protocol.messages import Key, MachineClass
from cloudgraft.dock.slot import shape_of
from cloudgraft.sdk.driver import Shape
from cloudgraft.sdk.errors import InvalidArgumentError, UnsupportedError
from cloudgraft.sdk.quantity import Quantity


def of(template: dict[str, Any]) -> Shape:
    key = Key(kind="A", api_version="v1")
    return shape_of(MachineClass(name="small", key=key, revision=1, node_template=template))


def test_a_whole_node_template_becomes_a_shape() -> None:
    shape = of(
        {
            "capacity": {"cpu": 2, "memory": "4Gi", "gpu": "1", "ephemeral-storage": "50Gi"},
            "virtualCapacity": {"example.com/dongle": "3"},
            "instanceType": "m5.large",
            "region": "eu-1",
            "zone": "eu-1a",
            "architecture": "arm64",
            "labels": {"pool": "lab"},
        }
    )
    assert shape.name == "m5.large"
    assert shape.capacity == {
        "pods": Quantity(110),
        "cpu": Quantity(2),
        "memory": Quantity("4Gi"),
        "ephemeral-storage": Quantity("50Gi"),
        "example.com/dongle": Quantity(3),
        "nvidia.com/gpu": Quantity(1),
    }
    assert shape.labels == {
        "pool": "lab",
        "kubernetes.io/arch": "arm64",
        "topology.kubernetes.io/region": "eu-1",
        "topology.kubernetes.io/zone": "eu-1a",
    }


def test_a_small_one_is_named_after_its_class_and_has_no_gpu_that_is_none() -> None:
    """A key `gpu: 0` is mandatory in such objects; a node has no resource for it."""
    shape = of({"capacity": {"cpu": "500m", "memory": 1.5e9, "gpu": 0, "pods": "20"}})
    assert (shape.name, shape.labels) == ("small", {})
    assert shape.capacity == {"cpu": Quantity("0.5"), "memory": Quantity("1500000000"), "pods": Quantity(20)}


def test_without_a_node_template_the_shape_is_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="machine class small has no nodeTemplate"):
        of({})


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ({"capacity": []}, "nodeTemplate of machine class small: capacity is not a mapping"),
        ({"capacity": {"cpu": "two"}}, "nodeTemplate of machine class small: capacity.cpu: "),
        ({"capacity": {"cpu": True}}, "nodeTemplate of machine class small: capacity.cpu: "),
        ({"capacity": {"cpu": "-1"}}, "nodeTemplate of machine class small: capacity.cpu is negative"),
        ({"capacity": {"cpu": float("inf")}}, "nodeTemplate of machine class small: capacity.cpu: "),
        ({"zone": 1}, "nodeTemplate of machine class small: zone is not text"),
        ({"labels": {"a": False}}, "nodeTemplate of machine class small: a is not text"),
    ],
)
def test_errors_of_a_node_template_name_its_class(template: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        of(template)
    assert caught.value.message.startswith(told)
