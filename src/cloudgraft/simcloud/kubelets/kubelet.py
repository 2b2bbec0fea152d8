"""The kubelets of the simulated cloud's machines, in a thread of their own.

Without them a cluster would not notice the simulated machines: no node would appear, bound pods would stay pending, and
deleted ones would never go, so that no node ever became empty.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cloudgraft.kube.credentials import connect
from cloudgraft.sdk.errors import PreconditionError
from cloudgraft.simcloud.kubelets.agent import Cloud, NodeAgent

if TYPE_CHECKING:
    from cloudgraft.kube.client import KubeClient

__all__ = ["Kubelet"]

_LOG = logging.getLogger("cloudgraft.simcloud.kubelets.kubelet")
_AFTER_A_BUG: Final = 1.0  # seconds


class Kubelet:
    """Makes the machines of a simulated cloud nodes of a cluster.

    It never touches a node whose providerID is not one of a machine that this cloud made. When it is stopped, the
    nodes stay, and the cluster finds them silent; when it is started again, it takes up where it was.
    """

    def __init__(self, cloud: Cloud, kubeconfig: Path, *, clock: Callable[[], float] = time.time) -> None:
        """``clock`` tells the time that is written into the cluster, by which leases are renewed."""
        self._cloud = cloud
        self._clock = clock
        self._kubeconfig = kubeconfig
        self._thread: threading.Thread | None = None
        self._is_up = threading.Event()
        self._halt: Callable[[], object] = lambda: None

    def start(self) -> None:
        """Begins to play; the cluster need not be there yet.

        Raises PreconditionError when the extra ``kubernetes`` is not installed or when this was started before, and
        InvalidArgumentError when the kubeconfig cannot be used.
        """
        if self._thread is not None:
            raise PreconditionError("this kubelet was started already: make a new one")
        client = connect(self._kubeconfig)
        self._thread = threading.Thread(target=self._serve, args=(client,), name="simulated-kubelet", daemon=True)
        self._thread.start()
        self._is_up.wait()
        _LOG.info("playing the kubelet", extra={"kubeconfig": str(self._kubeconfig)})

    def stop(self) -> None:
        """Stops at once, whatever is under way. Twice is fine, and so is without a start."""
        if self._thread is not None:
            self._halt()
            self._thread.join()

    def _serve(self, client: KubeClient) -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(self._play(client))

    async def _play(self, client: KubeClient) -> None:
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        if task is not None:
            self._halt = partial(_cancel, loop, task)
        self._is_up.set()
        try:
            while True:
                await self._play_once(client)
                await asyncio.sleep(_AFTER_A_BUG)
        finally:
            await client.close()

    async def _play_once(self, client: KubeClient) -> None:
        try:
            await NodeAgent(self._cloud, client, clock=self._clock).run()
        except Exception:  # noqa: BLE001 - a bug of ours must not end it; all other trouble is dealt with inside
            _LOG.exception("the simulated kubelet stumbled; it starts anew")


def _cancel(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    with suppress(RuntimeError):  # the loop is closed: it has ended already
        loop.call_soon_threadsafe(task.cancel)
