"""Adapts KubeVirt: virtual machines in one namespace of a Kubernetes cluster.

Libcloud uses an old version of the API, reads no labels, and makes two requests per machine. Only its connection with a
token is used. The adapter creates a VirtualMachine of kubevirt.io/v1: its name is unique in the namespace, its
annotations are our marks, and it owns its disk and its Secret, so that they are deleted with it.

User data of up to 2 KiB is in the machine itself, and then a create is one call. Longer user data must be in a Secret,
which only an existing machine can own. So the adapter creates the machine halted and marked as unfinished, then the
Secret, and then starts the machine. An unfinished machine is not listed for a while, so that the engine repeats its
create, which finishes it. After that it is listed as failed, and the engine deletes it.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any, ClassVar, Final
from urllib.parse import quote

from cloudgraft.drivers.common.label_text import HETZNER
from cloudgraft.drivers.common.listing import is_younger
from cloudgraft.drivers.libcloud.adapter import Adapter, endpoint_of, moment, pages, shape_of, states
from cloudgraft.drivers.libcloud.errors import job_failure, said
from cloudgraft.drivers.libcloud.options import LibcloudOptions, MachineSettings
from cloudgraft.drivers.libcloud.wire import Wire, wired
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Machine, MachineSpec, MachineState, Shape
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidArgumentError,
    OutOfStockError,
    QuotaExceededError,
)

# -- manifests ---------------------------------------------------------------------------------------------------------

API: Final = "kubevirt.io/v1"
MARK: Final = "cloudgraft-cluster-id"  # the label by which ours are listed
NAME: Final = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
UNFINISHED: Final = "cloudgraft/unfinished"  # the annotation of a machine that still lacks its Secret
_INLINE: Final = 2048  # bytes of user data that KubeVirt takes in the machine itself
_SIZE: Final = re.compile(r"([1-9]\d{0,3})x([1-9]\d{0,6})(Mi|Gi)")
_CLONED: Final = ("pvc:", "datasource:")  # prefixes of images that are cloned to a disk of the machine's own


@dataclass(frozen=True, slots=True)
class Size:
    """CPUs, and memory in MiB."""

    cpu: int
    mib: int


def size_of(shape: str) -> Size:
    """Parses a machine type such as 4x8Gi."""
    found = _SIZE.fullmatch(shape)
    if found is None:
        raise InvalidArgumentError(f"machine.shape is {shape!r}: for KUBEVIRT write CPUs x memory, such as 4x8Gi")
    return Size(int(found[1]), int(found[2]) * (1024 if found[3] == "Gi" else 1))


def root_of(name: str, settings: MachineSettings, namespace: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Returns the boot volume of a machine, and the disk to create for it, if it needs one of its own."""
    if not settings.image.startswith(_CLONED):
        if settings.disk_size is not None:
            raise InvalidArgumentError("machine.diskSize has no effect on a container disk: remove it")
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
    """Builds the manifest of a machine."""
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
    """Builds the Secret with the user data of an existing machine; Kubernetes deletes it with the machine."""
    owner = {"apiVersion": API, "kind": "VirtualMachine", "name": spec.name, "uid": machine["metadata"]["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": _secret_name(spec), "ownerReferences": [owner]},
        "data": {"userdata": _base64(spec.user_data)},
    }


def marks_of(machine: Mapping[str, Any]) -> dict[str, str]:
    """Returns our marks; annotations of others have a domain as a prefix."""
    annotations = machine["metadata"].get("annotations") or {}
    return {key: value for key, value in annotations.items() if "/" not in key}


def is_unfinished(machine: Mapping[str, Any]) -> bool:
    """Returns whether it still lacks its Secret, or was not started."""
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
    """Returns the given networks, or that of the pods."""
    given = {f"net{number}": {"multus": {"networkName": name}} for number, name in enumerate(settings.networks)}
    return given or {"default": {"pod": {}}}


def _secret_name(spec: MachineSpec) -> str:
    return f"{spec.name}-user-data"


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# -- the adapter -------------------------------------------------------------------------------------------------------

