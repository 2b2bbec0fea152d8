"""A Kubernetes control plane on loopback: no container, no kubelet, started in seconds."""

from __future__ import annotations

import secrets
import ssl
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.error import URLError

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from cloudgraft.certs.authority import Bundle, create_bundle
from e2e.processes import Program, free_ports
from e2e.waiting import until

__all__ = ["ControlPlane", "control_plane"]

_SECONDS_TO_START: Final = 90.0
_LOOPBACK: Final = "127.0.0.1"
# Nodes are played by the simulated cloud, which renews leases and takes the taint of a new node off by itself. On a
# busy machine these would find nodes silent that are only slow.
_WITHOUT: Final = ("node-lifecycle-controller", "taint-eviction-controller")
_FEW: Final = ("namespace-controller", "serviceaccount-token-controller")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """One that is up."""

    kubeconfig: Path
    server: str
    authority: Path  # the certificate of the CA that has signed the server's, and signs those of kubelets
    kubectl: Path
    binaries: Mapping[str, Path]  # with which another one can be started beside it
    programs: Sequence[Program]

    def check(self) -> None:
        """Raises ProgramError when a part of it has ended."""
        for program in self.programs:
            program.check()


@contextmanager
def control_plane(
    binaries: Mapping[str, Path],
    directory: Path,
    *,
    runs_pods: bool = True,
    guests_see: str = "",
    pods_see: str = "",
) -> Iterator[ControlPlane]:
    """Starts it, and stops it whatever happens. Everything it writes is in ``directory``, its logs too.

    One that runs no pods has no scheduler, and controllers for namespaces and accounts only. With an address at which
    virtual machines see this one, its certificate is good for that, and it watches its nodes: they are real. With an
    address at which pods see it, it listens there, watches its nodes, and pods get the token of their account.
    """
    directory.mkdir(parents=True)
    etcd_port, peer_port, port = free_ports(3)
    server = f"https://{pods_see or _LOOPBACK}:{port}"
    token = _credentials(directory)
    certificates = Bundle.at(directory / "certificates")
    create_bundle(certificates.directory, hosts=[_LOOPBACK, "localhost", *filter(None, [guests_see, pods_see])])
    with ExitStack() as stack:
        started: list[Program] = []

        def start(name: str, arguments: Sequence[str]) -> Program:
            program = Program(name, [binaries[name], *arguments], directory / f"{name}.log")
            stack.callback(program.stop)
            program.start()
            started.append(program)
            return program

        start("etcd", _etcd(directory, etcd_port, peer_port))
        listens = (f"--bind-address={pods_see or _LOOPBACK}", f"--secure-port={port}")
        admits = () if pods_see else ("--disable-admission-plugins=ServiceAccount",)
        arguments = _api_server(directory, certificates, etcd_port)
        api = start("kube-apiserver", [*arguments, *listens, *admits])
        what = f"the API server is ready ({api.log})"
        until(lambda: _is_ready(server), what, seconds=_SECONDS_TO_START, check=api.check)
        kubeconfig = _kubeconfig(directory, certificates, server, token)
        if runs_pods:
            start("kube-scheduler", [*_of_the_api(kubeconfig)])
        # The two about bootstrap tokens are off unless they are named.
        without = () if guests_see or pods_see else _WITHOUT
        names = ["*", "bootstrapsigner", "tokencleaner", *(f"-{name}" for name in without)] if runs_pods else _FEW
        start("kube-controller-manager", [*_of_the_api(kubeconfig), *_controllers(directory, certificates, names)])
        plane = ControlPlane(
            kubeconfig=kubeconfig,
            server=server,
            authority=certificates.ca_cert,
            kubectl=binaries["kubectl"],
            binaries=binaries,
            programs=tuple(started),
        )
        plane.check()
        yield plane


def _credentials(directory: Path) -> str:
    """A key that signs service accounts' tokens, and one token for everybody who takes part."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    _write_secret(directory / "service-accounts.key", pem)
    token = secrets.token_hex(16)
    _write_secret(directory / "tokens.csv", f'{token},admin,1,"system:masters"\n'.encode())
    return token


def _write_secret(path: Path, data: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(data)


def _etcd(directory: Path, port: int, peer_port: int) -> Sequence[str]:
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    return (
        f"--data-dir={directory / 'etcd'}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--log-level=warn",
    )


def _api_server(directory: Path, certificates: Bundle, etcd_port: int) -> Sequence[str]:
    key = directory / "service-accounts.key"
    return (
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        f"--tls-cert-file={certificates.server_cert}",
        f"--tls-private-key-file={certificates.server_key}",
        f"--client-ca-file={certificates.ca_cert}",
        f"--token-auth-file={directory / 'tokens.csv'}",
        "--enable-bootstrap-token-auth",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-cluster-ip-range=10.0.0.0/24",
    )


def _of_the_api(kubeconfig: Path) -> Sequence[str]:
    # The usual 20 to 50 calls a second are for a cluster that is shared by many.
    limits = ("--kube-api-qps=500", "--kube-api-burst=1000")
    return (f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0", *limits)


def _controllers(directory: Path, certificates: Bundle, names: Sequence[str]) -> Sequence[str]:
    key = directory / "service-accounts.key"
    return (
        f"--controllers={','.join(names)}",
        f"--service-account-private-key-file={key}",
        f"--cluster-signing-cert-file={certificates.ca_cert}",
        f"--cluster-signing-key-file={certificates.ca_key}",
        f"--root-ca-file={certificates.ca_cert}",  # which every namespace gets, for its pods
    )


def _is_ready(server: str) -> bool:
    # Its certificate is made while it starts, and may not be there yet; this question anybody may ask.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with urllib.request.urlopen(f"{server}/readyz", timeout=5.0, context=context) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def _kubeconfig(directory: Path, certificates: Bundle, server: str, token: str) -> Path:
    authority = str(certificates.ca_cert)
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "e2e", "cluster": {"server": server, "certificate-authority": authority}}],
        "users": [{"name": "e2e", "user": {"token": token}}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
        "current-context": "e2e",
    }
    path = directory / "kubeconfig"
    _write_secret(path, yaml.safe_dump(document).encode())
    return path
