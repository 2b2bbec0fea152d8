"""Defines the `nodeGroups` section: the groups that the autoscaler scales, each in one cloud."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    Field,
    PrivateAttr,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationInfo,
    field_validator,
)

from cloudgraft.config.fields import Duration, Kind, PositiveDuration, Price, Share, Text, refuse
from cloudgraft.config.kubernetes import ZONE_LABEL, Amounts, Annotations, Labels, LabelValue, Taints, Threshold
from cloudgraft.config.section import Section
from cloudgraft.config.sections.join import Join
from cloudgraft.sdk.types import AutoscalingOptions
from cloudgraft.validation.problems import KeyPath, printable

LONGEST_ID = 1024
_INT32_MAX = 2**31 - 1


class EvictionHard(Section):
    """The kubelet's eviction thresholds, under its own names. The defaults are the kubelet's."""

    memory: Threshold = Field("100Mi", alias="memory.available", description="Memory.")
    nodefs: Threshold = Field("10%", alias="nodefs.available", description="The disk of pods and logs.")


class Template(Section):
    """The properties of a new node for the scheduler, until the autoscaler has seen a real one.

    It must match the real nodes: it does not change them.
    """

    labels: Labels = Field(
        default_factory=dict, description="Labels beside those for architecture, system, machine type and zone."
    )
    annotations: Annotations = Field(default_factory=dict, description="Annotations.")
    taints: Taints = Field((), description="Permanent taints of nodes.")
    capacity: Amounts = Field(
        default_factory=dict,
        description="Resources that the shape lacks or has in another amount, such as `ephemeral-storage: 100Gi`; "
        "`pods` is 110 unless set here or by the driver.",
    )
    allocatable: Amounts = Field(
        default_factory=dict, description="Resources for pods, where they are not as computed from the next two keys."
    )
    reserved: Amounts = Field(
        default_factory=dict,
        description="Resources reserved for the kubelet and the system: `cpu`, `memory`, `ephemeral-storage`.",
    )
    eviction_hard: EvictionHard = Field(EvictionHard(), description="The kubelet's eviction thresholds.")


class GroupOptions(Section):
    """The autoscaler's options for this group. For a missing key its flags apply.

    Some releases mishandle options; see the page on releases.
    """

    scale_down_utilization_threshold: Share | None = Field(None, description="A node used less may be removed.")
    scale_down_gpu_utilization_threshold: Share | None = Field(None, description="The same for nodes with a GPU.")
    scale_down_unneeded_time: Duration | None = Field(None, description="How long a node must have been unneeded.")
    scale_down_unready_time: Duration | None = Field(None, description="The same for a node that is not ready.")
    max_node_provision_time: PositiveDuration | None = Field(
        None, description="How long a machine may take until its node exists."
    )
    max_node_startup_time: PositiveDuration | None = Field(
        None, description="How long a node may take until it is ready. Only future releases can receive it."
    )
    zero_or_max_node_scaling: StrictBool | None = Field(None, description="All of its machines or none.")
    ignore_daemon_sets_utilization: StrictBool | None = Field(
        None, description="Whether pods of DaemonSets do not count as use."
    )
    allow_non_atomic_scale_up_to_max: StrictBool | None = Field(
        None, description="Whether a group of all or none may grow in steps. Only future releases can receive it."
    )

    def as_options(self) -> AutoscalingOptions | None:
        """Converts it to the sdk's type; None when no option is set."""
        said = {name: value for name, value in self if value is not None}
        return AutoscalingOptions(**said) if said else None


def _id(value: str) -> str:
    if not value.strip() or value != value.strip() or not value.isprintable() or len(value) > LONGEST_ID:
        raise refuse(
            f"must be 1 to {LONGEST_ID} characters, without control characters and without spaces at its ends",
            "for example lab-small",
        )
    return value


def _size(value: int) -> int:
    if not 0 <= value <= _INT32_MAX:
        raise refuse("must be a number of machines", "for example 10")
    return value


def _settings(value: Mapping[str, Any]) -> Mapping[str, Any]:
    for path in _not_finite(value, ()):
        raise refuse("must be a finite number", at=path)
    return value


def _not_finite(value: Any, path: KeyPath) -> Iterator[KeyPath]:
    """Paths of numbers that cannot be sent to a driver."""
    if isinstance(value, float) and not math.isfinite(value):
        yield path
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _not_finite(item, (*path, key))


_Size = Annotated[StrictInt, AfterValidator(_size), Kind("whole number")]


