"""A real `cloudgraft serve` under attack: its memory, and whether the autoscaler's calls still get through."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from cloudgraft.certs.authority import Bundle, create_bundle, issue_client
from cloudgraft.wire.externalgrpc import RPCS
from tests.attacks.http2 import Target

DEADLINE = 5.0  # seconds, as the autoscaler has it
_REQUEST = RPCS["NodeGroups"].request().SerializeToString()
STRANGER = "somebody-else"


@dataclass(frozen=True)
class Setting:
    """A configuration file with TLS, and certificates of one that may call and of one that may not."""

    directory: Path
    file: Path
    bundle: Bundle
    stranger: tuple[Path, Path]

    @classmethod
    def at(cls, directory: Path, **server: object) -> Setting:
        bundle = create_bundle(directory / "certs", hosts=["127.0.0.1", "localhost"])
        stranger = issue_client(directory / "certs", STRANGER)
        tls = {
            "cert": str(bundle.server_cert),
            "key": str(bundle.server_key),
            "clientCA": str(bundle.ca_cert),
            "allowedClients": ["cluster-autoscaler-grpc-client"],
        }
        section = {"listen": "127.0.0.1:0", "ops": "127.0.0.1:0", "tls": tls, **server}
        group = {"id": "small", "cloud": "sim", "maxSize": 5, "machine": {"shape": "small"}}
        text = {
            "cluster": "test",
            "server": section,
            "dock": {"listen": "127.0.0.1:0"},
            "clouds": {"sim": {"driver": "simulated"}},
            "nodeGroups": [group],
        }
        file = directory / "cloudgraft.yaml"
        file.write_text(json.dumps(text))
        return cls(directory, file, bundle, stranger)

    def target(self, *, allowed: bool = False, **more: Any) -> Target:
        """The server, for a client of its authority that may call, or may not."""
        cert, key = (self.bundle.client_cert, self.bundle.client_key) if allowed else self.stranger
        return Target(host="127.0.0.1", port=0, ca=self.bundle.ca_cert, cert=cert, key=key, **more)

    @staticmethod
    def dock_target(**more: Any) -> Target:
        """The dock, for any program on this host: it has no TLS."""
        return Target(host="127.0.0.1", port=0, **more)

    def credentials(self) -> grpc.ChannelCredentials:
        """Of the client that may call."""
        return grpc.ssl_channel_credentials(
            self.bundle.ca_cert.read_bytes(),
            self.bundle.client_key.read_bytes(),
            self.bundle.client_cert.read_bytes(),
        )


@dataclass
class Probes:
    """The autoscaler's calls during an attack."""

    ok: int = 0
    failed: int = 0
    new_ok: int = 0  # on a new connection each, as an autoscaler that has just started
    new_failed: int = 0
    slowest: float = 0.0
    slowest_new: float = 0.0
    reasons: dict[str, int] = field(default_factory=dict)

    def note(self, error: Exception) -> None:
        reason = f"{error.code().name}: {error.details()}" if isinstance(error, grpc.aio.AioRpcError) else repr(error)
        self.reasons[reason[:160]] = self.reasons.get(reason[:160], 0) + 1


async def probe(address: str, setting: Setting, seconds: float, pause: float = 0.25) -> Probes:
    """Calls NodeGroups again and again: on one connection that lasts, and on new ones."""
    probes = Probes()
    until = time.monotonic() + seconds
    credentials = setting.credentials()

    async def lasting() -> None:
        async with grpc.aio.secure_channel(address, credentials) as channel:
            call: Any = channel.unary_unary(RPCS["NodeGroups"].path)
            while time.monotonic() < until:
                began = time.monotonic()
                try:
                    await call(_REQUEST, timeout=DEADLINE)
                    probes.ok += 1
                except grpc.aio.AioRpcError as error:
                    probes.failed += 1
                    probes.note(error)
                probes.slowest = max(probes.slowest, time.monotonic() - began)
                await asyncio.sleep(pause)

    async def new(number: int = 0) -> None:
        while time.monotonic() < until:
            began = time.monotonic()
            number += 1
            # An argument of its own, so that gRPC does not share a connection with the one before.
            options = (("grpc.use_local_subchannel_pool", 1), ("cloudgraft.test", number))
            async with grpc.aio.secure_channel(address, credentials, options=options) as channel:
                try:
                    call: Any = channel.unary_unary(RPCS["NodeGroups"].path)
                    await call(_REQUEST, timeout=DEADLINE)
                    probes.new_ok += 1
                except grpc.aio.AioRpcError as error:
                    probes.new_failed += 1
                    probes.note(error)
            probes.slowest_new = max(probes.slowest_new, time.monotonic() - began)
            await asyncio.sleep(pause)

    await asyncio.gather(lasting(), new())
    return probes


def memory(pid: int, key: str = "VmRSS") -> int:
    """In MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) // 1024
    raise AssertionError(key)


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def get(url: str) -> tuple[int, str]:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.status, answer.read().decode()
