"""Creates clients from a kubeconfig file or a pod's service account; an error says what is missing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgraft.kube.networks import AllowedNetworks
from cloudgraft.sdk.common.extras import check_installed

if TYPE_CHECKING:
    from cloudgraft.kube.client import KubeClient


def connect(kubeconfig: Path | None, *, timeout: float = 15.0) -> KubeClient:
    """A client for the current context of a kubeconfig file; None: for the cluster of this pod.

    Makes no call yet; every call has the timeout. Raises PreconditionError when the extra is not installed,
    InvalidArgumentError when the file is unusable.
    """
    if kubeconfig is None:
        return connect_in_cluster(timeout=timeout)
    _need_the_extra()
    # Here and not above: an extra, and slow to import.
    from cloudgraft.kube.api import Api  # noqa: PLC0415
    from cloudgraft.kube.client import KubeClient  # noqa: PLC0415
    from cloudgraft.kube.credentials import from_kubeconfig  # noqa: PLC0415

    return KubeClient(Api(from_kubeconfig(kubeconfig), name=f"the kubeconfig {kubeconfig}", timeout=timeout))


async def connect_foreign(
    text: str,
    *,
    name: str,
    networks: AllowedNetworks | None = None,
    timeout: float = 15.0,  # noqa: ASYNC109 - of later calls
) -> KubeClient:
    """A client for a foreign kubeconfig; ``name`` says whose it is, for messages.

    Raises InvalidArgumentError when it is unusable, would make us run or read something here, or leads to an address
    outside the networks; without networks, to an address that no foreign API server has.
    """
    _need_the_extra()
    from cloudgraft.kube.api import Api  # noqa: PLC0415 - as above
    from cloudgraft.kube.client import KubeClient  # noqa: PLC0415
    from cloudgraft.kube.credentials import from_foreign_text  # noqa: PLC0415

    allowed = networks or AllowedNetworks()
    credentials = await asyncio.to_thread(from_foreign_text, text, name, allowed)
    return KubeClient(Api(credentials, name=name, timeout=timeout, networks=allowed))


def connect_in_cluster(
    account: Path | None = None, *, environment: Mapping[str, str] = os.environ, timeout: float = 15.0
) -> KubeClient:
    """A client for the cluster of this pod, with its service account, whose files are in ``account``.

    Raises PreconditionError when the extra is not installed, or when this runs in no pod.
    """
    _need_the_extra()
    from cloudgraft.kube.api import Api  # noqa: PLC0415 - as above
    from cloudgraft.kube.client import KubeClient  # noqa: PLC0415
    from cloudgraft.kube.credentials import SERVICE_ACCOUNT, from_service_account  # noqa: PLC0415

    found = from_service_account(account or SERVICE_ACCOUNT, environment)
    return KubeClient(Api(found, name="the service account", timeout=timeout))


def _need_the_extra() -> None:
    check_installed("talking to a Kubernetes API", "lightkube", extra="kubernetes")
