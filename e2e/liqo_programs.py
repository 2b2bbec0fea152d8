"""Discovery with its agents, the node manager, and whoever plays Liqo: real processes, with TLS between all of them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

from cloudgraft.certs.authority import Bundle, create_bundle, issue_client
from cloudgraft.discovery.client import DiscoveryClient
from cloudgraft.discovery.model import ClusterState
from cloudgraft.discovery.store.vault import new_key
from cloudgraft.web.client import ClientTls
from e2e.journal import Journal, read_journal
from e2e.processes import Program, ProgramError, free_ports
from e2e.waiting import until

__all__ = ["AGENT", "FRONT", "MANAGER", "OPERATOR", "Agent", "Certificates", "Discovery", "FakeLiqo", "NodeManager"]

T = TypeVar("T")
FRONT: Final = "front"
MANAGER: Final = "node-manager"
OPERATOR: Final = "operator"
AGENT: Final = "agent-{cluster}"
_COMMAND: Final = (sys.executable, "-m", "cloudgraft.cli")
_SECONDS_TO_START: Final = 90.0
_LOG: Final = {"level": 4, "format": "json"}


class Certificates:
    """One authority, and a certificate for each who calls."""

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        create_bundle(directory, hosts=["127.0.0.1", "localhost"])
        self.bundle = Bundle.at(directory)
        self._pairs = {name: issue_client(directory, name) for name in names}

    @property
    def server(self) -> dict[str, str]:
        """The section `tls` of a server."""
        bundle = self.bundle
        return {"cert": str(bundle.server_cert), "key": str(bundle.server_key), "clientCA": str(bundle.ca_cert)}

    def client(self, name: str, keys: Sequence[str] = ("ca", "cert", "key")) -> dict[str, str]:
        """Who a client is, and whom it trusts; ``keys`` are what the three are called there."""
        cert, key = self._pairs[name]
        return dict(zip(keys, (str(self.bundle.ca_cert), str(cert), str(key)), strict=True))


class _Server(Program):
    """A server that is started when it says so in its log. ``command`` stands for ``cloudgraft``."""

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        directory: Path,
        document: Mapping[str, Any],
        command: Sequence[str] = _COMMAND,
    ) -> None:
        file = directory / f"{name}.yaml"
        file.write_text(yaml.safe_dump(dict(document), sort_keys=False), "utf-8")
        super().__init__(name, [*command, *words, "--config", file], directory / f"{name}.log")

    def start(self) -> None:
        """Starts it, and waits until it serves."""
        before = self._servings()
        super().start()
        until(
            lambda: self._servings() > before,
            f"{self.name} serves ({self.log})",
            seconds=_SECONDS_TO_START,
            check=self.check,
        )

    def _servings(self) -> int:
        return self.log.read_text("utf-8", "replace").count('"event": "serving') if self.log.exists() else 0


class Discovery(_Server):
    """``cloudgraft discovery serve``; agents and operators are known by their certificates."""

    def __init__(
        self,
        directory: Path,
        certificates: Certificates,
        clusters: Sequence[str],
        *,
        command: Sequence[str] = _COMMAND,
    ) -> None:
        (port,) = free_ports(1)
        self.url = f"https://127.0.0.1:{port}"
        self.audit_log = directory / "discovery-audit.log"
        self._certificates = certificates
        keys = directory / "vault.keys"
        keys.touch(mode=0o600)
        keys.write_text(f"{new_key()}\n", "utf-8")
        clients = [{"name": name, "role": name, "certificate": name} for name in (MANAGER, OPERATOR)]
        for cluster in clusters:
            name = AGENT.format(cluster=cluster)
            clients.append({"name": name, "role": "agent", "certificate": name, "cluster": cluster})
        document = {
            "listen": f"127.0.0.1:{port}",
            "tls": certificates.server,
            "clients": clients,
            "store": {"path": "discovery.db"},
            "vault": {"keyFile": str(keys)},
            "auditLog": str(self.audit_log),
            "log": _LOG,
        }
        super().__init__("discovery", ["discovery", "serve"], directory, document, command)

    def set_price(self, cluster: str, price: str) -> None:
        """What a node there costs per hour, from now on, as an operator says it."""
        who = self._certificates.client(OPERATOR, ("--cacert", "--cert", "--key"))
        words = ["prices", "set", cluster, "--currency", "EUR", "--node", price, "--server", self.url]
        command = [*_COMMAND, "discovery", *words, *(word for pair in who.items() for word in pair)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60.0, check=False)
        if done.returncode:
            raise ProgramError(f"the price of {cluster} was not set: {done.stderr.strip()}")

    def ready(self) -> set[str]:
        """The clusters that are ready."""
        found = self.ask(lambda client: client.clusters())
        return {one.spec.id for one in found if one.state is ClusterState.READY}

    def reserved(self) -> list[tuple[str, str]]:
        """The reservations that are alive, each as its cluster and state."""
        return sorted((one.cluster, one.state.value) for one in self.ask(lambda client: client.reservations("")))

    def ask(self, ask: Callable[[DiscoveryClient], Awaitable[T]]) -> T:
        """Something, as an operator."""
        who = self._certificates.client(OPERATOR)
        tls = ClientTls(**{key: Path(value) for key, value in who.items()})

        async def run() -> T:
            async with DiscoveryClient(self.url, tls=tls, timeout=30.0) as client:
                return await ask(client)

        return asyncio.run(run())

    def audit(self) -> list[dict[str, Any]]:
        """Every line of its audit log."""
        return _json_lines(self.audit_log)


class Agent(_Server):
    """``cloudgraft discovery agent``: what a cluster has to share is measured in that cluster."""

    def __init__(
        self, directory: Path, certificates: Certificates, discovery: Discovery, cluster: Mapping[str, Any]
    ) -> None:
        name = AGENT.format(cluster=cluster["id"])
        document = {
            "server": {"address": discovery.url, "tls": certificates.client(name)},
            "kubernetes": {"kubeconfig": str(cluster["kubeconfig"])},
            "cluster": {"network": cluster["network"]},
            "credentialsFile": str(cluster["kubeconfig"]),
            "heartbeat": "2s",
            "log": _LOG,
        }
        super().__init__(name, ["discovery", "agent"], directory, document)


class NodeManager(_Server):
    """``cloudgraft node-manager``, with remote clusters as its only cloud."""

    def __init__(
        self,
        directory: Path,
        certificates: Certificates,
        *,
        cloud: Mapping[str, Any],
        groups: Sequence[Mapping[str, Any]],
        command: Sequence[str] = _COMMAND,
    ) -> None:
        (port,) = free_ports(1)
        self.url = f"https://127.0.0.1:{port}"
        self.audit_log = directory / "manager-audit.log"
        self._store = directory / "manager.db"
        document = {
            "cluster": "e2e",
            "server": {"ops": None},
            "nodeManager": {
                "listen": f"127.0.0.1:{port}",
                "tls": certificates.server,
                "clients": [
                    {"name": FRONT, "role": "front", "certificate": FRONT},
                    {"name": OPERATOR, "role": "operator", "certificate": OPERATOR},
                ],
                "auditLog": str(self.audit_log),
            },
            "store": {"path": str(self._store)},
            "clouds": {"liqo": dict(cloud)},
            "nodeGroups": [dict(group) for group in groups],
            "log": _LOG,
        }
        super().__init__("manager", ["node-manager"], directory, document, command)

    def audit(self) -> list[dict[str, Any]]:
        """Every line of its audit log."""
        return _json_lines(self.audit_log)

    def journal(self) -> Journal:
        """All of it, from the disk."""
        command = [*_COMMAND, "db", "export", "--store", str(self._store)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60.0, check=False)
        if done.returncode:
            raise ProgramError(f"the journal {self._store} cannot be read: {done.stderr.strip()}")
        return read_journal(done.stdout)


class FakeLiqo(Program):
    """Plays Liqo in all clusters; what it is told to do may change at any time."""

    def __init__(self, directory: Path, *, consumer: Path, providers: Mapping[str, Path]) -> None:
        self._script = directory / "liqo-script.json"
        self.tell({})
        words: list[str | Path] = ["--consumer", consumer, "--consumer-id", "home", "--script", self._script]
        for cluster, kubeconfig in providers.items():
            words += ["--provider", f"{cluster}={kubeconfig}"]
        command = [sys.executable, "-m", "e2e.scripted_liqo", *words]
        here = {"PYTHONPATH": str(Path(__file__).parents[1])}
        super().__init__("the fake Liqo", command, directory / "liqo.log", environment=here)

    def tell(self, delays: Mapping[str, float]) -> None:
        """How many seconds each of its steps takes from now on."""
        unfinished = self._script.with_suffix(".new")
        unfinished.write_text(json.dumps({"default": {"delays": dict(delays)}}), "utf-8")
        unfinished.replace(self._script)

    def start(self) -> None:
        """Starts it, and waits until it plays."""
        super().start()
        until(
            lambda: "playing Liqo" in self.log.read_text("utf-8", "replace"),
            f"{self.name} plays ({self.log})",
            seconds=_SECONDS_TO_START,
            check=self.check,
        )


def _json_lines(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]
