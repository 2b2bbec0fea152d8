"""What a machine of a class will be as a node, before there is one: for the templates of the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cloudgraft.dock.protocol.messages import MachineClass
from cloudgraft.engine.groups.templates import ARCH, REGION, ZONE
from cloudgraft.sdk.driver import Shape
from cloudgraft.sdk.errors import InvalidArgumentError, UnsupportedError
from cloudgraft.sdk.quantity import InvalidQuantityError, Quantity

__all__ = ["shape_of"]

_PODS: Final = Quantity(110)  # what a kubelet takes unless told otherwise
_GPU: Final = "nvidia.com/gpu"
_LABELS: Final = {"architecture": ARCH, "region": REGION, "zone": ZONE}


def shape_of(machine_class: MachineClass) -> Shape:
    """The machine type of a class, named after its ``instanceType``, else after the class.

    Raises UnsupportedError when the class has no node template, InvalidArgumentError when it has a wrong one.
    """
    template = machine_class.node_template
    where = f"nodeTemplate of machine class {machine_class.name}"
    if not template:
        raise UnsupportedError(f"machine class {machine_class.name} has no nodeTemplate: nobody knows what it holds")
    given = {**_mapping(template, "capacity", where), **_mapping(template, "virtualCapacity", where)}
    amounts = {name: _amount(name, value, where) for name, value in given.items()}
    gpu = amounts.pop("gpu", Quantity(0))
    capacity = {"pods": _PODS, **amounts, **({_GPU: gpu} if gpu > Quantity(0) else {})}
    labels = {str(key): _text(key, value, where) for key, value in _mapping(template, "labels", where).items()}
    for field, label in _LABELS.items():
        value = _text(field, template.get(field), where)
        if value:
            labels.setdefault(label, value)
    name = _text("instanceType", template.get("instanceType"), where) or machine_class.name
    return Shape(name=name, capacity=capacity, labels=labels)


def _mapping(template: Mapping[str, object], field: str, where: str) -> Mapping[str, object]:
    value = template.get(field)
    if value is not None and not isinstance(value, Mapping):
        raise InvalidArgumentError(f"{field} in {where} is not a mapping")
    return value or {}


def _amount(name: str, value: object, where: str) -> Quantity:
    """As in Kubernetes' own files: text, or a plain number."""
    try:
        amount = Quantity(str(value) if isinstance(value, float) else value)  # type: ignore[arg-type]  # refused there
    except InvalidQuantityError as error:
        raise InvalidArgumentError(f"capacity.{name} in {where}: {error.message}") from None
    if amount < Quantity(0):
        raise InvalidArgumentError(f"capacity.{name} in {where} is negative")
    return amount


def _text(field: str, value: object, where: str) -> str:
    if value is not None and not isinstance(value, str):
        raise InvalidArgumentError(f"{field} in {where} is not text: put it into quotes")
    return value or ""
