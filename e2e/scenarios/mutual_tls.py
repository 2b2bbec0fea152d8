"""Scenario 9: mTLS by what ``cloudgraft certs`` prints, and a new server certificate in mid-run."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import yaml
from cryptography import x509

from e2e.config import cloud, document, node_group
from e2e.kubernetes import Workload
from e2e.scenarios.scenario import Scenario
from e2e.stage import Stage

__all__ = ["SCENARIO", "printed_files"]

_PODS: Final = Workload(name="pods", replicas=1, cpu="1500m", memory="1Gi")


def _run(stage: Stage) -> None:
    sim = stage.start_cloud()
    server, client = printed_files(_certs(stage, "init", "certs", "--host", "localhost"))
    tls = {"tls": server["server"]["tls"]}
    groups = [node_group("group", "small")]
    stage.start_server(document(clouds={"sim": cloud(sim.url)}, groups=groups, server=tls))
    address = f"localhost:{stage.server.address.rpartition(':')[2]}"
    stage.start_autoscaler(cloud_config={**client, "address": address})
    stage.cluster.run(_PODS)
    stage.until_equal(stage.cluster.running, 1, "the number of pods that run")
    stage.settle({"group": 1})

    before = _serial(stage)
    _certs(stage, "renew", "certs", "--what", "server")
    stage.until(lambda: _serial(stage) != before, "the server shows its new certificate")
    stage.cluster.scale("pods", 2)  # over the connection that is there
    stage.until_equal(stage.cluster.running, 2, "the number of pods that run")
    stage.server.kill()
    stage.server.start()
    stage.cluster.scale("pods", 3)  # over a new one, with the new certificate
    stage.until_equal(stage.cluster.running, 3, "the number of pods that run")
    stage.settle({"group": 3})
    _strangers_are_refused(stage)


def printed_files(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The server's file and the cloud-config, as ``cloudgraft certs init`` prints them."""
    blocks = dict(block.split("\n", 1) for block in text.split("\n\n") if block.startswith("# "))
    server = next(yaml.safe_load(block) for head, block in blocks.items() if "cloudgraft.yaml" in head)
    client = next(yaml.safe_load(block) for head, block in blocks.items() if "cloud-config.yaml" in head)
    return server, client


def _certs(stage: Stage, *words: str) -> str:
    command = [sys.executable, "-m", "cloudgraft.cli", "certs", *words]
    done = subprocess.run(command, cwd=stage.directory, capture_output=True, text=True, timeout=60.0, check=False)
    assert not done.returncode, done.stderr
    return done.stdout


def _serial(stage: Stage) -> int:
    """Of the certificate that the server shows now."""
    certificates = stage.directory / "certs"
    context = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
    context.load_cert_chain(certificates / "client.crt", certificates / "client.key")
    with _dialled(stage) as raw, context.wrap_socket(raw, server_hostname="localhost") as connection:
        data = connection.getpeercert(binary_form=True)
    assert data is not None
    return x509.load_der_x509_certificate(data).serial_number


def _strangers_are_refused(stage: Stage) -> None:
    """Without a certificate nobody gets an answer."""
    context = ssl.create_default_context(cafile=str(Path(stage.directory, "certs", "ca.crt")))
    context.set_alpn_protocols(["h2"])
    try:
        with _dialled(stage) as raw, context.wrap_socket(raw, server_hostname="localhost") as connection:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            answer = connection.recv(1)
    except (ssl.SSLError, ConnectionError):
        answer = b""
    assert not answer, "a client without a certificate got an answer"


def _dialled(stage: Stage) -> socket.socket:
    host, _, port = stage.server.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10.0)


SCENARIO: Final = Scenario(
    number=9, seconds=30, title="mTLS by what `cloudgraft certs` prints; a new certificate in mid-run", run=_run
)
