"""Machine types: those of the options, since vSphere has none."""

from __future__ import annotations

from collections.abc import Sequence

from cloudgraft.drivers.vsphere.options import ShapeOptions, Size, VsphereOptions
from cloudgraft.sdk.driver import Shape
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.quantity import Quantity

__all__ = ["shapes_of", "size_of"]


def shapes_of(options: VsphereOptions) -> Sequence[Shape]:
    """All of them."""
    return [_shape(name, given) for name, given in options.shapes.items()]


def size_of(options: VsphereOptions, shape: str) -> Size:
    """Of one; raises InvalidArgumentError that names those that there are."""
    given = options.shapes.get(shape)
    if given is None:
        raise InvalidArgumentError(f"there is no shape {shape!r}; the cloud's shapes are {', '.join(options.shapes)}")
    return given.size()


def _shape(name: str, given: ShapeOptions) -> Shape:
    capacity = {"cpu": Quantity(given.cpu), "memory": Quantity(given.memory), "pods": Quantity(given.pods)}
    if given.disk is not None:
        capacity["ephemeral-storage"] = Quantity(given.disk)
    capacity |= {key: Quantity(amount) for key, amount in given.extra.items()}
    return Shape(name=name, capacity=capacity, labels={"node.kubernetes.io/instance-type": name, **given.labels})
