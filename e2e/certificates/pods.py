"""Runs the release's pods as processes, with mounted Secrets: the server and the autoscaler."""

from __future__ import annotations

import json
import re
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import yaml
from cryptography import x509

from cloudgraft.client import CloudConfig
from e2e import audit
from e2e.certificates import issued
from e2e.certificates.mounted_secret import MountedSecret
from e2e.certificates.release import Release
from e2e.control_plane import ControlPlane
from e2e.kubectl import kubeconfig_of, kubectl
from e2e.stage import Stage

__all__ = ["Pods"]

_KIND: Final = "certificates.cert-manager.io"
_FAILED_CALL: Final = re.compile(r"^.*(?:Error on gRPC call|rpc error).*$", re.MULTILINE)
_ERRORS: Final = re.compile(r"^cluster_autoscaler_errors_total\{.*\} (\S+)$", re.MULTILINE)


class Pods:
    """Both, and the Secrets that they have."""

    def __init__(self, stage: Stage, release: Release) -> None:
        """Mounts the Secrets, which must be filled."""
        self.stage, self.release = stage, release
        self.server, self.client = self._mount("server"), self._mount("client")
        self._host = release.address.rpartition(":")[0]
        self._loops = 0  # of autoscalers that were stopped
        self._checks: list[Callable[[], None]] = [stage.check, self.server.check, self.client.check]

    @property
    def plane(self) -> ControlPlane:
        """Where the release is installed."""
        return self.stage.plane

    @property
    def namespace(self) -> str:
        """In which namespace."""
        return self.release.namespace

    def start(self) -> None:
        """Starts both, with what the chart gives them."""
        self.stage.start_server(self.release.server_config(self.server.directory))
        account = kubeconfig_of(
            self.plane, "cluster-autoscaler", self.stage.directory / "autoscaler.conf", namespace=self.namespace
        )
        self.stage.start_autoscaler(cloud_config=self._cloud_config, kubeconfig=account)

    def restart_autoscaler(self) -> None:
        """Stops it, starts it, and waits for loops; whatever it has counted is kept."""
        assert not self.errors_of_the_autoscaler(), f"a loop of the autoscaler failed ({self.stage.autoscaler.log})"
        self._loops += self.stage.autoscaler.loops()
        self.stage.autoscaler.stop()
        self.stage.autoscaler.start()
        self.wait_for_loops(2)

    # -- waiting -------------------------------------------------------------------------------------------------------

    def also(self, check: Callable[[], None]) -> None:
        """Has this asked too while something is waited for."""
        self._checks.append(check)

    def check(self) -> None:
        """Raises when a process has ended, a mount does not follow its Secret, or a call has failed."""
        for check in self._checks:
            check()

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Waits for it."""

        def holds() -> bool:
            self.check()
            return bool(condition())

        self.stage.until(holds, what)

    def wait_for_loops(self, count: int) -> None:
        """Waits for so many more of the autoscaler."""
        self.stage.wait_for_loops(count, self.check)

    def settle(self, nodes: int) -> None:
        """Waits until there are so many nodes, and compares all the books."""
        self.until(lambda: sum(self.stage.cluster.sizes().values()) == nodes, f"there are {nodes} nodes")
        self.stage.settle(self.stage.cluster.sizes())

    def stop(self) -> None:
        """Stops both, and compares all the books."""
        self.stage.autoscaler.stop()
        self.stage.server.stop()
        nodes = self.stage.cluster.provider_ids()
        audit.compare(self.stage.server.journal(), self.stage.clouds.values(), nodes)

    # -- certificates --------------------------------------------------------------------------------------------------

    def request(self, name: str) -> issued.Object:
        """The Certificate of one side, or of the authority (``ca``), as it is now."""
        words = ("-n", self.namespace, "get", _KIND, f"cloudgraft-{name}", "-o", "json")
        found: issued.Object = json.loads(kubectl(self.plane, *words))
        return found

    def change_request(self, name: str, spec: Mapping[str, Any]) -> None:
        """Changes the Certificate of one side."""
        patch = json.dumps({"spec": dict(spec)})
        kubectl(self.plane, "-n", self.namespace, "patch", _KIND, f"cloudgraft-{name}", "--type=merge", "-p", patch)

    def renew_now(self, name: str) -> None:
        """Asks for a new certificate at once."""
        issued.renew_now(self.plane, self.namespace, f"cloudgraft-{name}")

    def authority(self) -> x509.Certificate | None:
        """Returns the certificate of its Secret; None while the Secret is missing or empty."""
        words = ("-n", self.namespace, "get", "secret", "cloudgraft-ca", "--ignore-not-found", "-o", "json")
        text = kubectl(self.plane, *words)
        files = issued.files_in(json.loads(text)) if text else {}
        return issued.certificate_in(files) if files.get("tls.crt") else None

    def lose_authority(self) -> None:
        """Deletes its Secret."""
        kubectl(self.plane, "-n", self.namespace, "delete", "secret", "cloudgraft-ca")

    def mounted(self, name: str) -> x509.Certificate:
        """The certificate of one side, as its pod sees it."""
        return issued.certificate_in(self._files(name))

    def trusted(self, name: str) -> x509.Certificate:
        """Returns the authority that one side trusts, as its pod sees it."""
        return x509.load_pem_x509_certificate(self._files(name)["ca.crt"])

    def served(self) -> x509.Certificate:
        """Connects with the mounted certificate, by the name that pods use, and returns the server's certificate."""
        directory = self.client.directory
        with self.client.lock:
            context = ssl.create_default_context(cafile=str(directory / "ca.crt"))
            context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
        host, _, port = self.stage.server.address.rpartition(":")
        with (
            socket.create_connection((host, int(port)), timeout=10.0) as raw,
            context.wrap_socket(raw, server_hostname=self._host) as connection,
        ):
            data = connection.getpeercert(binary_form=True)
        assert data is not None
        return x509.load_der_x509_certificate(data)

    # -- calls ---------------------------------------------------------------------------------------------------------

    @cached_property
    def client_config(self) -> CloudConfig:
        """For a client with the mounted certificate, which wants to see the name that pods use."""
        return replace(CloudConfig.parse(yaml.safe_dump(self._cloud_config)), server_name=self._host)

    def can_connect(self) -> bool:
        """Tells if the server serves a new client with the mounted certificate."""
        config = self.stage.directory / "client.yaml"
        config.write_text(yaml.safe_dump(self._cloud_config), "utf-8")
        command = [sys.executable, "-m", "cloudgraft.cli", "call", "NodeGroups", "--cloud-config", str(config)]
        return not subprocess.run(command, capture_output=True, timeout=60.0, check=False).returncode

    def loops(self) -> int:
        """How many main loops the autoscaler has ended, through all its starts."""
        return self._loops + self.stage.autoscaler.loops()

    def errors_of_the_autoscaler(self) -> float:
        """How many it has counted since it was started."""
        with urllib.request.urlopen(self.stage.autoscaler.metrics, timeout=10.0) as answer:
            return sum(float(found) for found in _ERRORS.findall(answer.read().decode()))

    def failed_calls_of_the_autoscaler(self) -> list[str]:
        """Finds them in its log, which has all its starts."""
        return _FAILED_CALL.findall(self.stage.autoscaler.log.read_text("utf-8", "replace"))

    def judge_calls(self) -> int:
        """How many calls the server has answered; an AssertionError when one has failed, there or for the autoscaler.

        A handshake that fails is no call to the server: those are in the autoscaler's log.
        """
        calls = self.stage.server.calls()
        failed = [call for call in calls if call.code != "OK"]
        assert not failed, f"{len(failed)} calls failed at the server: {failed[0].rpc} was answered {failed[0].code}"
        seen = self.failed_calls_of_the_autoscaler()
        assert not seen, f"{len(seen)} calls of the autoscaler failed: {seen[0]}"
        assert not self.errors_of_the_autoscaler(), f"a loop of the autoscaler failed ({self.stage.autoscaler.log})"
        return len(calls)

    # -- parts ---------------------------------------------------------------------------------------------------------

    @cached_property
    def _cloud_config(self) -> dict[str, Any]:
        """The chart's, but for the address. Patience too: on a busy machine the usual 5 s would fail by themselves."""
        address = f"localhost:{self.stage.server.address.rpartition(':')[2]}"
        return {**self.release.cloud_config(self.client.directory), "address": address, "grpc_timeout": "60s"}

    def _mount(self, name: str) -> MountedSecret:
        directory = self.stage.directory / f"{name}-tls"
        client = self.stage.cluster.client
        mounted = MountedSecret(client, self.release.namespace, f"cloudgraft-{name}-tls", directory)
        self.stage.stack.callback(mounted.stop)
        return mounted

    def _files(self, name: str) -> dict[str, bytes]:
        mounted = {"server": self.server, "client": self.client}[name]
        with mounted.lock:
            return {file: (mounted.directory / file).read_bytes() for file in ("tls.crt", "ca.crt")}
