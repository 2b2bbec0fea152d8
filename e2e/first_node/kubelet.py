"""The control plane's own node: a kubelet that runs the pods of the chart as processes of this machine.

It also does what else a cluster has for pods: makes volumes for claims, and writes the names of Services into
/etc/hosts.
"""

from __future__ import annotations

import json
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx2

from e2e.control_plane import ControlPlane
from e2e.first_node.api import Api, Object
from e2e.first_node.containers import now_as_text
from e2e.first_node.images import Image
from e2e.first_node.network import HOST
from e2e.first_node.pods import Machine, Pod
from e2e.processes import ProgramError

__all__ = ["NODE", "Kubelet"]

NODE: Final = "control-plane"
_CLASS: Final = "standard"
_LOOK: Final = 0.3  # seconds
_BEAT: Final = 5.0
_CAPACITY: Final = {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "50Gi"}
_CONTROL_PLANE: Final = "node-role.kubernetes.io/control-plane"


class Kubelet:
    """Of one node. It works in a thread of its own, from :meth:`start` to :meth:`stop`."""

    def __init__(self, plane: ControlPlane, images: Mapping[str, Image], directory: Path, *, version: str) -> None:
        self.running_file = directory / "running.json"  # for the stand-in of `kubectl exec`
        self._api = Api(plane)
        self._machine = Machine(self._api, images, directory, server=plane.server)
        self._directory = directory
        self._version = version
        self._pods: dict[str, Pod] = {}
        self._beat_at = 0.0
        self._halt = threading.Event()
        self._failure = ""
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)

    def start(self) -> None:
        """Registers the node, and a class of volumes."""
        self._api.create("/api/v1/nodes", _node())
        self._api.create("/apis/storage.k8s.io/v1/storageclasses", _storage_class())
        self._thread.start()

    def stop(self) -> None:
        """Stops every pod that still runs."""
        self._halt.set()
        self._thread.join()
        self._api.close()

    def check(self) -> None:
        """Raises ProgramError when it has met something that it cannot do."""
        if self._failure:
            raise ProgramError(f"the kubelet of {NODE}: {self._failure}")

    @property
    def volumes(self) -> Path:
        """Where volumes are; they stay when their claim goes."""
        return self._directory / "volumes"

    def _run(self) -> None:
        try:
            while not self._halt.wait(_LOOK):
                try:
                    self._look()
                except httpx2.TransportError:
                    continue  # the API server is busy
                except httpx2.HTTPStatusError as error:
                    if error.response.status_code not in (404, 409):  # gone meanwhile, or changed by somebody else
                        raise
        except Exception as error:  # noqa: BLE001 - it is for whoever asks with check()
            (self._directory / "kubelet.txt").write_text(traceback.format_exc(), "utf-8")
            self._failure = f"{type(error).__name__}: {error}"
        finally:
            for pod in self._pods.values():
                pod.stop()

    def _look(self) -> None:
        self._beat()
        self._provision()
        self._name_services()
        there = {pod["metadata"]["uid"]: pod for pod in self._api.list("/api/v1/pods", spec_nodeName=NODE)}
        for uid, pod in there.items():
            is_going = "deletionTimestamp" in pod["metadata"]
            if uid not in self._pods and not is_going and pod["status"]["phase"] == "Pending":
                self._pods[uid] = Pod(self._machine, pod)
            elif is_going and uid not in self._pods:
                self._forget(pod)
        for uid, running in list(self._pods.items()):
            if uid not in there or "deletionTimestamp" in there[uid]["metadata"]:
                del self._pods[uid]
                self._write_running()
                running.end()
            else:
                running.look_after()
        self._write_running()

    def _forget(self, pod: Object) -> None:
        meta = pod["metadata"]
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
        self._api.delete(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}", options)

    def _write_running(self) -> None:
        found: dict[str, dict[str, dict[str, Any]]] = {}
        for pod in self._pods.values():
            namespace, name = pod.name
            found.setdefault(namespace, {})[name] = dict(pod.running())
        unfinished = self.running_file.with_suffix(".new")
        unfinished.write_text(json.dumps(found), "utf-8")
        unfinished.replace(self.running_file)

    def _beat(self) -> None:
        if time.monotonic() < self._beat_at:
            return
        self._beat_at = time.monotonic() + _BEAT
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now_as_text()}
        status = {
            "capacity": _CAPACITY,
            "allocatable": _CAPACITY,
            "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": HOST}, {"type": "Hostname", "address": NODE}],
            "nodeInfo": {"kubeletVersion": self._version},
        }
        self._api.patch(f"/api/v1/nodes/{NODE}/status", {"status": status})

    def _provision(self) -> None:
        """Gives each claim a directory, and takes away the object of a volume whose claim is gone."""
        for claim in self._api.list("/api/v1/persistentvolumeclaims"):
            meta = claim["metadata"]
            name = f"pvc-{meta['uid']}"
            is_new = claim["status"]["phase"] == "Pending" and claim["spec"].get("storageClassName") == _CLASS
            if is_new and not (self.volumes / meta["name"]).exists():
                path = self.volumes / meta["name"]
                path.mkdir(parents=True)
                self._api.create("/api/v1/persistentvolumes", _volume(name, path, claim))
        for volume in self._api.list("/api/v1/persistentvolumes"):
            if volume["status"].get("phase") == "Released":
                self._api.delete(f"/api/v1/persistentvolumes/{volume['metadata']['name']}")

    def _name_services(self) -> None:
        """Each Service's name leads to a pod of it that is ready, where there is one."""
        lines = ["127.0.0.1 localhost"]
        for part in self._api.list("/apis/discovery.k8s.io/v1/endpointslices"):
            meta = part["metadata"]
            service = f"{meta.get('labels', {}).get('kubernetes.io/service-name')}.{meta['namespace']}.svc"
            ready = [one["addresses"][0] for one in part.get("endpoints") or () if one["conditions"].get("ready")]
            lines += [f"{address} {service} {service}.cluster.local" for address in ready[:1]]
        text = "".join(f"{line}\n" for line in sorted(lines))
        hosts = self._machine.etc / "hosts"
        if hosts.read_text("utf-8") != text:
            hosts.write_text(text, "utf-8")  # in place: containers have this very file


def _node() -> Object:
    labels = {"kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    taint = {"key": _CONTROL_PLANE, "effect": "NoSchedule"}
    metadata = {"name": NODE, "labels": {**labels, _CONTROL_PLANE: ""}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": [taint]}}


def _storage_class() -> Object:
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": _CLASS, "annotations": default},
        "provisioner": "e2e.example/directory",
    }


def _volume(name: str, path: Path, claim: Object) -> Object:
    meta, spec = claim["metadata"], claim["spec"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": spec["resources"]["requests"],
            "accessModes": spec["accessModes"],
            "storageClassName": _CLASS,
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]},
            "hostPath": {"path": str(path)},
        },
    }
