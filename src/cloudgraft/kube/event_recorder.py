"""Writes Kubernetes Events, which `kubectl describe` shows with the object that they are about."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections import deque
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from cloudgraft.kube.objects import Manifest, Node, custom_kind
from cloudgraft.kube.rights import NODE_EVENTS_NAMESPACE
from cloudgraft.sdk.common.ratelimit import RepeatLimit, TokenBucket
from cloudgraft.sdk.errors import CloudgraftError, NotFoundError

if TYPE_CHECKING:
    from cloudgraft.kube.client import KubeClient

_LOG = logging.getLogger("cloudgraft.kube")
_EVENTS: Final = custom_kind("api/v1", "events")
_DEPLOYMENTS: Final = custom_kind("apis/apps/v1", "deployments")
_LONGEST: Final = 1024  # characters of a message, the limit of the API
_QUEUE: Final = 100
_BURST: Final = 25  # events at once
_PER_SECOND: Final = 0.2  # events after that


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One warning about a node, or without one about cloudgraft itself."""

    reason: str  # one CamelCase word, such as GuardHit
    message: str
    node: Node | None = None
    more: int = 0  # like it, about the same object, that were not written since the last one


class EventRecorder:
    """Writes notices as Events of type Warning, in the background.

    The same reason about the same object is written once a minute, and all of them together no faster than a token
    bucket allows. A notice that is dropped or cannot be written is lost here: `cloudgraft events` has them all.
    """

    def __init__(self, client: KubeClient, *, namespace: str, deployment: str) -> None:
        """``deployment`` is cloudgraft's own, for notices about no node."""
        self._client = client
        self._namespace = namespace
        self._deployment = deployment
        self._own_uid = ""
        self._waiting: deque[Notice] = deque(maxlen=_QUEUE)
        self._news = asyncio.Event()
        self._repeats = RepeatLimit()
        self._rate = TokenBucket(rate=_PER_SECOND, burst=_BURST)
        self._is_failing = False

    def record(self, notice: Notice) -> None:
        """Queues a notice, unless there were too many. Never waits."""
        if not self._rate.has():
            return
        about = notice.node.uid if notice.node is not None else ""
        dropped = self._repeats.admit((about, notice.reason))
        if dropped is None:
            return
        self._rate.take()
        self._waiting.append(replace(notice, more=dropped))
        self._news.set()

    async def run(self) -> None:
        """Writes until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                await self._write(self._waiting.popleft())

    async def _write(self, notice: Notice) -> None:
        try:
            about = _reference(notice.node) if notice.node is not None else await self._own_reference()
            namespace = self._namespace if notice.node is None else NODE_EVENTS_NAMESPACE
            await self._client.create(_EVENTS, _manifest(notice, about, namespace), namespace=namespace)
        except CloudgraftError as error:
            self._own_uid = ""  # the Deployment may have been replaced
            if not self._is_failing:  # once, not for every event
                _LOG.warning("cannot write Kubernetes Events: %s", error)
            self._is_failing = True
        except Exception:  # noqa: BLE001 - a bug must not end the loop
            _LOG.exception("writing a Kubernetes Event failed")
        else:
            self._is_failing = False

    async def _own_reference(self) -> Manifest:
        if not self._own_uid:
            try:
                own = await self._client.get(_DEPLOYMENTS, self._deployment, namespace=self._namespace)
            except NotFoundError as error:
                hint = "set kubernetes.events.deployment and namespace to cloudgraft's own Deployment"
                raise NotFoundError(f"{error.message}: {hint}") from error
            self._own_uid = own.uid
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "namespace": self._namespace,
            "name": self._deployment,
            "uid": self._own_uid,
        }


def _reference(node: Node) -> Manifest:
    return {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}


def _message(notice: Notice) -> str:
    end = f" (and {notice.more} more since the last one: see cloudgraft events)" if notice.more else ""
    return notice.message[: _LONGEST - len(end)] + end


def _manifest(notice: Notice, about: Manifest, namespace: str) -> Manifest:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about['name']}.{secrets.token_hex(8)}", "namespace": namespace},
        "involvedObject": about,
        "type": "Warning",
        "reason": notice.reason,
        "message": _message(notice),
        "source": {"component": "cloudgraft"},
        "reportingComponent": "cloudgraft",
        "reportingInstance": socket.gethostname(),
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
