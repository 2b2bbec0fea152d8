"""Sends a front's requests to a node manager."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from cloudgraft.nodemanager.snapshot import (
    GroupSnapshot,
    Known,
    Revision,
    Snapshot,
    group_from_json,
    known_from_json,
    snapshot_from_json,
)
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, InternalError, UnavailableError
from cloudgraft.sdk.event_loop import in_slices
from cloudgraft.web.client import Answer, WebClient

_SLICE: Final = 250  # machines that are read before other tasks run
_FIRST_SHARE: Final = 0.6  # share of a change's time limit that the first attempt may use
_NOT_MODIFIED: Final = 304


@dataclass(frozen=True, slots=True)
class Changed:
    """A manager's response to a change: the group as it is now, if it still exists."""

    revision: Revision
    group: GroupSnapshot | None


class ManagerLink:
    """Calls one node manager, or several behind one address."""

    def __init__(self, client: WebClient, *, timeout: float) -> None:
        """``timeout`` is for each request except the one that waits for changes, in seconds."""
        self._client = client
        self._timeout = timeout
        self.requests = 0  # all requests sent

    @property
    def address(self) -> str:
        """The address of the manager."""
        return self._client.address

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.close()

    async def news(self, since: Revision | None, wait: float) -> Snapshot | None:
        """What is newer than the revision, as soon as there is something; None when nothing came in ``wait`` s."""
        query, headers = {"wait": f"{wait:g}"}, {}
        if since is not None:
            query["since"], headers["If-None-Match"] = str(since), f'"{since}"'
        answer = await self._send("GET", "/v1/snapshot", query=query, headers=headers, timeout=wait + self._timeout)
        return None if answer.status == _NOT_MODIFIED else await _picture(answer.json)

    async def refresh(self, seconds: float) -> Revision | None:
        """Makes the manager apply configuration changes; returns the resulting revision."""
        answer = await self._send("POST", "/v1/refresh", timeout=min(seconds, self._timeout))
        return Revision.parse(answer.headers.get("etag", "").strip('"'))

    async def cleanup(self) -> None:
        """Tells the manager that the autoscaler is shutting down."""
        await self._send("POST", "/v1/cleanup", timeout=self._timeout)

    async def change(self, group: str, verb: str, body: Mapping[str, object], since: Revision) -> Changed:
        """Requests a change, and repeats a lost one under the same key, so that it is made once."""
        path, key = f"/v1/nodegroups/{quote(group, safe='')}:{verb}", secrets.token_hex(16)
        until = time.monotonic() + self._timeout

        async def ask(seconds: float) -> Answer:
            headers = {"Idempotency-Key": key, "Prefer": f"wait={seconds:.3f}"}  # after that the caller has timed out
            return await self._send(
                "POST", path, json=body, headers=headers, query={"since": str(since)}, timeout=seconds
            )

        try:
            answer = await ask(self._timeout * _FIRST_SHARE)
        except (DeadlineError, UnavailableError) as error:
            if error.retry_after is not None:  # the manager responded: it is unavailable for now
                raise
            answer = await ask(max(0.1, until - time.monotonic()))
        return await _changed(answer.json)

    async def _send(self, method: str, path: str, **how: Any) -> Answer:
        self.requests += 1
        return await self._client.request(method, path, **how)


async def _picture(data: Any) -> Snapshot:
    groups = [await _group(entry) for entry in _list(data, "groups")]
    return snapshot_from_json(data, groups)


async def _group(data: Any) -> GroupSnapshot:
    entries = _list(data, "machines")
    machines: list[Known] = []
    async for some in in_slices(entries, _SLICE):
        machines += [known_from_json(entry) for entry in some]
    await asyncio.sleep(0)  # a large group, or many, must not keep the autoscaler's calls waiting (law 1)
    return group_from_json(data, machines)


async def _changed(data: Any) -> Changed:
    """The change was made: if the response is unreadable, the next snapshot shows the result."""
    revision = Revision.parse(str(data.get("revision", ""))) if isinstance(data, dict) else None
    if revision is None:
        raise InternalError("the node manager made the change, but its response is unreadable: is it another release?")
    try:
        group = await _group(data["picture"]) if data.get("picture") is not None else None
    except CloudgraftError:
        group = None
    return Changed(revision, group)


def _list(data: Any, key: str) -> Sequence[Any]:
    found = data.get(key) if isinstance(data, dict) else None
    if not isinstance(found, list):
        raise InternalError(f"the node manager's answer has no {key}: is it a node manager, and of this release?")
    return found
