"""What a thousand agents cost a discovery server on SQLite, over real TLS connections that are kept open.

    python -m bench.discovery_heartbeats [--agents 1000] [--connections 50] [--seconds 5]

The server is a process of its own, whose CPU time is read before and after. Agents send on the connections as fast as
a thousand of them would, every ten seconds each. What is told is CPU per heartbeat, and the share of one core.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cloudgraft.app.discovery_server import DiscoveryServer
from cloudgraft.certs.authority import create_bundle, issue_client
from cloudgraft.config.programs.discovery import load_discovery
from cloudgraft.discovery.model import ClusterSpec
from cloudgraft.discovery.service import Discovery

LIMIT: Final = 0.25  # of one core, for a thousand agents every ten seconds
_EVERY: Final = 10.0
_BODY: Final = json.dumps(
    {
        "allocatable": {"cpu": "128", "memory": "512Gi", "pods": "1100", "nvidia.com/gpu": "8"},
        "free": {"cpu": "81250m", "memory": "301Gi", "pods": "803", "nvidia.com/gpu": "3"},
        "offloaded": {"cpu": "12", "memory": "48Gi", "pods": "60"},
        "observedAt": "2026-11-16T12:00:00Z",
        "agentVersion": "1.0",
    }
).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What was measured. ``core`` is the share of one core that all agents together take."""

    agents: int
    heartbeats: int
    seconds: float
    cpu_seconds: float

    @property
    def milliseconds(self) -> float:
        """CPU of the server for one heartbeat."""
        return self.cpu_seconds / self.heartbeats * 1000

    @property
    def core(self) -> float:
        """Of one core, when each agent sends one every ten seconds."""
        return self.agents / _EVERY * self.cpu_seconds / self.heartbeats


def measure(*, agents: int = 1000, connections: int = 50, seconds: float = 5.0) -> Result:
    """Starts a server, loads it, and stops it."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        _prepare(directory, agents, connections)
        asyncio.run(_declare(directory, agents))
        command = [sys.executable, "-m", "bench.discovery_heartbeats", "--serve", str(directory)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            return asyncio.run(_load(url, directory, server.pid, agents, connections, seconds))
        finally:
            server.terminate()
            server.wait(30)


def _prepare(directory: Path, agents: int, connections: int) -> None:
    certs = directory / "certs"
    create_bundle(certs, hosts=["127.0.0.1"], client_name="boss")
    for number in range(connections):
        issue_client(certs, f"a{number}")
    clients = ["  - {name: boss, role: operator, certificate: boss}\n"]
    clients += [f"  - {{name: a{n}, role: agent, cluster: a{n}, certificate: a{n}}}\n" for n in range(agents)]
    tls = "{cert: certs/server.crt, key: certs/server.key, clientCA: certs/ca.crt}"
    (directory / "d.yaml").write_text(
        f"listen: 127.0.0.1:0\ntls: {tls}\nauditLog: audit.log\nlog: {{level: 0}}\nclients:\n{''.join(clients)}"
    )


async def _declare(directory: Path, agents: int) -> None:
    core = Discovery(Discovery.sqlite(directory / "discovery.db"))
    await core.open()
    for number in range(agents):
        await core.put_cluster(ClusterSpec(id=f"a{number}"))
    await core.close()


async def _load(url: str, directory: Path, pid: int, agents: int, connections: int, seconds: float) -> Result:
    lines = [await _Line.open(url, directory / "certs", f"a{number}") for number in range(connections)]
    await asyncio.gather(*(line.beat() for line in lines))  # warm
    rate = agents / _EVERY
    began, cpu = time.monotonic(), _cpu(pid)
    counts = await asyncio.gather(
        *(line.beat_for(seconds, pause=connections / rate, after=number / rate) for number, line in enumerate(lines))
    )
    spent, took = _cpu(pid) - cpu, time.monotonic() - began
    for line in lines:
        line.close()
    return Result(agents=agents, heartbeats=sum(counts), seconds=took, cpu_seconds=spent)


class _Line:
    """One agent's connection, which it keeps."""

    def __init__(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (
            f"POST /v1/clusters/{name}/heartbeat HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(_BODY)}\r\n\r\n"
        )
        self._request = head.encode() + _BODY
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, url: str, certs: Path, name: str) -> _Line:
        context = ssl.create_default_context(cafile=str(certs / "ca.crt"))
        context.load_cert_chain(certs / f"{name}.crt", certs / f"{name}.key")
        host, _, port = url.removeprefix("https://").rpartition(":")
        return cls(name, *await asyncio.open_connection(host, int(port), ssl=context))

    async def beat(self) -> None:
        """One heartbeat, and its answer."""
        self._writer.write(self._request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 204"):
            raise RuntimeError(f"a heartbeat was refused: {head[:80]!r}")

    async def beat_for(self, seconds: float, *, pause: float, after: float) -> int:
        """Heartbeats for a while; how many."""
        await asyncio.sleep(after % pause)
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            await self.beat()
            count += 1
            await asyncio.sleep(pause)
        return count

    def close(self) -> None:
        self._writer.close()


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _serve(directory: Path) -> None:
    server = DiscoveryServer(load_discovery(directory / "d.yaml"))
    async with server.running():
        print(server.listener.url, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Measures, and tells; exit code 1 above the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    if options.serve is not None:
        asyncio.run(_serve(options.serve))
        return
    found = measure(agents=options.agents, connections=options.connections, seconds=options.seconds)
    print(
        f"{found.heartbeats} heartbeats in {found.seconds:.1f} s: {found.milliseconds:.2f} ms of CPU each; "
        f"{found.agents} agents every 10 s take {found.core:.0%} of a core (limit {LIMIT:.0%})"
    )
    if found.core >= LIMIT:
        sys.exit(1)


if __name__ == "__main__":
    main()
