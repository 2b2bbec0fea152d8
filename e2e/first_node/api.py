"""As much of a client of the Kubernetes API as a kubelet needs: objects as they are written, without types."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Final

import httpx2
import yaml

from e2e.control_plane import ControlPlane

__all__ = ["Api", "Object"]

Object = dict[str, Any]
_TIMEOUT: Final = 20.0
_STRATEGIC: Final = {"Content-Type": "application/strategic-merge-patch+json"}


class Api:
    """One connection. Errors are httpx2's."""

    def __init__(self, plane: ControlPlane) -> None:
        user = yaml.safe_load(plane.kubeconfig.read_text("utf-8"))["users"][0]["user"]
        self._http = httpx2.Client(
            base_url=plane.server,
            verify=ssl.create_default_context(cafile=str(plane.authority)),
            headers={"Authorization": f"Bearer {user['token']}"},
            timeout=_TIMEOUT,
            trust_env=False,
        )

    def close(self) -> None:
        """Closes the connection."""
        self._http.close()

    def list(self, path: str, **fields: str) -> list[Object]:
        """All objects there whose fields have these values; ``_`` stands for a point."""
        selector = ",".join(f"{name.replace('_', '.')}={value}" for name, value in fields.items())
        items: list[Object] = self._json("GET", path, params={"fieldSelector": selector})["items"] or []
        return items

    def find(self, path: str) -> Object | None:
        """One object, if it is there."""
        try:
            return self._json("GET", path)
        except httpx2.HTTPStatusError as error:
            if error.response.status_code == 404:
                return None
            raise

    def create(self, path: str, body: Mapping[str, Any]) -> Object:
        """Creates an object."""
        return self._json("POST", path, json=body)

    def patch(self, path: str, body: Mapping[str, Any]) -> None:
        """Patches an object, or its status."""
        self._json("PATCH", path, json=body, headers=_STRATEGIC)

    def delete(self, path: str, body: Mapping[str, Any] | None = None) -> None:
        """Deletes an object that may be gone already."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", **(body or {})}
        try:
            self._json("DELETE", path, json=options)
        except httpx2.HTTPStatusError as error:
            if error.response.status_code not in (404, 409):  # gone, or another object of that name
                raise

    def _json(self, method: str, path: str, **more: Any) -> Object:
        answer = self._http.request(method, path, **more)
        answer.raise_for_status()
        found: Object = answer.json()
        return found
