"""Replicas of cloudgraft as pods: started, asked whether they are ready, ended in good order, as a kubelet does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.journal import LogReader, read_calls
from e2e.processes import Program, free_ports
from e2e.rollover.previous_release import InstalledRelease

__all__ = ["Pod", "Template"]

_EVERY: Final = 1.0  # seconds; periodSeconds of the readiness probe in the chart
_FAILURES: Final = 3  # Kubernetes' own number until a pod that was ready is no longer
_GRACE: Final = 55.0  # seconds; terminationGracePeriodSeconds in the chart
_TIMEOUT: Final = 1.0  # of a probe


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What all pods of one rollout are made of."""

    name: str  # pod-template-hash
    release: InstalledRelease
    document: Mapping[str, Any]


class Pod:
    """One replica."""

    def __init__(self, template: Template, number: int, directory: Path) -> None:
        self.template = template
        self.name = f"{template.name}-{number}"
        self.port, self._ops = free_ports(2)
        self.is_ready = False
        self.ending_since: float | None = None
        self._failures = 0
        self._probed_at = 0.0
        self.config = config = directory / f"{self.name}.yaml"
        ours = {"listen": f"127.0.0.1:{self.port}", "ops": f"127.0.0.1:{self._ops}", **template.document["server"]}
        admin = {"listen": f"unix:{directory / self.name}.sock"}
        config.write_text(yaml.safe_dump({**template.document, "server": ours, "admin": admin}), "utf-8")
        self.process = Program(
            self.name,
            template.release.command("serve", "--config", config),
            directory / f"{self.name}.log",
            environment={"CLOUDGRAFT_ROLLOUT": template.name},
        )
        self._log = LogReader(self.process.log)

    @property
    def is_ending(self) -> bool:
        """Whether it was asked to stop."""
        return self.ending_since is not None

    async def probe(self) -> None:
        """Asks whether it is ready, when it is time for that."""
        if time.monotonic() < self._probed_at + _EVERY or not self.process.is_running:
            return
        self._probed_at = time.monotonic()
        if await self._answers_200():
            self.is_ready, self._failures = True, 0
            return
        self._failures += 1
        if self._failures >= _FAILURES:
            self.is_ready = False

    def end(self) -> None:
        """Asks it to stop, or kills it when it takes too long. To be called again until it has ended."""
        if self.ending_since is None:
            self.ending_since = time.monotonic()
            self.process.ask_to_stop()
        elif time.monotonic() > self.ending_since + _GRACE:
            self.process.kill()

    def slowest_call(self) -> float:
        """Seconds that its longest call took."""
        return max((float(entry.get("ms", 0.0)) for entry in self._calls()), default=0.0) / 1000

    def answers(self) -> Sequence[str]:
        """The codes of all its answers."""
        return [call.code for call in read_calls(self._log.entries())]

    def _calls(self) -> list[dict[str, Any]]:
        return [entry for entry in self._log.entries() if entry.get("event") == "call"]

    async def _answers_200(self) -> bool:
        try:
            async with asyncio.timeout(_TIMEOUT):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._ops)
                try:
                    writer.write(b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n")
                    await writer.drain()
                    return b" 200 " in await reader.readline()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False
