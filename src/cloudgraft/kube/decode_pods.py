"""Pods, from the API's JSON: as they are shown, and as what they take of their nodes."""

from __future__ import annotations

import msgspec

from cloudgraft.kube.decode_meta import Meta, amounts, common, labels
from cloudgraft.kube.objects import ContainerRef, Pod, PodLoad
from cloudgraft.sdk.pod_requests import pod_requests
from cloudgraft.sdk.types import Container
from cloudgraft.sdk.types import Pod as PricedPod

__all__ = ["LoadJson", "PodJson", "load", "pod"]


class _Container(msgspec.Struct, rename="camel"):
    name: str
    image: str = ""
    restart_policy: str = ""


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    host_network: bool = False
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None


class _PodStatus(msgspec.Struct):
    phase: str = ""


class PodJson(msgspec.Struct):
    """A pod."""

    metadata: Meta
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _Requirements(msgspec.Struct):
    requests: dict[str, str | int] | None = None


class _LoadContainer(msgspec.Struct, rename="camel"):
    restart_policy: str = ""
    resources: _Requirements = msgspec.field(default_factory=_Requirements)


class _LoadSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    containers: list[_LoadContainer] | None = None
    init_containers: list[_LoadContainer] | None = None
    overhead: dict[str, str | int] | None = None


class LoadJson(msgspec.Struct):
    """A pod with what its containers ask for."""

    metadata: Meta
    spec: _LoadSpec = msgspec.field(default_factory=_LoadSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


def _containers(wire: list[_Container] | None) -> tuple[ContainerRef, ...]:
    return tuple(ContainerRef(name=c.name, image=c.image, is_sidecar=c.restart_policy == "Always") for c in wire or ())


def pod(wire: PodJson) -> Pod:
    """Where it runs, and what is in it."""
    return Pod(
        **common(wire.metadata),
        node=wire.spec.node_name,
        phase=wire.status.phase or "Pending",
        host_network=wire.spec.host_network,
        containers=_containers(wire.spec.containers),
        init_containers=_containers(wire.spec.init_containers),
    )


def _asking(wire: list[_LoadContainer] | None) -> tuple[Container, ...]:
    return tuple(
        Container(requests=amounts(container.resources.requests), restart_policy=container.restart_policy)
        for container in wire or ()
    )


def load(wire: LoadJson) -> PodLoad:
    """What it takes of its node."""
    spec = wire.spec
    priced = PricedPod(
        containers=_asking(spec.containers),
        init_containers=_asking(spec.init_containers),
        overhead=amounts(spec.overhead),
    )
    return PodLoad(
        **common(wire.metadata),
        node=spec.node_name,
        phase=wire.status.phase or "Pending",
        labels=labels(wire.metadata),
        requests=pod_requests(priced),
    )
