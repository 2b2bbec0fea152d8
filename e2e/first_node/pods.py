"""Runs one pod: its address, its volumes, its containers, and what its status says of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from e2e.first_node.api import Api, Object
from e2e.first_node.containers import Container, now_as_text
from e2e.first_node.images import Image
from e2e.first_node.network import HOST, Network
from e2e.first_node.sandbox import Mount, Sandbox
from e2e.first_node.volumes import NotReadyError, Volumes

__all__ = ["Machine", "Pod"]

_CONFINED: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


class Machine:
    """What all pods of the node share."""

    def __init__(self, api: Api, images: Mapping[str, Image], directory: Path, *, server: str) -> None:
        self.api = api
        self.network = Network()
        self.directory = directory
        self.etc = directory / "etc"
        self.etc.mkdir(parents=True)
        (self.etc / "hosts").write_text("127.0.0.1 localhost\n", "utf-8")
        (self.etc / "nsswitch.conf").write_text("hosts: files\n", "utf-8")
        self._images = images
        host, _, port = server.removeprefix("https://").rpartition(":")
        self.environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}

    def image(self, name: str) -> Image:
        """What stands in for an image. LookupError for others: nobody shall believe that they ran."""
        repository = name.rpartition(":")[0]
        found = self._images.get(name) or self._images.get(f"/{repository.rpartition('/')[2]}")
        if found is None:
            raise LookupError(f"no program stands in for the image {name}")
        return found


class Pod:
    """From the moment that it is bound to the node, until it is gone."""

    def __init__(self, machine: Machine, pod: Object) -> None:
        self.uid = str(pod["metadata"]["uid"])
        self._machine = machine
        self._meta = pod["metadata"]
        self._spec = pod["spec"]
        self._directory = machine.directory / "pods" / self.uid
        self._address = machine.network.new()
        self._volumes = Volumes(machine.api, pod, self._directory / "volumes")
        self._containers: list[Container] = []
        self._began = now_as_text()
        self._reported: Mapping[str, Any] = {}
        self._waits_for = ""

    @property
    def name(self) -> tuple[str, str]:
        """Namespace and name."""
        return self._meta["namespace"], self._meta["name"]

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self._meta['namespace']}/pods/{self._meta['name']}"

    def look_after(self) -> None:
        """Starts it when all that it mounts is there, and then keeps it running."""
        if not self._containers:
            self._start()
        for container in self._containers:
            container.look_after(restarts_after_success=self._spec["restartPolicy"] == "Always")
        self._report()

    def stop(self) -> None:
        """Stops its programs."""
        for container in self._containers:
            container.stop()

    def end(self) -> None:
        """Stops it and cleans up; the object goes too, if it is still this one."""
        self.stop()
        self._address.close()
        self._volumes.remove()
        self._machine.api.delete(self._path, {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}})

    def running(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """What `kubectl exec` has to know of each container that runs."""
        for container in self._containers:
            if container.process_id:
                yield container.name, {"process": container.process_id, "command": container.sandbox.confined(())}

    def _start(self) -> None:
        try:
            volumes = self._volumes.prepare()
        except NotReadyError as error:
            self._waits_for = str(error)
            return
        self._containers = [self._container(spec, volumes) for spec in self._spec["containers"]]
        for container in self._containers:
            container.start()

    def _container(self, spec: Mapping[str, Any], volumes: Mapping[str, tuple[Path, bool]]) -> Container:
        unknown = spec.keys() & {"envFrom", "lifecycle", "workingDir"} | self._spec.keys() & {"initContainers"}
        assert not unknown, f"what this kubelet does not do: {unknown}"
        assert spec["securityContext"] == _CONFINED, spec["securityContext"]
        security = self._spec["securityContext"]
        assert security["runAsNonRoot"], security
        image = self._machine.image(spec["image"])
        root = self._directory / f"{spec['name']}-root"
        root.mkdir(parents=True)
        sandbox = Sandbox(
            root=root,
            image=image,
            mounts=list(self._mounts(spec, volumes)),
            environment={**self._machine.environment, **{one["name"]: one["value"] for one in spec.get("env", ())}},
            user=security["runAsUser"],
            group=security["runAsGroup"],
            network=self._address.namespace,
            hostname=self._meta["name"],
        )
        words = [*(spec.get("command") or image.entrypoint), *spec.get("args", ())]
        log = self._machine.directory / "logs" / f"{self._meta['name']}-{spec['name']}.log"
        log.parent.mkdir(exist_ok=True)
        return Container(spec, sandbox, words, log, self._address.ip)

    def _mounts(self, spec: Mapping[str, Any], volumes: Mapping[str, tuple[Path, bool]]) -> Iterator[Mount]:
        for file in sorted(self._machine.etc.iterdir()):
            yield Mount(source=file, at=f"/etc/{file.name}")
        for mount in sorted(spec.get("volumeMounts", ()), key=lambda one: len(one["mountPath"])):
            assert "subPath" not in mount, mount
            path, is_writable = volumes[mount["name"]]
            writable = is_writable and not mount.get("readOnly", False)
            yield Mount(source=path, at=mount["mountPath"], is_writable=writable)

    def _report(self) -> None:
        status = self._status()
        if status != self._reported:
            self._machine.api.patch(f"{self._path}/status", {"metadata": {"uid": self.uid}, "status": status})
            self._reported = status

    def _status(self) -> dict[str, Any]:
        statuses = [one.status() for one in self._containers] or [
            self._creating(one) for one in self._spec["containers"]
        ]
        is_done = bool(self._containers) and self._spec["restartPolicy"] != "Always"
        is_done = is_done and all(one.has_succeeded for one in self._containers)
        is_ready = bool(self._containers) and all(one.is_ready for one in self._containers)
        truths = {"Initialized": True, "ContainersReady": is_ready, "Ready": is_ready}
        phase = "Succeeded" if is_done else "Running" if self._containers else "Pending"
        return {
            "phase": phase,
            "conditions": [{"type": kind, "status": str(holds)} for kind, holds in truths.items()],
            "hostIP": HOST,
            "hostIPs": [{"ip": HOST}],
            "podIP": self._address.ip,
            "podIPs": [{"ip": self._address.ip}],
            "startTime": self._began,
            "containerStatuses": statuses,
        }

    def _creating(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        waiting = {"reason": "ContainerCreating", "message": self._waits_for}
        said = {"name": spec["name"], "image": spec["image"], "imageID": "", "restartCount": 0}
        return {**said, "ready": False, "started": False, "state": {"waiting": waiting}}
