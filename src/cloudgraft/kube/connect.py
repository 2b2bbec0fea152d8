"""The way in: a client from a kubeconfig file, or a word about what is missing."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgraft.sdk.errors import PreconditionError

if TYPE_CHECKING:
    from cloudgraft.kube.client import KubeClient

__all__ = ["connect"]


def connect(kubeconfig: Path, *, timeout: float = 15.0) -> KubeClient:
    """A client for the current context of a kubeconfig file. No call is made yet; every call has the timeout.

    Raises PreconditionError when the extra is not installed, InvalidArgumentError when the file cannot be used.
    """
    if find_spec("lightkube") is None:
        raise PreconditionError(
            "to talk to a Kubernetes API, cloudgraft needs lightkube: pip install 'cloudgraft[kubernetes]'"
        )
    # Here and not above: an extra, and slow to import.
    from cloudgraft.kube.api import Api  # noqa: PLC0415
    from cloudgraft.kube.client import KubeClient  # noqa: PLC0415

    return KubeClient(Api(kubeconfig, timeout=timeout))
