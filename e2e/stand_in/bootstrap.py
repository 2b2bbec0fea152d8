"""From a bootstrap token to a certificate, step by step as kubeadm and the kubelet do it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from e2e.stand_in.join_file import Join

__all__ = ["Credentials", "bootstrap"]

_TIMEOUT: Final = 20.0
_LOOK: Final = 0.3
_SIGNER: Final = "kubernetes.io/kube-apiserver-client-kubelet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a kubelet has after its first start."""

    authority: str  # PEM
    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """For calls as this node."""
        context = ssl.create_default_context(cadata=self.authority)
        context.load_cert_chain(self.certificate, self.key)
        return context


async def bootstrap(join: Join, directory: Path) -> Credentials:
    """Raises what went wrong: a token that is refused, a CA that is not the pinned one."""
    authority = await _discover(join)
    context = ssl.create_default_context(cadata=authority)
    headers = {"Authorization": f"Bearer {join.token_id}.{join.token_secret}"}
    async with httpx2.AsyncClient(base_url=join.server, verify=context, headers=headers, timeout=_TIMEOUT) as api:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = await _certificate(api, join, key)
    files = Credentials(authority=authority, certificate=directory / "kubelet.crt", key=directory / "kubelet.key")
    files.key.touch(mode=0o600)
    files.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    files.certificate.write_bytes(certificate)
    return files


async def _discover(join: Join) -> str:
    """The CA, from a ConfigMap that anybody may read: believed by its signature, and by its pin."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    path = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
    async with httpx2.AsyncClient(base_url=join.server, verify=context, timeout=_TIMEOUT) as anybody:
        while True:
            answer = await anybody.get(path)
            answer.raise_for_status()
            data = answer.json()["data"]
            signature = data.get(f"jws-kubeconfig-{join.token_id}")
            if signature:  # a new token is signed for in a moment
                break
            await asyncio.sleep(_LOOK)
    _check_signature(signature, data["kubeconfig"], join)
    cluster = yaml.safe_load(data["kubeconfig"])["clusters"][0]["cluster"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    public = x509.load_pem_x509_certificate(authority.encode()).public_key()
    form = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    if f"sha256:{hashlib.sha256(form).hexdigest()}" not in join.pins:
        raise ValueError(f"the CA of {join.server} is not the one that the user data pins")
    return authority


def _check_signature(signature: str, kubeconfig: str, join: Join) -> None:
    """A JWS whose content is left out."""
    head, _, mac = signature.split(".")
    signed = f"{head}.{_base64url(kubeconfig.encode())}".encode()
    wanted = hmac.new(join.token_secret.encode(), signed, hashlib.sha256).digest()
    header = json.loads(base64.urlsafe_b64decode(head + "=="))
    if header != {"alg": "HS256", "kid": join.token_id} or not hmac.compare_digest(_base64url(wanted), mac):
        raise ValueError("cluster-info is not signed with this machine's token")


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


async def _certificate(api: httpx2.AsyncClient, join: Join, key: ec.EllipticCurvePrivateKey) -> bytes:
    """Asks for it, and waits until the controller manager has approved and signed it."""
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    answer = await api.post(path, json=_request(join, key))
    answer.raise_for_status()
    name = answer.json()["metadata"]["name"]
    while True:
        answer = await api.get(f"{path}/{name}")
        answer.raise_for_status()
        status = answer.json().get("status", {})
        if status.get("certificate"):
            return base64.b64decode(status["certificate"])
        await asyncio.sleep(_LOOK)


def _request(join: Join, key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{join.name}"),
        ]
    )
    signed = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    pem = signed.public_bytes(serialization.Encoding.PEM)
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "node-csr-"},
        "spec": {
            "request": base64.b64encode(pem).decode(),
            "signerName": _SIGNER,
            "usages": ["digital signature", "client auth"],
        },
    }
