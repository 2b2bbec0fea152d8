"""What a machine of KubeVirt's is made of, as Kubernetes wants it told."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cloudgraft.drivers.common.label_text import HETZNER
from cloudgraft.drivers.libcloud.options import MachineSettings
from cloudgraft.sdk.driver import MachineSpec
from cloudgraft.sdk.errors import InvalidArgumentError

__all__ = [
    "API",
    "MARK",
    "NAME",
    "UNFINISHED",
    "Size",
    "is_unfinished",
    "marks_of",
    "root_of",
    "secret_of",
    "size_of",
    "virtual_machine",
]

API: Final = "kubevirt.io/v1"
MARK: Final = "cloudgraft-cluster-id"  # the label by which ours are listed
NAME: Final = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
UNFINISHED: Final = "cloudgraft/unfinished"  # the annotation of a machine that still lacks its Secret
_INLINE: Final = 2048  # bytes of user data that KubeVirt takes in the machine itself
_SIZE: Final = re.compile(r"([1-9]\d{0,3})x([1-9]\d{0,6})(Mi|Gi)")
_CLONED: Final = ("pvc:", "datasource:")  # how images begin that are cloned to a disk of the machine's own


@dataclass(frozen=True, slots=True)
class Size:
    """CPUs, and memory in MiB."""

    cpu: int
    mib: int


def size_of(shape: str) -> Size:
    """Of a machine type such as 4x8Gi."""
    found = _SIZE.fullmatch(shape)
    if found is None:
        raise InvalidArgumentError(f"machine.shape is {shape!r}: of KUBEVIRT it is CPUs x memory, such as 4x8Gi")
    return Size(int(found[1]), int(found[2]) * (1024 if found[3] == "Gi" else 1))


def root_of(name: str, settings: MachineSettings, namespace: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The volume that a machine boots from, and the disk that is made for it, if it is one of its own."""
    if not settings.image.startswith(_CLONED):
        if settings.disk_size is not None:
            raise InvalidArgumentError("machine.diskSize is of no use with an image that is a container disk")
        return {"containerDisk": {"image": settings.image}}, []
    kind, _, place = settings.image.partition(":")
    where, _, image = place.rpartition("/")
    origin = {"namespace": where or namespace, "name": image}
    if not all(re.fullmatch(NAME, part) for part in origin.values()):
        raise InvalidArgumentError(f"machine.image is {settings.image!r}: write it like pvc:images/debian-12")
    source = {"source": {"pvc": origin}} if kind == "pvc" else {"sourceRef": {"kind": "DataSource", **origin}}
    storage = {"resources": {"requests": {"storage": f"{settings.disk_size}Gi"}}} if settings.disk_size else {}
    disk = {"metadata": {"name": f"{name}-root"}, "spec": {**source, "storage": storage}}
    return {"dataVolume": {"name": f"{name}-root"}}, [disk]


def virtual_machine(spec: MachineSpec, settings: MachineSettings, namespace: str) -> dict[str, Any]:
    """The order of a machine."""
    root, disks = root_of(spec.name, settings, namespace)
    volumes = {"root": root, **_cloud_init(spec)}
    label = {MARK: HETZNER.encode(spec.tags.get(MARK, ""), f"the tag {MARK}")}
    is_whole = "secretRef" not in volumes.get("cloudinit", {}).get("cloudInitNoCloud", {})
    annotations = dict(spec.tags) if is_whole else {**spec.tags, UNFINISHED: "true"}
    machine: dict[str, Any] = {
        "domain": _domain(size_of(settings.shape), volumes, settings),
        "networks": [{"name": name, **source} for name, source in _networks(settings).items()],
        "volumes": [{"name": name, **source} for name, source in volumes.items()],
    }
    if settings.zone:
        machine["nodeSelector"] = {"topology.kubernetes.io/zone": settings.zone}
    order: dict[str, Any] = {
        "runStrategy": "Always" if is_whole else "Halted",
        "template": {"metadata": {"labels": label}, "spec": machine},
    }
    if disks:
        order["dataVolumeTemplates"] = disks
    metadata = {"name": spec.name, "labels": label, "annotations": annotations}
    return {"apiVersion": API, "kind": "VirtualMachine", "metadata": metadata, "spec": order}


def secret_of(spec: MachineSpec, machine: Mapping[str, Any]) -> dict[str, Any]:
    """The user data of a machine that is there; it goes when the machine goes."""
    owner = {"apiVersion": API, "kind": "VirtualMachine", "name": spec.name, "uid": machine["metadata"]["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": _secret_name(spec), "ownerReferences": [owner]},
        "data": {"userdata": _base64(spec.user_data)},
    }


def marks_of(machine: Mapping[str, Any]) -> dict[str, str]:
    """Our marks; what others write into annotations has their domain before it."""
    annotations = machine["metadata"].get("annotations") or {}
    return {key: value for key, value in annotations.items() if "/" not in key}


def is_unfinished(machine: Mapping[str, Any]) -> bool:
    """Whether it still lacks its Secret, or was not started."""
    return UNFINISHED in (machine["metadata"].get("annotations") or {})


def _cloud_init(spec: MachineSpec) -> dict[str, Any]:
    if not spec.user_data:
        return {}
    if len(spec.user_data.encode()) <= _INLINE:
        return {"cloudinit": {"cloudInitNoCloud": {"userDataBase64": _base64(spec.user_data)}}}
    return {"cloudinit": {"cloudInitNoCloud": {"secretRef": {"name": _secret_name(spec)}}}}


def _domain(size: Size, volumes: Mapping[str, Any], settings: MachineSettings) -> dict[str, Any]:
    binding = "bridge" if settings.networks else "masquerade"
    return {
        "cpu": {"cores": size.cpu},
        "memory": {"guest": f"{size.mib}Mi"},
        "devices": {
            "disks": [{"name": name, "disk": {"bus": "virtio"}} for name in volumes],
            "interfaces": [{"name": name, binding: {}} for name in _networks(settings)],
            "rng": {},
        },
    }


def _networks(settings: MachineSettings) -> dict[str, Any]:
    """The network of the pods, unless others are named."""
    given = {f"net{number}": {"multus": {"networkName": name}} for number, name in enumerate(settings.networks)}
    return given or {"default": {"pod": {}}}


def _secret_name(spec: MachineSpec) -> str:
    return f"{spec.name}-user-data"


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