class NodeGroupConfig(Section):
    """A group of equal machines that the autoscaler scales up and down.

    With `zones` or `shapes` it is several groups, one for each of them. Their ids are `id-shape`, `id-zone` or
    `id-shape-zone`; all other keys, the sizes too, apply to each.
    """

    # A field comes after those that it is checked against.
    id: Annotated[StrictStr, AfterValidator(_id), Kind("string")] = Field(
        description="Its id for the autoscaler. It must never change: its machines belong to it by this id.",
        examples=["lab-small"],
    )
    cloud: Text = Field(description="The one of the `clouds` in which its machines are made.", examples=["lab"])
    min_size: _Size = Field(0, description="The autoscaler removes no machine below this number.")
    max_size: _Size = Field(description="There are never more machines than this.", examples=["10"])
    machine: Annotated[Mapping[str, Any], AfterValidator(_settings)] = Field(
        default_factory=dict,
        repr=False,
        description="The driver's settings for a machine, such as `shape: small`; the driver checks them.",
    )
    template: Template = Field(Template(), description="The properties of a new node.")
    options: GroupOptions = Field(GroupOptions(), description="The autoscaler's options for the group.")
    price: Price | None = Field(None, description="The price of a machine, if the driver does not know it.")
    join: Join | None = Field(
        None, description="How its machines become nodes; overrides `join` of the file key by key."
    )
    zones: tuple[LabelValue, ...] = Field(
        (),
        min_length=1,
        description="One group for each: it becomes `machine.zone` and the label `topology.kubernetes.io/zone`.",
        examples=["[a, b]"],
    )
    shapes: tuple[Text, ...] = Field(
        (), min_length=1, description="One group for each: it becomes `machine.shape`.", examples=["[small, large]"]
    )

    @field_validator("max_size")
    @classmethod
    def _check_sizes(cls, value: int, info: ValidationInfo) -> int:
        least: int | None = info.data.get("min_size")
        if least is not None and value < least:
            raise refuse(f"must not be less than minSize, which is {least}")
        return value

    @field_validator("zones")
    @classmethod
    def _check_zones(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        template: Template | None = info.data.get("template")
        if "zone" in (info.data.get("machine") or ()):
            raise refuse("does not go together with machine.zone, which it sets", "remove one of the two")
        if template is not None and ZONE_LABEL in template.labels:
            raise refuse(f"does not go together with the label {ZONE_LABEL}, which it sets", "remove one of the two")
        if "" in value:
            raise refuse("must not be empty", at=(value.index(""),))
        return _without_doubles(value)

    @field_validator("shapes")
    @classmethod
    def _check_shapes(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if "shape" in (info.data.get("machine") or ()):
            raise refuse("does not go together with machine.shape, which it sets", "remove one of the two")
        if len(value) > 1 and info.data.get("price") is not None:
            raise refuse("of more than one kind cannot have one price", "write a group for each shape")
        return _without_doubles(value)

    _index: int = PrivateAttr(0)

    @property
    def index(self) -> int:
        """The index of its entry: ``Config.where("nodeGroups", index)`` is its place in the file."""
        return self._index

    @property
    def shape(self) -> str:
        """The machine type, where the settings have one."""
        shape = self.machine.get("shape")
        return shape if isinstance(shape, str) else ""

    @property
    def zone(self) -> str:
        """Its zone, after :meth:`groups`; empty unless the entry has `zones`."""
        return self.zones[0] if self.zones else ""

    @property
    def spread(self) -> tuple[str, ...]:
        """The keys of `machine` that `shapes` and `zones` set."""
        return tuple(key for key, values in (("shape", self.shapes), ("zone", self.zones)) if values)

    def groups(self, index: int) -> Iterator[NodeGroupConfig]:
        """The groups as the autoscaler sees them, each with at most one shape and zone; ``index`` is the entry's."""
        for id_, shape, zone in fan_out(self.id, self.shapes, self.zones):
            shapes, zones = tuple(filter(None, [shape])), tuple(filter(None, [zone]))
            group = self.model_copy(update={"id": id_, "shapes": shapes, "zones": zones})
            own = dict(zip(group.spread, (*shapes, *zones), strict=True))
            group = group.model_copy(update={"machine": {**self.machine, **own}})
            group._index = index  # noqa: SLF001 - of the same class
            yield group


def _without_doubles(values: tuple[str, ...]) -> tuple[str, ...]:
    for index, value in enumerate(values):
        if value in values[:index]:
            raise refuse(f"{printable(value)} is there twice", "each becomes a group, so name it once", at=(index,))
    return values


def fan_out(id_: str, shapes: Sequence[str], zones: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Id, shape and zone of each group; shape and zone are empty where there are none to choose from."""
    for shape, zone in itertools.product(shapes or ("",), zones or ("",)):
        yield "-".join([id_, *(part for part in (shape, zone) if part)]), shape, zone
