"""Keeps a container's program running, and asks its probes, as a kubelet does."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from e2e.first_node.sandbox import Sandbox
from e2e.processes import Program

__all__ = ["Container", "now_as_text"]

_FIRST_BACK_OFF: Final = 10.0  # seconds, as the kubelet's; the first restart is at once
_LONGEST_BACK_OFF: Final = 300.0
_DIRECTLY: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def now_as_text() -> str:
    """As the API has times."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Probe:
    """An HTTP probe of a container. One that is not declared has always succeeded."""

    def __init__(self, said: Mapping[str, Any] | None, ip: str, ports: Mapping[str, int]) -> None:
        self._said = said or {}
        self.is_declared = said is not None
        if said is not None:
            get = said["httpGet"]
            assert get.get("scheme", "HTTP") == "HTTP", get
            self._url = f"http://{ip}:{ports.get(get['port'], get['port'])}{get['path']}"
        self.reset()

    def reset(self) -> None:
        """Of a container that starts anew."""
        self.has_succeeded = not self.is_declared
        self._failures = 0
        self._due = 0.0

    @property
    def has_failed(self) -> bool:
        """Whether it has failed so often in a row as it may."""
        return self._failures >= int(self._said.get("failureThreshold", 3))

    def ask(self) -> None:
        """Asks, if it is time to."""
        now = time.monotonic()
        if not self.is_declared or now < self._due:
            return
        self._due = now + self._said.get("periodSeconds", 10)
        try:
            with _DIRECTLY.open(self._url, timeout=self._said.get("timeoutSeconds", 1)) as answer:
                answer.read()
        except OSError:
            self._failures += 1
            self.has_succeeded = self.has_succeeded and not self.has_failed
        else:
            self._failures = 0
            self.has_succeeded = True


class Container:
    """One container of a pod, restarted as the pod's policy says. It does not start by itself."""

    def __init__(self, spec: Mapping[str, Any], sandbox: Sandbox, words: Sequence[str], log: Path, ip: str) -> None:
        self.name = str(spec["name"])
        self.sandbox = sandbox
        self._spec = spec
        self._program = Program(self.name, sandbox.command(words), log)
        ports = {port["name"]: port["containerPort"] for port in spec.get("ports", ())}
        self._startup, self._readiness, self._liveness = (
            Probe(spec.get(f"{kind}Probe"), ip, ports) for kind in ("startup", "readiness", "liveness")
        )
        self._restarts = 0
        self._restart_at = 0.0
        self._began = ""
        self._code: int | None = None  # of the last end

    def start(self) -> None:
        """Starts the program."""
        for probe in (self._startup, self._readiness, self._liveness):
            probe.reset()
        self._began = now_as_text()
        self._program.start()

    def stop(self) -> None:
        """Stops it for good."""
        self._program.stop()

    @property
    def process_id(self) -> int:
        """Of its program; 0 while none runs."""
        return self._program.process_id if self._program.is_running else 0

    @property
    def has_succeeded(self) -> bool:
        """Whether it has ended with code 0."""
        return self._code == 0

    @property
    def is_ready(self) -> bool:
        """Whether its probes say so."""
        return self._program.is_running and self._startup.has_succeeded and self._readiness.has_succeeded

    def look_after(self, *, restarts_after_success: bool) -> None:
        """Restarts what has ended, or does not live any more; asks the probes of what runs."""
        if self._program.is_running:
            self._ask()
        elif self._code is None:
            self._ended(self._program.exit_code or 0)
        elif (restarts_after_success or self._code) and time.monotonic() >= self._restart_at:
            self._code = None
            self._restarts += 1
            self.start()

    def _ask(self) -> None:
        self._startup.ask()
        if self._startup.has_succeeded:
            self._readiness.ask()
            self._liveness.ask()
        if self._startup.has_failed or self._liveness.has_failed:
            self._program.stop()
            self._ended(137)

    def _ended(self, code: int) -> None:
        self._code = code
        pause = min(_FIRST_BACK_OFF * 2 ** (self._restarts - 1), _LONGEST_BACK_OFF) if self._restarts else 0.0
        self._restart_at = time.monotonic() + pause

    def status(self) -> dict[str, Any]:
        """As in the pod's status."""
        running = waiting = terminated = None
        if self._program.is_running:
            running = {"startedAt": self._began}
        elif self.has_succeeded:
            terminated = {"exitCode": 0, "reason": "Completed", "startedAt": self._began, "finishedAt": now_as_text()}
        else:
            waiting = {"reason": "CrashLoopBackOff", "message": f"ended with code {self._code}"}
        return {
            "name": self.name,
            "image": self._spec["image"],
            "imageID": "",
            "ready": self.is_ready,
            "started": self._program.is_running and self._startup.has_succeeded,
            "restartCount": self._restarts,
            "state": {"running": running, "waiting": waiting, "terminated": terminated},
        }
