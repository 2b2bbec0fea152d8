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
from urllib.parse import quote, urlsplit

from cloudgraft.drivers.common.label_text import HETZNER
from cloudgraft.drivers.common.listing import is_younger
from cloudgraft.drivers.libcloud.adapter import Adapter, host_of, moment, shape_of
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
    UnsupportedError,
)

# -- manifests ---------------------------------------------------------------------------------------------------------

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


# -- the adapter -------------------------------------------------------------------------------------------------------

# Libcloud has only partial types.
_common: Any = import_module("libcloud.common.kubernetes")
_kubevirt: Any = import_module("libcloud.compute.drivers.kubevirt")

_PAGE: Final = 500
_MOST_PAGES: Final = 1000
_MAKING: Final = timedelta(minutes=10)  # for which the create of an unfinished machine may be called again
_STATES: Final[Mapping[str, MachineState]] = {
    "Running": MachineState.RUNNING,
    "Migrating": MachineState.RUNNING,
    "WaitingForReceiver": MachineState.RUNNING,
    "Stopped": MachineState.STOPPED,
    "Stopping": MachineState.STOPPED,
    "Paused": MachineState.STOPPED,
    "Terminating": MachineState.DELETING,
    "CrashLoopBackOff": MachineState.FAILED,
    "ImagePullBackOff": MachineState.FAILED,
    "ErrorPvcNotFound": MachineState.FAILED,
    "DataVolumeError": MachineState.FAILED,
    "ErrorUnschedulable": MachineState.FAILED,
}
_NO_ROOM: Final = "ErrorUnschedulable"
_OVER_QUOTA: Final = "exceeded quota"
# Any size can be had; these are told, so that what a node will hold is known without being said twice.
_CPUS: Final = (*range(1, 17), 20, 24, 32, 48, 64)
_GIBS: Final = (*range(1, 33), 40, 48, 64, 96, 128, 192, 256)


