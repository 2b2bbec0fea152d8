"""Installs every part of the chart with certificates of an issuer that was there before."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml
from cryptography import x509

from cloudgraft.certs.authority import create_bundle
from cloudgraft.certs.pem import load_certificate
from e2e.build import Tell
from e2e.certificates import issued
from e2e.certificates.cert_manager import NAMESPACE as WHERE_SECRETS_ARE
from e2e.certificates.release import Release
from e2e.control_plane import ControlPlane
from e2e.helm import Helm
from e2e.kubectl import kubectl

__all__ = ["play"]

_NAMESPACE: Final = "company"
_ISSUER: Final = {
    "apiVersion": "cert-manager.io/v1",
    "kind": "ClusterIssuer",
    "metadata": {"name": "company"},
    "spec": {"ca": {"secretName": "company-ca"}},
}
_VALUES: Final[dict[str, Any]] = {
    "certificates": {
        "issuerRef": {"name": "company", "kind": "ClusterIssuer", "group": "cert-manager.io"},
        "hosts": ["scaler.company.example", "192.0.2.8"],
    },
    "dock": {"mode": "alone", "hosts": ["*.dock.company.example"]},
    "nodeManager": {"enabled": True},
    "discovery": {"enabled": True, "hosts": ["discovery.company.example", "192.0.2.7", "2001:db8::7"]},
}


def play(helm: Helm, plane: ControlPlane, directory: Path, tell: Tell, check: Callable[[], None]) -> None:
    """Raises AssertionError when something is not as it must be."""
    kubectl(plane, "create", "namespace", _NAMESPACE)
    company = create_bundle(directory / "company", hosts=["localhost"])
    files = (f"--cert={company.ca_cert}", f"--key={company.ca_key}")
    kubectl(plane, "-n", WHERE_SECRETS_ARE, "create", "secret", "tls", "company-ca", *files)
    kubectl(plane, "apply", "-f", "-", stdin=yaml.safe_dump(_ISSUER))
    release = Release(helm=helm, plane=plane, namespace=_NAMESPACE, check=check)
    begin = time.monotonic()
    requests = release.install(_VALUES)
    tell(f"{len(requests)} Certificates of every part were ready after {time.monotonic() - begin:.1f} s, by an issuer")
    release.judge(directory / "issued-by-another")
    authorities = {x509.load_pem_x509_certificate(issued.files_in(one)["ca.crt"]) for one in release.tls_secrets()}
    assert authorities == {load_certificate(company.ca_cert)}, "not every Secret has the issuer's authority"
    release.uninstall()
