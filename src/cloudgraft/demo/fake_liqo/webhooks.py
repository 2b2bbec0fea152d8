"""What Liqo's webhooks refuse, for the small API server: a real one has no place for it in a process of ours."""

from __future__ import annotations

from cloudgraft.demo.fake_kubernetes import Json, KubeApi, RefusedError, Resource
from cloudgraft.demo.fake_liqo.words import REPLICATED

__all__ = ["guard_names"]


def guard_names(api: KubeApi) -> None:
    """Refuses a slice whose name another one has, in whatever namespace: it is to be the name of a node."""

    def admit(resource: Resource, _namespace: str, manifest: Json) -> None:
        name = manifest["metadata"].get("name", "")
        if resource.kind != "ResourceSlice" or (manifest["metadata"].get("labels") or {}).get(REPLICATED) == "true":
            return
        if any(each["metadata"]["name"] == name for each in api.store.items(resource.name)):
            said = f'admission webhook "resourceslice.validate.liqo.io" denied the request: {name} is taken'
            raise RefusedError(403, "Forbidden", said)

    api.admission.append(admit)
