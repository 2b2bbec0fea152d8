"""Makes and deletes bootstrap tokens: the short-lived credentials with which one machine joins the cluster.

A token is a Secret in the namespace ``kube-system``. The right to create and delete it is enough: the right to read the
secrets of that namespace would be far too much. So the token's id is derived from the machine's name, to find it after
a restart. Its secret cannot be read back and is kept in memory only.
"""

from __future__ import annotations

import hashlib
import itertools
import secrets
import string
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from cloudgraft.kube.objects import SECRETS, Manifest
from cloudgraft.kube.rights import TOKEN_NAMESPACE
from cloudgraft.sdk.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError, PreconditionError
from cloudgraft.sdk.secrecy import hide, unhide

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

    from cloudgraft.kube.client import KubeClient

_ALPHABET: Final = string.digits + string.ascii_lowercase
_ID, _SECRET = 6, 16  # characters, as Kubernetes has them
_COUNTERS: Final = 8  # ids that are tried for a name


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A bootstrap token. Its id is no secret."""

    id: str
    secret: str = field(repr=False)

    def __str__(self) -> str:
        return f"{self.id}.{self.secret}"


@dataclass(frozen=True, slots=True)
class _Minted:
    token: Token
    counter: int
    made_at: float
    ttl: float

    def is_good_at(self, now: float) -> bool:
        """Whether it is valid long enough for a machine that gets it now."""
        return now < self.made_at + self.ttl * 0.75


class Tokens:
    """Mints a token per machine, and revokes it. Use one task at a time for one name."""

    def __init__(self, client: KubeClient, *, cluster: str, clock: Callable[[], float] = time.time) -> None:
        self._client = client
        self._cluster = cluster
        self._clock = clock
        self._minted: dict[str, _Minted] = {}
        self._left: dict[str, int] = {}  # the counter of the first that could not be deleted, where nothing was known

    def has_minted(self, name: str) -> bool:
        """Whether this process has made one for the machine that may still be valid."""
        return name in self._minted

    async def mint(self, name: str, *, ttl: timedelta, groups: Sequence[str]) -> Token:
        """The token of a machine: the same for a retry, while it is valid. Raises CloudgraftError."""
        self._forget_expired()
        known = self._minted.get(name)
        if known is not None and known.is_good_at(self._clock()):
            return known.token
        first = 0 if known is None else known.counter + 1
        for counter in range(first, first + _COUNTERS):
            token = Token(id=self._id(name, counter), secret=_random(_SECRET))
            hide(token.secret)
            try:
                manifest = self._manifest(name, token, ttl, groups)
                await self._client.create(SECRETS, manifest, namespace=TOKEN_NAMESPACE)
            except AlreadyExistsError:  # made before a restart, with a secret that is lost
                unhide(token.secret)
                continue
            except BaseException:
                unhide(token.secret)
                raise
            self._drop(name)
            self._minted[name] = _Minted(token, counter, self._clock(), ttl.total_seconds())
            return token
        raise PreconditionError(
            f"there are {_COUNTERS} bootstrap tokens for machine {name} already: they go when they expire, or with "
            f"kubectl -n {TOKEN_NAMESPACE} delete secret -l app.kubernetes.io/managed-by=cloudgraft"
        )

    async def settle(self, name: str) -> None:
        """Deletes the tokens of a machine; missing ones are fine. Raises CloudgraftError; then retry.

        After a restart nothing is known but the name: then ids are tried until one is not there.
        """
        known = self._minted.get(name)
        if known is not None:
            for counter in range(known.counter + 1):
                with suppress(NotFoundError):
                    await self._delete(name, counter)
            self._drop(name)
            return
        failed = self._left.pop(name, None)
        for counter in itertools.count(failed or 0):
            try:
                await self._delete(name, counter)
            except NotFoundError:
                if counter != failed:  # the one that failed last time may have been deleted all the same
                    return
            except BaseException:
                self._left[name] = counter  # those before are gone, which must not look like the end next time
                raise

    async def _delete(self, name: str, counter: int) -> None:
        secret = f"bootstrap-token-{self._id(name, counter)}"
        await self._client.delete(SECRETS, secret, namespace=TOKEN_NAMESPACE)

    def _id(self, name: str, counter: int) -> str:
        digest = hashlib.sha256(f"{self._cluster}/{name}/{counter}".encode()).digest()
        number = int.from_bytes(digest)
        return "".join(_ALPHABET[number // 36**place % 36] for place in range(_ID))

    def _manifest(self, name: str, token: Token, ttl: timedelta, groups: Sequence[str]) -> Manifest:
        expires = datetime.fromtimestamp(self._clock(), UTC) + ttl
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": f"bootstrap-token-{token.id}",
                "namespace": TOKEN_NAMESPACE,
                "labels": {"app.kubernetes.io/managed-by": "cloudgraft"},
                "annotations": {"cloudgraft/cluster": self._cluster, "cloudgraft/machine": name},
            },
            "type": "bootstrap.kubernetes.io/token",
            "stringData": {
                "description": f"made by cloudgraft for machine {name} of cluster {self._cluster}",
                "token-id": token.id,
                "token-secret": token.secret,
                "expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "usage-bootstrap-authentication": "true",
                "usage-bootstrap-signing": "true",
                "auth-extra-groups": ",".join(groups),
            },
        }

    def _drop(self, name: str) -> None:
        known = self._minted.pop(name, None)
        if known is not None:
            unhide(known.token.secret)

    def _forget_expired(self) -> None:
        """Forgets expired tokens; the cluster itself deletes them."""
        now = self._clock()
        for name in [name for name, minted in self._minted.items() if now > minted.made_at + minted.ttl]:
            self._drop(name)


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


# -- hashes of the cluster's authority ---------------------------------------------------------------------------------
# A joining machine verifies the cluster with them. Each tool wants its own form.


def public_key_hashes(pem: str) -> list[str]:
    """``sha256:…`` of each certificate's public key, for kubeadm. Raises InvalidArgumentError."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat  # noqa: PLC0415 - slow to import

    return [
        "sha256:"
        + hashlib.sha256(
            certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        ).hexdigest()
        for certificate in _certificates(pem)
    ]


def bundle_hash(pem: str) -> str:
    """The hash in a k3s or RKE2 token: of the file as it is, or, in a chain, of the root. Raises InvalidArgumentError.

    So every byte of the file counts: it must be the same file that the server itself has.
    """
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415 - slow to import

    certificates = _certificates(pem)
    if len(certificates) > 1:
        issuers = {certificate.subject: certificate for certificate in certificates}
        top = certificates[0]
        for _ in certificates:
            top = issuers.get(top.issuer, top)
        if top.subject == top.issuer:
            return hashlib.sha256(top.public_bytes(Encoding.DER)).hexdigest()
    return hashlib.sha256(pem.encode()).hexdigest()


def _certificates(pem: str) -> list[Certificate]:
    from cryptography import x509  # noqa: PLC0415 - slow to import

    try:
        return x509.load_pem_x509_certificates(pem.encode())
    except ValueError as error:
        raise InvalidArgumentError(
            "the cluster's authority is not a PEM certificate: name the right file in join.caFile"
        ) from error
