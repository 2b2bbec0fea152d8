"""Compares the certificates in Secrets with what the chart asks for."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509

from cloudgraft.certs.issue import sans, usages_of
from cloudgraft.sdk.duration import parse_duration
from e2e.certificates.mounted_secret import mount
from e2e.control_plane import ControlPlane
from e2e.kubectl import kubectl

__all__ = [
    "are_settled",
    "certificate_in",
    "certificates",
    "differences",
    "files_in",
    "problems",
    "renew_now",
    "secret_of",
]

Object = dict[str, Any]


def certificates(plane: ControlPlane, namespace: str) -> list[Object]:
    """The requests of a namespace."""
    listed = json.loads(kubectl(plane, "-n", namespace, "get", "certificates.cert-manager.io", "-o", "json"))
    return list(listed["items"])


def are_settled(requests: list[Object]) -> bool:
    """Tells if there are Certificates, and cert-manager has finished all of them in their present version."""
    return bool(requests) and all(map(_is_settled, requests))


def _is_settled(request: Object) -> bool:
    conditions = {one["type"]: one for one in request.get("status", {}).get("conditions", ())}
    ready, issuing = conditions.get("Ready", {}), conditions.get("Issuing", {})
    is_ready = ready.get("status") == "True" and ready.get("observedGeneration") == request["metadata"]["generation"]
    return bool(is_ready and issuing.get("status") != "True")


def secret_of(plane: ControlPlane, namespace: str, name: str) -> dict[str, bytes]:
    """The files in a Secret."""
    return files_in(json.loads(kubectl(plane, "-n", namespace, "get", "secret", name, "-o", "json")))


def files_in(secret: Object) -> dict[str, bytes]:
    """The same of one that was read already."""
    return {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}


def certificate_in(files: Mapping[str, bytes]) -> x509.Certificate:
    """The certificate itself."""
    return x509.load_pem_x509_certificates(files["tls.crt"])[0]


def renew_now(plane: ControlPlane, namespace: str, name: str) -> None:
    """Asks for a new certificate as ``cmctl renew`` does, which is not to be had here."""
    kind = "certificates.cert-manager.io"
    request = json.loads(kubectl(plane, "-n", namespace, "get", kind, name, "-o", "json"))
    condition = {
        "type": "Issuing",
        "status": "True",
        "reason": "ManuallyTriggered",
        "message": "Certificate re-issuance manually triggered",
        "observedGeneration": request["metadata"]["generation"],
    }
    others = [one for one in request["status"]["conditions"] if one["type"] != "Issuing"]
    patch = json.dumps({"status": {"conditions": [*others, condition]}})
    kubectl(plane, "-n", namespace, "patch", kind, name, "--subresource=status", "--type=merge", "-p", patch)


def problems(plane: ControlPlane, namespace: str, directory: Path, *, address: str) -> Iterator[str]:
    """One line for each Secret that is not as its Certificate wants it, or as cloudgraft does.

    ``address`` is where the autoscaler reaches the server: a request with that name is for it.
    """
    host = address.rpartition(":")[0]
    for request in certificates(plane, namespace):
        spec = request["spec"]
        files = secret_of(plane, namespace, spec["secretName"])
        if set(files) != {"tls.crt", "tls.key", "ca.crt"}:
            yield f"Secret {spec['secretName']} has {sorted(files)}"
            continue
        for difference in differences(spec, certificate_in(files)):
            yield f"Certificate {request['metadata']['name']}: {difference}"
        place = directory / request["metadata"]["name"]
        place.mkdir(parents=True)
        mount(place, files)
        yield from _shown(place, address if host in spec.get("dnsNames", ()) else "")


def differences(spec: Object, made: x509.Certificate) -> Iterator[str]:
    """Compares a certificate with the request of its Certificate; yields a line for each difference."""
    names, addresses = sans(made)
    found = {
        "DNS names": set(names),
        "addresses": set(addresses),
        "common name": [one.value for one in made.subject],
        "authority": made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca,
        "usages": usages_of(made),
        "length": made.not_valid_after_utc - made.not_valid_before_utc,
    }
    wanted = {
        "DNS names": set(spec.get("dnsNames", ())),
        "addresses": {ip_address(one) for one in spec.get("ipAddresses", ())},
        "common name": [spec["commonName"]],
        "authority": spec.get("isCA", False),
        "usages": {one for one in spec.get("usages", ()) if one.endswith(" auth")},
        "length": parse_duration(spec["duration"]),
    }
    yield from (
        f"{what}: asked for {wanted[what]}, got {found[what]}" for what in wanted if wanted[what] != found[what]
    )


def _shown(directory: Path, address: str) -> Iterator[str]:
    """Returns the faults that ``cloudgraft certs show`` finds."""
    command = [sys.executable, "-m", "cloudgraft.cli", "certs", "show", str(directory)]
    words = [*command, *(("--address", address) if address else ())]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60.0, check=False)
    if done.returncode:
        yield f"cloudgraft certs show {directory.name}: {done.stdout}{done.stderr}"
