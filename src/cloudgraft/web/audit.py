"""Writes the audit log, one JSON object a line. Never logs a request's content, which may contain secrets."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from cloudgraft.sdk.errors import PreconditionError

_LOG = logging.getLogger("cloudgraft.audit")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One request that changed something, read a secret, or was rejected."""

    caller: str  # empty: unknown caller
    role: str
    method: str
    path: str
    status: int
    request_id: str
    peer: str


def _now() -> datetime:
    return datetime.now(UTC)


class AuditLog:
    """Appends to a file that only its owner may read; without a file, to the log.

    A separate thread writes the file in order of arrival: a hanging disk delays only requests that are audited.
    """

    def __init__(self, path: Path | None = None, *, now: Callable[[], datetime] = _now) -> None:
        """Raises PreconditionError when the file is not writable: no server starts without its audit log."""
        self._path = path
        self._now = now
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="audit")  # starts its thread on first use
        if path is not None:
            self._append(b"")

    async def write(self, record: AuditRecord) -> None:
        """Writes a record, and returns when it is written. Cancelling the caller does not cancel the write.

        A full disk does not stop the server: the record goes to the log instead.
        """
        if self._path is None:
            _LOG.info("%s %s: %d", record.method, record.path, record.status, extra=asdict(record))
            return
        line = json.dumps({"time": self._now().isoformat(timespec="milliseconds"), **asdict(record)}) + "\n"
        loop = asyncio.get_running_loop()
        await asyncio.shield(loop.run_in_executor(self._writer, self._put, line.encode(), record))

    def _put(self, line: bytes, record: AuditRecord) -> None:
        try:
            self._append(line)
        except PreconditionError as error:
            fields = asdict(record)
            _LOG.error("%s; %s %s: %d", error.message, record.method, record.path, record.status, extra=fields)

    def _append(self, line: bytes) -> None:
        # Opened each time, so that the file may be rotated by renaming it.
        try:
            handle = os.open(str(self._path), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(handle, line)
            finally:
                os.close(handle)
        except OSError as error:
            raise PreconditionError(f"the audit log {self._path} cannot be written: {error.strerror}") from error
