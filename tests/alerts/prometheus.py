"""A real Prometheus that scrapes servers of the tests, evaluates rules, and answers queries."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.processes import free_ports
from tests.conditions import until

PROGRAM: Final = "prometheus"


def is_installed() -> bool:
    """Whether Prometheus can be started."""
    return shutil.which(PROGRAM) is not None


class Prometheus:
    """One running Prometheus."""

    def __init__(self, url: str) -> None:
        self._url = url

    @classmethod
    @contextlib.asynccontextmanager
    async def started(
        cls, directory: Path, rules: Mapping[str, Any], targets: Mapping[str, str]
    ) -> AsyncIterator[Prometheus]:
        """``targets``: the address of each job."""
        (directory / "rules.yaml").write_text(yaml.safe_dump(dict(rules)))
        (directory / "prometheus.yaml").write_text(yaml.safe_dump(_configuration(targets)))
        address = f"127.0.0.1:{free_ports(1)[0]}"
        command = [
            PROGRAM,
            f"--config.file={directory / 'prometheus.yaml'}",
            f"--storage.tsdb.path={directory / 'tsdb'}",
            f"--web.listen-address={address}",
            "--log.level=warn",
        ]
        with (directory / "prometheus.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            made = cls(f"http://{address}")
            await until(made.is_ready, what=(directory / "prometheus.log").read_text() or "Prometheus is ready")
            yield made
        finally:
            process.terminate()
            await process.wait()

    async def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            await asyncio.to_thread(_get, f"{self._url}/-/ready")
        except OSError:
            return False
        return True

    async def firing(self) -> list[dict[str, Any]]:
        """The alerts that fire now, with labels and annotations."""
        found = json.loads(await asyncio.to_thread(_get, f"{self._url}/api/v1/alerts"))["data"]["alerts"]
        return [alert for alert in found if alert["state"] == "firing"]

    async def scrape_errors(self) -> dict[str, str]:
        """Why targets could not be scraped, by job."""
        found = json.loads(await asyncio.to_thread(_get, f"{self._url}/api/v1/targets"))["data"]["activeTargets"]
        return {target["labels"]["job"]: target["lastError"] for target in found if target["lastError"]}

    async def query(self, expr: str) -> list[dict[str, Any]]:
        """The series that an expression has now."""
        given = urllib.parse.urlencode({"query": expr})
        try:
            answer = await asyncio.to_thread(_get, f"{self._url}/api/v1/query?{given}")
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{expr}: {error.read().decode()}") from None
        result: list[dict[str, Any]] = json.loads(answer)["data"]["result"]
        return result


def _configuration(targets: Mapping[str, str]) -> dict[str, Any]:
    jobs = [{"job_name": job, "static_configs": [{"targets": [address]}]} for job, address in targets.items()]
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": jobs,
    }


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return str(answer.read().decode())
