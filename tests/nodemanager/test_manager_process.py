"""``cloudgraft node-manager`` as a real process: TLS, tokens, a front behind gRPC, and kill -9."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from cloudgraft.app.wiring import assemble
from cloudgraft.certs.authority import create_bundle
from cloudgraft.cli.node_manager import command
from cloudgraft.config import load
from cloudgraft.nodemanager.front.provider import NodeManagerProvider
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError
from cloudgraft.service.metrics import ServiceMetrics
from cloudgraft.web.client import ClientTls, WebClient
from tests.conditions import until

TOKEN = "an-operator-token-0123"
CONFIG = """
cluster: test
server: {{ops: null}}
log: {{format: json}}
nodeManager:
  listen: 127.0.0.1:{port}
  tls: {{cert: certs/server.crt, key: certs/server.key, clientCA: certs/ca.crt}}
  clients:
    - {{name: front, role: front, certificate: cluster-autoscaler-grpc-client}}
    - {{name: admin, role: operator, tokenFile: admin.token}}
  auditLog: audit.log
clouds: {{sim: {{driver: simulated, bootTime: 10ms}}}}
nodeGroups:
  - {{id: small, cloud: sim, maxSize: 9, machine: {{shape: small}}}}
"""
FRONT = """
cluster: test
providers:
  - type: node-manager
    address: {url}
    tls: {{ca: certs/ca.crt, cert: certs/client.crt, key: certs/client.key}}
    snapshot: {{refreshEvery: 50ms}}
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    create_bundle(tmp_path / "certs", hosts=["127.0.0.1", "localhost"])
    (tmp_path / "admin.token").write_text(TOKEN)
    (tmp_path / "admin.token").chmod(0o600)
    (tmp_path / "manager.yaml").write_text(CONFIG.format(port=0))
    return tmp_path


class Manager:
    """The process, and where it listens."""

    def __init__(self, place: Path, process: asyncio.subprocess.Process) -> None:
        self.place = place
        self.process = process
        self.url = ""

    async def serving(self) -> None:
        assert self.process.stderr is not None
        async with asyncio.timeout(120):
            async for line in self.process.stderr:
                told = json.loads(line)
                if told["event"] == "serving":
                    self.url = told["address"]
                    self.drain = asyncio.create_task(self.process.stderr.read())
                    return
        raise AssertionError("it ended before it served")

    def client(self) -> WebClient:
        return WebClient(
            self.url, tls=ClientTls(ca=self.place / "certs/ca.crt"), token_file=self.place / "admin.token", timeout=60
        )


@asynccontextmanager
async def running(place: Path) -> AsyncIterator[Manager]:
    arguments = ["-m", "tests.nodemanager.killable_manager", str(place / "manager.yaml"), str(place / "die")]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stderr=asyncio.subprocess.PIPE)
    manager = Manager(place, process)
    try:
        await manager.serving()
        yield manager
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            await process.wait()
            if manager.url:
                await manager.drain


@pytest.mark.timeout(300)  # processes are started, one after the other
@pytest.mark.thorough
async def test_kill_9_between_commit_and_answer_and_the_same_key_again_is_one_increase(place: Path) -> None:
    async def increase(client: WebClient) -> int:
        headers = {"Idempotency-Key": "the-one"}
        answer = await client.request("POST", "/v1/nodegroups/small:increase", json={"delta": 2}, headers=headers)
        return int(answer.json["targetSize"])

    (place / "die").touch()
    async with running(place) as manager, manager.client() as client:
        with pytest.raises(DeadlineError):  # whether it was done is not known
            await increase(client)
        assert await manager.process.wait() == -signal.SIGKILL
    (place / "die").unlink()
    async with running(place) as manager, manager.client() as client:
        assert await increase(client) == 2
        size = (await client.request("GET", "/v1/nodegroups/small/size")).json
        assert size["target"] == 2
    assert manager.process.returncode == 0


@pytest.mark.thorough
@pytest.mark.timeout(300)  # processes are started, one after the other
async def test_a_group_that_an_operator_declared_is_served_again_after_a_restart(place: Path) -> None:
    declared = {"id": "extra", "cloud": "sim", "maxSize": 4, "machine": {"shape": "small"}}
    async with running(place) as manager, manager.client() as client:
        answer = await client.request("POST", "/v1/nodegroups", json=declared)
        assert answer.status == 201
    async with running(place) as manager, manager.client() as client:
        found = (await client.request("GET", "/v1/nodegroups")).json["items"]
        assert [(one["id"], one["source"]) for one in found] == [("extra", "api"), ("small", "file")]
        await client.request("POST", "/v1/nodegroups/extra:increase", json={"delta": 1})
        # The file is read again with it, and one that takes its id is refused.
        (place / "manager.yaml").write_text(CONFIG.format(port=0).replace("maxSize: 9", "maxSize: 8"))
        manager.process.send_signal(signal.SIGHUP)

        async def sizes() -> bool:
            await client.request("POST", "/v1/refresh")
            items = (await client.request("GET", "/v1/nodegroups")).json["items"]
            return [(one["id"], one["maxSize"]) for one in items] == [("extra", 4), ("small", 8)]

        await until(sizes, seconds=60)


@pytest.mark.thorough
@pytest.mark.timeout(300)  # processes are started, one after the other
async def test_a_front_of_a_file_serves_the_groups_of_the_manager_and_survives_its_restart(place: Path) -> None:
    async with running(place) as manager:
        (place / "front.yaml").write_text(FRONT.format(url=manager.url))
        (place / "manager.yaml").write_text(CONFIG.format(port=manager.url.rpartition(":")[2]))
        assembly = assemble(load(place / "front.yaml"), ServiceMetrics())
        front = assembly.provider
        assert isinstance(front, NodeManagerProvider)
        await front.start()
        await front.increase_size("small", 2)
    try:
        assert await front.target_size("small") == len(await front.instances("small")) == 2
        async with running(place):
            await until(lambda: not front.trouble)
            assert await front.target_size("small") == 2
            await front.increase_size("small", 1)
            assert await front.target_size("small") == 3
            assert assembly.trouble() == ""
    finally:
        await front.close()


def test_what_is_wrong_with_the_file_is_told_all_at_once(place: Path) -> None:
    (place / "manager.yaml").write_text(
        CONFIG.format(port=0).replace("role: front", "role: boss").replace(", tokenFile: admin.token", "")
    )
    with pytest.raises(CloudgraftError) as told:
        CliRunner().invoke(command, ["--config", str(place / "manager.yaml")], catch_exceptions=False)
    assert "clients" in str(told.value)
    assert "needs certificate or tokenFile" in str(told.value)
    assert "boss" in str(told.value) or "role" in str(told.value)


def test_a_file_can_be_checked(place: Path) -> None:
    result = CliRunner().invoke(command, ["--config", str(place / "manager.yaml"), "--check"], catch_exceptions=False)
    assert result.output.endswith("good (1 groups, 2 clients)\n")
