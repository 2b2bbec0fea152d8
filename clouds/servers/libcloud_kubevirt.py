"""The fake of a Kubernetes with KubeVirt; see ``libcloud_fake``. It was written from the public description of both."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from clouds.servers.libcloud_clouds import PAGE, TOKEN, last_of, now
from clouds.servers.libcloud_fake import Answer, Asked, FakeCloud

__all__ = ["FakeKubevirt", "refusal"]

_MACHINES: Final = "/apis/kubevirt.io/v1/namespaces/lab/virtualmachines"
_SECRETS: Final = "/api/v1/namespaces/lab/secrets"
_INLINE: Final = 2048


def refusal(status: int, reason: str, message: str) -> Answer:
    """An error as Kubernetes writes it."""
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    return Answer(status, {**body, "reason": reason, "details": {"kind": "virtualmachines"}, "code": status})


class FakeKubevirt(FakeCloud):
    """Virtual machines and Secrets of one namespace; a Secret goes with its owner."""

    def __init__(self) -> None:
        """Machines are there by their names."""
        super().__init__()
        self.secrets: dict[str, dict[str, Any]] = {}

    def name_of(self, machine: Mapping[str, Any]) -> str:
        """In its metadata."""
        return str(machine["metadata"]["name"])

    def answer(self, asked: Asked) -> Answer:
        """One page holds three."""
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            return refusal(401, "Unauthorized", "Unauthorized")
        collection = _SECRETS if asked.path.startswith(_SECRETS) else _MACHINES
        there = self.secrets if collection is _SECRETS else self.machines
        if asked.path == collection:
            return self._create(asked.body, there) if asked.method == "POST" else self._page(asked.query)
        found = there.get(last_of(asked.path))
        if not asked.path.startswith(collection) or found is None:
            return refusal(404, "NotFound", f'virtualmachines.kubevirt.io "{last_of(asked.path)}" not found')
        match asked.method:
            case "DELETE":
                return self._delete(found, asked.body)
            case "PATCH" if asked.headers["content-type"] == "application/merge-patch+json":
                _merge(found, asked.body)
                self._run(found)
        return Answer(200, found)

    def _create(self, order: dict[str, Any], there: dict[str, dict[str, Any]]) -> Answer:
        name = order["metadata"]["name"]
        if name in there:
            return refusal(409, "AlreadyExists", f'virtualmachines.kubevirt.io "{name}" already exists')
        if order["kind"] == "VirtualMachine":
            for volume in order["spec"]["template"]["spec"]["volumes"]:
                data = volume.get("cloudInitNoCloud", {}).get("userDataBase64", "")
                if len(base64.b64decode(data)) > _INLINE:
                    return refusal(422, "Invalid", f"userdata exceeds {_INLINE} byte limit")
        order["metadata"] |= {"uid": f"0b1c-{self.new_id()}", "creationTimestamp": f"{now()}Z", "namespace": "lab"}
        there[name] = order
        if there is self.machines:
            self._run(order)
        return Answer(201, order)

    @staticmethod
    def _run(machine: dict[str, Any]) -> None:
        is_running = machine["spec"]["runStrategy"] == "Always"
        machine["status"] = {"printableStatus": "Running" if is_running else "Stopped"}

    def _delete(self, machine: Mapping[str, Any], options: Mapping[str, Any]) -> Answer:
        name, uid = machine["metadata"]["name"], machine["metadata"]["uid"]
        wanted = options["preconditions"]["uid"]
        if wanted != uid:
            text = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}"
            return refusal(409, "Conflict", f'Operation cannot be fulfilled on virtualmachines "{name}": {text}')
        del self.machines[name]
        for secret, one in list(self.secrets.items()):
            if uid in [owner["uid"] for owner in one["metadata"]["ownerReferences"]]:
                del self.secrets[secret]
        return Answer(200, {"kind": "Status", "status": "Success"})

    def _page(self, query: Mapping[str, str]) -> Answer:
        marked = [one for one in self.machines.values() if query["labelSelector"] in one["metadata"]["labels"]]
        first = int(query.get("continue", 0))
        more = {"continue": str(first + PAGE)} if first + PAGE < len(marked) else {}
        page = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineList", "items": marked[first : first + PAGE]}
        return Answer(200, {**page, "metadata": {"resourceVersion": "1", **more}})


def _merge(target: dict[str, Any], patch: Mapping[str, Any]) -> None:
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            _merge(target.setdefault(key, {}), value)
        else:
            target[key] = value
