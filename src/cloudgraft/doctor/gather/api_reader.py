"""Reads whole objects, as JSON, from the Kubernetes API: what doctor needs and the engine does not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from cloudgraft.kube.errors import ExpiredError
from cloudgraft.sdk.errors import NotFoundError, PreconditionError, UnavailableError

if TYPE_CHECKING:
    from cloudgraft.kube.api import Api
    from cloudgraft.kube.client import KubeClient

Json = Mapping[str, Any]
_PAGE = "500"


class ApiReader:
    """Reads and never changes anything. Every failure is an error of :mod:`cloudgraft.sdk.errors`."""

    def __init__(self, api: Api, client: KubeClient) -> None:
        self._api = api
        self.client = client

    async def deployments(self) -> Sequence[Json]:
        """Of all namespaces."""
        return await self._list("deployments", "apis/apps/v1/deployments")

    async def daemon_sets(self) -> Sequence[Json]:
        """Of all namespaces."""
        return await self._list("daemonsets", "apis/apps/v1/daemonsets")

    async def deployment(self, namespace: str, name: str) -> Json | None:
        """One Deployment; None when there is none."""
        path = f"apis/apps/v1/namespaces/{quote(namespace, safe='')}/deployments/{quote(name, safe='')}"
        return await self._get(f"the Deployment {namespace}/{name}", path)

    async def config_map(self, namespace: str, name: str) -> Mapping[str, str] | None:
        """The content of a ConfigMap; None when there is none."""
        path = f"api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{quote(name, safe='')}"
        found = await self._get(f"the ConfigMap {namespace}/{name}", path)
        return None if found is None else found.get("data") or {}

    async def may(self, account: tuple[str, str], right: tuple[str, str, str]) -> bool:
        """Whether a service account, by namespace and name, has a right: group, resource, verb."""
        (namespace, name), (group, resource, verb) = account, right
        plain, _, subresource = resource.partition("/")
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:{namespace}:{name}",
                "groups": [
                    "system:serviceaccounts",
                    f"system:serviceaccounts:{namespace}",
                    "system:authenticated",
                ],
                "resourceAttributes": {
                    "verb": verb,
                    "group": group,
                    "resource": plain,
                    "subresource": subresource,
                },
            },
        }
        path = "apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = await self._call("cannot ask for the rights of others", "POST", path, body=review)
        return bool(answer.get("status", {}).get("allowed"))

    async def close(self) -> None:
        """Closes all connections."""
        await self._api.close()

    async def _get(self, what: str, path: str) -> Json | None:
        try:
            return await self._call(f"cannot read {what}", "GET", path)
        except NotFoundError:
            return None

    async def _list(self, plural: str, path: str) -> Sequence[Json]:
        items: list[Json] = []
        query = {"limit": _PAGE}
        while True:
            try:
                page = await self._call(f"cannot list {plural}", "GET", path, query=query)
            except ExpiredError:  # it changed too much between two pages: the pages read so far are enough
                return items
            items += page.get("items") or ()
            query["continue"] = (page.get("metadata") or {}).get("continue", "")
            if not query["continue"]:
                return items

    async def _call(
        self, what: str, method: str, path: str, *, query: Mapping[str, str] | None = None, body: object = None
    ) -> Json:
        from cloudgraft.kube.api import Call  # noqa: PLC0415 - an extra, and slow to import

        data = await self._api.call(Call(what=what, method=method, path=path, query=query, body=body))
        try:
            read = json.loads(data)
        except ValueError as error:
            raise UnavailableError(f"{what}: the answer is not one of a Kubernetes API") from error
        if not isinstance(read, dict):
            raise UnavailableError(f"{what}: the answer is not one of a Kubernetes API")
        return read


def open_reader(kubeconfig: Path | None, *, timeout: float) -> ApiReader:
    """A reader for a kubeconfig file, or without one for the cluster that this runs in. Makes no call yet."""
    if find_spec("lightkube") is None:
        raise PreconditionError(
            "to talk to a Kubernetes API, cloudgraft needs lightkube: pip install 'cloudgraft[kubernetes]'"
        )
    # Here and not above: an extra, and slow to import.
    from cloudgraft.kube.api import Api  # noqa: PLC0415
    from cloudgraft.kube.client import KubeClient  # noqa: PLC0415
    from cloudgraft.kube.credentials import from_kubeconfig, from_service_account  # noqa: PLC0415

    if kubeconfig is not None:
        api = Api(from_kubeconfig(kubeconfig), name=f"the kubeconfig {kubeconfig}", timeout=timeout)
    else:
        api = Api(from_service_account(), name="the service account", timeout=timeout)
    return ApiReader(api, KubeClient(api))