# Libcloud has only partial types.
_common: Any = import_module("libcloud.common.kubernetes")
_kubevirt: Any = import_module("libcloud.compute.drivers.kubevirt")

_PAGE: Final = 500
_MAKING: Final = timedelta(minutes=10)  # for which the engine may repeat the create of an unfinished machine
_STATES: Final = states(
    RUNNING="Running Migrating WaitingForReceiver",
    STOPPED="Stopped Stopping Paused",
    DELETING="Terminating",
    FAILED="CrashLoopBackOff ImagePullBackOff ErrorPvcNotFound DataVolumeError ErrorUnschedulable",
)
_NO_ROOM: Final = "ErrorUnschedulable"
_OVER_QUOTA: Final = "exceeded quota"
# Any size is possible; these are offered as shapes, so that groups need no template.capacity.
_CPUS: Final = (*range(1, 17), 20, 24, 32, 48, 64)
_GIBS: Final = (*range(1, 33), 40, 48, 64, 96, 128, 192, 256)


class Kubevirt(Adapter):
    """One namespace, which is the option ``project``."""

    traits = DriverTraits(
        idempotency=Idempotency.UNIQUE_NAME, provider_id="kubevirt://{name}", user_data_limit=256 * 1024
    )
    needs: ClassVar[frozenset[str]] = frozenset({"endpoint", "project"})
    takes = frozenset({"zone", "networks", "diskSize"})
    names = NAME

    def __init__(self, options: LibcloudOptions) -> None:
        """Refuses an invalid namespace: it is a part of every path."""
        super().__init__(options)
        if not re.fullmatch(NAME, options.project):
            raise InvalidArgumentError(f"KUBEVIRT: project must be a namespace of Kubernetes, not {options.project!r}")
        self._secrets = f"/api/v1/namespaces/{options.project}/secrets"
        self._machines = f"/apis/{API}/namespaces/{options.project}/virtualmachines"

    def checked(self, spec: MachineSpec) -> MachineSettings:
        settings = super().checked(spec)
        size_of(settings.shape)
        root_of(spec.name, settings, self.options.project)
        return settings

    def connect(self, wire: Wire, secret: str) -> Any:
        secure, host, port, _ = endpoint_of(self.options.endpoint)
        token_login = {"connectionCls": _common.KubernetesTokenAuthConnection}
        library = type("KubeVirt", (_kubevirt.KubeVirtNodeDriver,), token_login)
        ca = str(self.options.ca_file or "") or True  # without a value libcloud would not check the certificate
        return wired(library, wire)(secret, secure=secure, host=host, port=port, ca_cert=ca)

    def create(self, cloud: Any, wire: Wire, spec: MachineSpec, settings: MachineSettings) -> Machine:
        """Makes one call, or three; for an unfinished machine, only those that are missing."""
        try:
            found = _ask(cloud, "POST", self._machines, virtual_machine(spec, settings, self.options.project))
        except Exception:
            if not _is_there(wire):
                raise
            found = _ask(cloud, "GET", f"{self._machines}/{spec.name}")
            if not is_unfinished(found) or not spec.tags.items() <= marks_of(found).items():
                raise AlreadyExistsError(f"create {spec.name}: a machine with this name exists") from None
        if is_unfinished(found):
            found = self._finished(cloud, wire, spec, found)
        return self.machine(found)

    def _finished(self, cloud: Any, wire: Wire, spec: MachineSpec, found: Mapping[str, Any]) -> Mapping[str, Any]:
        """Creates its Secret, and starts it. After a final refusal, it deletes the machine."""
        try:
            self._create_secret(cloud, wire, spec, found)
            start = {"metadata": {"annotations": {UNFINISHED: None}}, "spec": {"runStrategy": "Always"}}
            started: Mapping[str, Any] = _ask(cloud, "PATCH", f"{self._machines}/{spec.name}", start)
        except Exception:
            response = wire.response
            status = response.status_code if response is not None else 0
            if response is None or not 400 <= status < 500 or status in (408, 409, 429):
                raise  # it may have been done
            code, text = said(response.content)
            self.delete(cloud, self.machine(found))
            raise job_failure(f"create {spec.name}", code, text, status) from None
        return started

    def _create_secret(self, cloud: Any, wire: Wire, spec: MachineSpec, found: Mapping[str, Any]) -> None:
        secret = secret_of(spec, found)
        try:
            _ask(cloud, "POST", self._secrets, secret)
        except Exception:
            if not _is_there(wire):
                raise
            there = _ask(cloud, "GET", f"{self._secrets}/{secret['metadata']['name']}")
            owners = [owner["uid"] for owner in there["metadata"].get("ownerReferences", ())]
            if found["metadata"]["uid"] not in owners:
                raise ConflictError(f"create {spec.name}: its Secret exists, and belongs to another machine") from None

    def nodes(self, cloud: Any) -> Iterable[Any]:
        """Yields machines with our mark. When a list takes too long, Kubernetes reports that its cursor has expired
        (a ConflictError), and the driver reads all again.
        """

        def read(cursor: str) -> tuple[Iterable[Any], str]:
            params = {"labelSelector": MARK, "limit": str(_PAGE), **({"continue": cursor} if cursor else {})}
            page = _ask(cloud, "GET", self._machines, params=params)
            return page["items"], page["metadata"].get("continue")

        for found in pages(read):
            made = moment(found["metadata"].get("creationTimestamp"))
            if not is_unfinished(found) or made is None or not is_younger(made, _MAKING):
                yield found

    def delete(self, cloud: Any, machine: Machine) -> None:
        """Deletes the machine of this uid, and no later one of its name, with everything that it owns."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": machine.machine_id},
            "propagationPolicy": "Background",
        }
        _ask(cloud, "DELETE", f"{self._machines}/{quote(machine.name, safe='')}", options)

    def machine(self, node: Mapping[str, Any]) -> Machine:
        metadata = node["metadata"]
        state, failure, reason = _state(node)
        return Machine(
            name=metadata["name"],
            machine_id=metadata["uid"],
            provider_id=self.traits.provider_id.format(name=metadata["name"]),
            state=state,
            tags=marks_of(node),
            created_at=moment(metadata.get("creationTimestamp")),
            reason=reason,
            failure=failure,
        )

    def sizes(self, cloud: Any) -> Iterable[Any]:
        return [Size(cpu, gib * 1024) for cpu in _CPUS for gib in _GIBS]

    def shape(self, size: Size) -> Shape:
        return shape_of(f"{size.cpu}x{size.mib // 1024}Gi", size.cpu, size.mib)


def _ask(
    cloud: Any, method: str, path: str, body: Mapping[str, Any] | None = None, params: Mapping[str, str] | None = None
) -> Any:
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    data = None if body is None else json.dumps(body)
    headers = {"Content-Type": kind}
    return cloud.connection.request(path, params=params, data=data, headers=headers, method=method).object


def _is_there(wire: Wire) -> bool:
    """Returns whether the last response says that the name exists.

    Kubernetes has the same status for requests to repeat, such as when two were counted against a quota at once.
    """
    response = wire.response
    return response is not None and response.status_code == 409 and said(response.content)[0] == "AlreadyExists"


def _state(found: Mapping[str, Any]) -> tuple[MachineState, str, str]:
    """Returns the state of a machine, the slug of its failure, and the reason."""
    status = found.get("status") or {}
    word = str(status.get("printableStatus", ""))
    if found["metadata"].get("deletionTimestamp"):
        return MachineState.DELETING, "", ""
    if is_unfinished(found):
        return MachineState.FAILED, "", "its create was interrupted, and never repeated"
    state = _STATES.get(word, MachineState.PENDING)
    trouble = [str(one.get("message", "")) for one in status.get("conditions") or () if one.get("message")]
    reason = "; ".join([word, *trouble][:3]) if state is not MachineState.RUNNING else ""
    if state is MachineState.PENDING and _OVER_QUOTA in " ".join(trouble):
        return MachineState.FAILED, QuotaExceededError.slug, reason
    return state, OutOfStockError.slug if word == _NO_ROOM else "", reason