class Kubevirt(Adapter):
    """One namespace, which is called ``project`` here."""

    traits = DriverTraits(
        idempotency=Idempotency.UNIQUE_NAME, provider_id="kubevirt://{name}", user_data_limit=256 * 1024
    )
    needs: ClassVar[frozenset[str]] = frozenset({"endpoint", "project"})
    takes = frozenset({"zone", "networks", "diskSize"})
    names = NAME

    def __init__(self, options: LibcloudOptions) -> None:
        """Refuses a namespace that is none: it is a part of every path."""
        super().__init__(options)
        if not re.fullmatch(NAME, options.project):
            raise InvalidArgumentError(f"KUBEVIRT: project must be a namespace of Kubernetes, not {options.project!r}")
        self._secrets = f"/api/v1/namespaces/{options.project}/secrets"
        self._machines = f"/apis/{API}/namespaces/{options.project}/virtualmachines"

    def checked(self, spec: MachineSpec) -> MachineSettings:
        """A size and an image have a form of their own here."""
        settings = super().checked(spec)
        size_of(settings.shape)
        root_of(spec.name, settings, self.options.project)
        return settings

    def connect(self, wire: Wire, secret: str) -> Any:
        """Makes no request. Libcloud would not check the certificate when it is given no CA."""
        parts = urlsplit(self.options.endpoint)
        is_secure = parts.scheme == "https"
        port = parts.port or (443 if is_secure else 80)
        library = type(
            "KubeVirt", (_kubevirt.KubeVirtNodeDriver,), {"connectionCls": _common.KubernetesTokenAuthConnection}
        )
        ca = str(self.options.ca_file) if self.options.ca_file is not None else True
        return wired(library, wire)(secret, secure=is_secure, host=host_of(parts), port=port, ca_cert=ca)

    def create(self, cloud: Any, wire: Wire, spec: MachineSpec, settings: MachineSettings) -> Machine:
        """One call, or three; or what is left of them, for one that is there and unfinished."""
        try:
            found = _ask(cloud, "POST", self._machines, virtual_machine(spec, settings, self.options.project))
        except Exception:
            if not _is_there(wire):
                raise
            found = _ask(cloud, "GET", f"{self._machines}/{spec.name}")
            if not is_unfinished(found) or not spec.tags.items() <= marks_of(found).items():
                raise AlreadyExistsError(f"create {spec.name}: there is a machine of this name") from None
        if is_unfinished(found):
            found = self._finished(cloud, wire, spec, found)
        return self.machine(found)

    def _finished(self, cloud: Any, wire: Wire, spec: MachineSpec, found: Mapping[str, Any]) -> Mapping[str, Any]:
        """Gives it its Secret, and starts it. When either is refused for good, it is taken away again."""
        try:
            self._give(cloud, wire, spec, found)
            start = {"metadata": {"annotations": {UNFINISHED: None}}, "spec": {"runStrategy": "Always"}}
            started: Mapping[str, Any] = _ask(cloud, "PATCH", f"{self._machines}/{spec.name}", start)
        except Exception:
            last, status = wire.last, _status(wire)
            if last is None or last.response is None or not 400 <= status < 500 or status in (408, 409, 429):
                raise  # it may have been done
            code, text = said(last.response.content)
            self.delete(cloud, self.machine(found))
            raise job_failure(f"create {spec.name}", code, text, status) from None
        return started

    def _give(self, cloud: Any, wire: Wire, spec: MachineSpec, found: Mapping[str, Any]) -> None:
        secret = secret_of(spec, found)
        try:
            _ask(cloud, "POST", self._secrets, secret)
        except Exception:
            if not _is_there(wire):
                raise
            there = _ask(cloud, "GET", f"{self._secrets}/{secret['metadata']['name']}")
            owners = [owner["uid"] for owner in there["metadata"].get("ownerReferences", ())]
            if found["metadata"]["uid"] not in owners:
                raise ConflictError(f"create {spec.name}: its Secret is there, and belongs to another") from None

    def nodes(self, cloud: Any) -> Iterable[Any]:
        """All pages of those with our mark. When a list takes so long that Kubernetes forgets where it was, it says so,
        and all is read again.
        """
        params = {"labelSelector": MARK, "limit": str(_PAGE)}
        for _ in range(_MOST_PAGES):
            page = _ask(cloud, "GET", self._machines, params=params)
            for found in page["items"]:
                made = moment(found["metadata"].get("creationTimestamp"))
                if not is_unfinished(found) or made is None or not is_younger(made, _MAKING):
                    yield found
            following = page["metadata"].get("continue")
            if not following:
                return
            params["continue"] = following
        raise UnsupportedError(f"the list of KUBEVIRT has more than {_MOST_PAGES} pages")

    def delete(self, cloud: Any, machine: Machine) -> None:
        """With all that belongs to it; and only the very one that is meant, and not a later one of its name."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": machine.machine_id},
            "propagationPolicy": "Background",
        }
        _ask(cloud, "DELETE", f"{self._machines}/{quote(machine.name, safe='')}", options)

    def machine(self, node: Mapping[str, Any]) -> Machine:
        """A VirtualMachine as it is in the API."""
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
        """Those that are told."""
        return [Size(cpu, gib * 1024) for cpu in _CPUS for gib in _GIBS]

    def shape(self, size: Size) -> Shape:
        """Named as machine.shape names it."""
        return shape_of(f"{size.cpu}x{size.mib // 1024}Gi", size.cpu, size.mib)


def _ask(
    cloud: Any,
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    params: Mapping[str, str] | None = None,
) -> Any:
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    data = None if body is None else json.dumps(body)
    headers = {"Content-Type": kind}
    return cloud.connection.request(path, params=params, data=data, headers=headers, method=method).object


def _status(wire: Wire) -> int:
    """Of the last answer; 0 when there was none."""
    last = wire.last
    return last.response.status_code if last is not None and last.response is not None else 0


def _is_there(wire: Wire) -> bool:
    """Whether the last answer says that there is one of that name. Kubernetes has the same status for what is to be
    tried again, such as a quota that two have counted at once.
    """
    last = wire.last
    if last is None or last.response is None or last.response.status_code != 409:
        return False
    code, _ = said(last.response.content)
    return code == "AlreadyExists"


def _state(found: Mapping[str, Any]) -> tuple[MachineState, str, str]:
    """The state of a machine, and of one that failed the error's name, with the reason."""
    status = found.get("status") or {}
    word = str(status.get("printableStatus", ""))
    if found["metadata"].get("deletionTimestamp"):
        return MachineState.DELETING, "", ""
    if is_unfinished(found):
        return MachineState.FAILED, "", "its create was interrupted, and nobody came back for it"
    state = _STATES.get(word, MachineState.PENDING)
    trouble = [str(one.get("message", "")) for one in status.get("conditions") or () if one.get("message")]
    reason = "; ".join([word, *trouble][:3]) if state is not MachineState.RUNNING else ""
    if state is MachineState.PENDING and _OVER_QUOTA in " ".join(trouble):
        return MachineState.FAILED, QuotaExceededError.slug, reason
    return state, OutOfStockError.slug if word == _NO_ROOM else "", reason
