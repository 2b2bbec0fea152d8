"""A Deployment of replicas and the Service before it, as Kubernetes runs them, in a thread of their own."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from e2e.processes import free_ports
from e2e.rollover.pods import Pod, Template
from e2e.rollover.rolling_update import Strategy, next_step

__all__ = ["Deployment"]

_LOOK: Final = 0.1  # seconds
_CHUNK: Final = 1 << 16


class Deployment:
    """Two replicas behind one address. An update is a new template and a strategy; :meth:`is_complete` is its end."""

    def __init__(self, directory: Path, tell: Callable[[str], None]) -> None:
        (self.port,) = free_ports(1)
        self.counts: Counter[str] = Counter()  # of new connections: "ready", "ending", "refused"
        self.pods: list[Pod] = []
        self.ended: list[Pod] = []
        self._directory = directory
        self._tell = tell
        self._template: Template | None = None
        self._strategy = Strategy(replicas=0, max_surge=0, max_unavailable=0)
        self._number = 0
        self._failure: BaseException | None = None
        self._is_over = threading.Event()

    def update(self, template: Template, strategy: Strategy) -> None:
        """Orders other pods; returns at once."""
        self._strategy, self._template = strategy, template

    def is_complete(self) -> bool:
        """Whether only pods of the new template are left, and one of them is ready."""
        pods = list(self.pods)
        ours = [pod for pod in pods if pod.template is self._template and not pod.is_ending]
        return len(pods) == len(ours) == self._strategy.replicas and any(pod.is_ready for pod in ours)

    def check(self) -> None:
        """Raises an error when a pod has ended that was not asked to, or this thread has."""
        if self._failure is not None:
            raise self._failure
        for pod in list(self.pods):
            if not pod.is_ending:
                pod.process.check()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Runs while the block lasts; then stops all pods."""
        thread = threading.Thread(target=self._work, name="deployment")
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join()
            for pod in self.pods:
                pod.process.ask_to_stop()
            for pod in self.pods:
                pod.process.stop()

    def _work(self) -> None:
        try:
            asyncio.run(self._run())
        except Exception as error:  # noqa: BLE001 - it is raised by check(), in the thread that waits
            self._failure = error

    async def _run(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        async with server:
            while not self._is_over.is_set():
                await asyncio.gather(*(pod.probe() for pod in self.pods))
                self._reap()
                self._reconcile()
                await asyncio.sleep(_LOOK)

    # -- the controller ------------------------------------------------------------------------------------------------

    def _reap(self) -> None:
        for pod in [pod for pod in self.pods if pod.is_ending]:
            if pod.process.is_running:
                pod.end()
                continue
            took = time.monotonic() - (pod.ending_since or 0.0)
            self._tell(f"pod {pod.name} has ended with code {pod.process.exit_code}, {took:.1f} s after SIGTERM")
            self.pods.remove(pod)
            self.ended.append(pod)

    def _reconcile(self) -> None:
        template = self._template
        if template is None:
            return
        there = [pod for pod in self.pods if not pod.is_ending]
        old = [pod for pod in there if pod.template is not template]
        new = [pod for pod in there if pod.template is template]
        step = next_step(self._strategy, [pod.is_ready for pod in old], [pod.is_ready for pod in new])
        for _ in range(step.start):
            self._number += 1
            pod = Pod(template, self._number, self._directory)
            self._tell(f"pod {pod.name} starts, release {template.release.name}")
            pod.process.start()
            self.pods.append(pod)
        for position in step.end:
            pod = old[position]
            self._tell(f"pod {pod.name} is ended, which was {'ready' if pod.is_ready else 'not ready'}")
            pod.end()

    # -- the Service ---------------------------------------------------------------------------------------------------

    def _endpoint(self) -> tuple[str, Pod | None]:
        """Where a new connection goes: to a ready pod; without one, to a pod that ends and is ready still."""
        ready = [pod for pod in self.pods if pod.is_ready]
        for kind, pods in (
            ("ready", [pod for pod in ready if not pod.is_ending]),
            ("ending", [pod for pod in ready if pod.is_ending]),
        ):
            if pods:
                return kind, random.choice(pods)
        return "refused", None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kind, pod = self._endpoint()
        try:
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", pod.port if pod is not None else 0)
        except OSError:
            self.counts["refused"] += 1
            self._tell(f"a connection is refused: {f'pod {pod.name} does not listen' if pod else 'no pod is ready'}")
            writer.transport.abort()
            return
        self.counts[kind] += 1
        self._tell(f"a connection goes to pod {pod.name if pod else ''}, which is {kind}")
        with contextlib.suppress(asyncio.CancelledError):  # the end of the run ends connections
            await asyncio.gather(_copy(reader, to_writer), _copy(to_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()
