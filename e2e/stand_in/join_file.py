"""What a machine is told by its user data: cloud-init's file, and kubeadm's JoinConfiguration in it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

__all__ = ["Join", "read_join"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """How this machine becomes a node."""

    name: str
    server: str  # https://host:port
    token_id: str
    token_secret: str
    pins: tuple[str, ...]  # sha256:… of the CA's public key
    kubelet: Mapping[str, str]  # its extra arguments
    taints: Sequence[Mapping[str, str]]

    @property
    def labels(self) -> dict[str, str]:
        """Those that the kubelet puts on its node when it registers."""
        pairs = [word.partition("=") for word in self.kubelet.get("node-labels", "").split(",") if word]
        return {key: value for key, _, value in pairs}


def read_join(user_data: str) -> Join:
    """Raises ValueError for user data with which no machine would join."""
    if not user_data.startswith("#cloud-config\n"):
        raise ValueError("cloud-init reads only what begins with #cloud-config")
    files = yaml.safe_load(user_data).get("write_files", [])
    texts = [file["content"] for file in files if file["path"].endswith(".yaml")]
    documents = [document for text in texts for document in yaml.safe_load_all(text)]
    found = [one for one in documents if isinstance(one, dict) and one.get("kind") == "JoinConfiguration"]
    if len(found) != 1:
        raise ValueError(f"there are {len(found)} JoinConfigurations in the user data")
    return _join(found[0])


def _join(document: Mapping[str, Any]) -> Join:
    discovery = document["discovery"]["bootstrapToken"]
    node = document["nodeRegistration"]
    token_id, _, token_secret = discovery["token"].partition(".")
    return Join(
        name=node["name"],
        server=f"https://{discovery['apiServerEndpoint']}",
        token_id=token_id,
        token_secret=token_secret,
        pins=tuple(discovery["caCertHashes"]),
        kubelet=_arguments(node.get("kubeletExtraArgs") or {}),
        taints=node.get("taints") or (),
    )


def _arguments(given: Any) -> dict[str, str]:
    """A mapping up to v1beta3, a list of names and values since v1beta4."""
    if isinstance(given, Mapping):
        return {name: str(value) for name, value in given.items()}
    return {one["name"]: str(one["value"]) for one in given}
