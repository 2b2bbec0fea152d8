"""`cloudgraft simcloud` as a real process, and calls to it, for tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class SimcloudProcess:
    """Starts the cloud on a port of its own and waits until it serves."""

    def __init__(self, db: Path, *arguments: str, listen: str = "127.0.0.1:0") -> None:
        self.log: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "cloudgraft.cli", "simcloud", "--db", str(db), "--listen", listen),
                *("--log-format", "json", *arguments),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.url = f"http://{self._wait_until_serving()}"

    def _wait_until_serving(self) -> str:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(json.loads(line) if line.startswith("{") else {"event": line})
            if self.log[-1]["event"] == "serving":
                return str(self.log[-1]["address"])
        self.close()
        raise AssertionError(f"the cloud did not start: {self.log}")

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ledger(self) -> list[dict[str, Any]]:
        """Every machine ever made."""
        machines: list[dict[str, Any]] = call(self.url, "GET", "/ledger")["machines"]
        return machines

    def chaos(self, **chaos: object) -> None:
        """By the keys of JSON."""
        call(self.url, "PUT", "/chaos", chaos)


def call(url: str, method: str, path: str, body: object = None) -> Any:
    """The answer as JSON; raises urllib.error.HTTPError."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{url}{path}", data=data, method=method)
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def refused(url: str, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
    """The status and the error of a call that must not work."""
    try:
        answer = call(url, method, path, body)
    except urllib.error.HTTPError as error:
        with error:
            explained: dict[str, Any] = json.load(error)["error"]
            return error.code, explained
    raise AssertionError(f"it was not refused: {answer}")
