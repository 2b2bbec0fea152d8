"""Carries out the changes to nodes in the background, and retries until they are done."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from cloudgraft.joining.chores import Chore, RemoveNode, TendNode
from cloudgraft.kube.attempts import Attempts
from cloudgraft.kube.objects import NODES, PatchStyle
from cloudgraft.sdk.errors import (
    AuthenticationError,
    CloudgraftError,
    ConflictError,
    DeadlineError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    UnavailableError,
)

if TYPE_CHECKING:
    from cloudgraft.kube.client import KubeClient

_LOG = logging.getLogger("cloudgraft.joining")
_AT_ONCE: Final = 8  # calls at a time
_PER_ROUND: Final = 200  # chores; then it decides again
_BREATH: Final = 0.05  # seconds before a round, because changes seldom come alone; longer where deciding takes long,
_SHARE: Final = 20  # so that deciding has no more than this part of the time
_REST: Final = 1.0  # seconds; then retries may be due, and machines may have been gone long enough
# After these the next call would fail in the same way: better to wait for the next round.
_HOPELESS: Final = (UnavailableError, DeadlineError, RateLimitedError, AuthenticationError)


class Keeper:
    """Makes changes to nodes. Each is harmless when made twice or too late, and touches only the node it names."""

    def __init__(
        self, client: KubeClient, decide: Callable[[], Sequence[Chore]], *, may_act: Callable[[], bool]
    ) -> None:
        """``decide`` returns the changes to make now; none while that is unknown. ``may_act``: whether we may."""
        self._client = client
        self._may_act = may_act
        self._decide = decide
        self._attempts = Attempts()
        self._news = asyncio.Event()
        self._told: set[tuple[type[Chore], type[CloudgraftError]]] = set()
        self.troubles: dict[type[Chore], CloudgraftError] = {}  # current failures, by kind

    def wake(self) -> None:
        """Starts a round: there may be something to do."""
        self._news.set()

    async def run(self) -> None:
        """Works on until cancelled."""
        breath = _BREATH
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_REST):
                    await self._news.wait()
            await asyncio.sleep(breath)
            self._news.clear()
            began = time.monotonic()
            chores = self._decide()
            breath = max(_BREATH, (time.monotonic() - began) * _SHARE)
            await self._carry_out(chores)

    async def _carry_out(self, chores: Sequence[Chore]) -> None:
        keyed = {chore.key: chore for chore in chores}
        self._attempts.keep_only(keyed)
        for kind in self.troubles.keys() - {type(chore) for chore in chores}:
            del self.troubles[kind]
        now = time.monotonic()
        due = [(key, chore) for key, chore in keyed.items() if self._attempts.is_due(key, now)]
        work = deque(due[:_PER_ROUND])
        if len(work) < len(due):
            self._news.set()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(_AT_ONCE, len(work))):
                tasks.create_task(self._work_off(work))

    async def _work_off(self, work: deque[tuple[str, Chore]]) -> None:
        while work and self._may_act():
            key, chore = work.popleft()
            try:
                await self._do(chore)
            except CloudgraftError as error:
                self._report(chore, error, failures=self._attempts.failed(key, time.monotonic()))
                if isinstance(error, _HOPELESS):
                    work.clear()
            else:
                self._attempts.succeeded(key, time.monotonic())
                self._told = {entry for entry in self._told if entry[0] is not type(chore)}
                self.troubles.pop(type(chore), None)

    async def _do(self, chore: Chore) -> None:
        node = chore.node
        if isinstance(chore, RemoveNode):
            with suppress(NotFoundError):
                await self._client.delete(NODES, node.name, uid=node.uid)
            _LOG.info("removed node %s: its machine %s is gone", node.name, chore.machine)
        elif isinstance(chore, TendNode):
            # With uid and version: not if it is another node by now, nor if it was changed since we read it.
            patch: dict[str, object] = {"metadata": {"uid": node.uid, "resourceVersion": node.version}}
            if chore.labels:
                patch["metadata"] = {"uid": node.uid, "resourceVersion": node.version, "labels": dict(chore.labels)}
            if chore.provider_id:
                patch["spec"] = {"providerID": chore.provider_id}
            await self._client.patch(NODES, node.name, patch, style=PatchStyle.MERGE)
            _LOG.info("node %s is machine %s: %s", node.name, chore.machine, _given(chore))

    def _report(self, chore: Chore, error: CloudgraftError, *, failures: int) -> None:
        """Logs one warning per kind of failure, not one per node, and none for a first failure.

        A first failure is often harmless: another client was faster, or we were and have not seen it yet. A node that
        has just joined is changed by many clients, one after another. But a forbidden call stays forbidden on a retry.
        """
        entry = (type(chore), type(error))
        tolerated = 4 if isinstance(error, ConflictError) else 1
        is_trouble = failures > tolerated or isinstance(error, PermissionDeniedError)
        is_news = is_trouble and entry not in self._told
        if is_trouble:
            self.troubles[type(chore)] = error
        if is_news:
            self._told.add(entry)
        level = logging.WARNING if is_news else logging.DEBUG
        _LOG.log(level, "cannot update nodes: %s", error, extra={"chore": type(chore).__name__})


def _given(chore: TendNode) -> str:
    parts = [f"providerID {chore.provider_id}"] if chore.provider_id else []
    parts += [f"label {key}={value}" for key, value in chore.labels.items()]
    return ", ".join(parts)
