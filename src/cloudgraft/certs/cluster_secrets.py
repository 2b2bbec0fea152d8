"""Keeps certificates in Secrets of a cluster: makes those that are missing, renews those that are about to expire.

The Secrets themselves must be there, and may be empty. So the account needs no right to create any, and what has made
them, such as a Helm release, can delete them with the rest.
"""

from __future__ import annotations

import enum
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from cloudgraft.certs.issue import (
    CLOCK_SKEW,
    Pair,
    Usage,
    Validity,
    new_authority,
    peer_pair,
    renewed_authority,
    sans,
    subject_named,
    usages_of,
)
from cloudgraft.certs.names import parse_hosts
from cloudgraft.kube.client import KubeClient
from cloudgraft.kube.objects import SECRET_CONTENTS, PatchStyle, SecretObject
from cloudgraft.sdk.errors import InvalidArgumentError, NotFoundError, PreconditionError

__all__ = ["Change", "Outcome", "SecretsPlan", "SignedSecret", "renew_certificates"]

_CERTIFICATE: Final = "tls.crt"
_KEY: Final = "tls.key"
_AUTHORITY: Final = "ca.crt"
_LONGEST_NAME: Final = 64  # characters of a common name (RFC 5280)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthoritySecret:
    """The Secret with the authority that signs all others."""

    secret: str
    duration: timedelta = timedelta(days=3650)
    renew_before: timedelta = timedelta(days=730)

    def __post_init__(self) -> None:
        _check_times(self.secret, self.duration, self.renew_before)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedSecret:
    """A Secret with a certificate."""

    secret: str
    name: str  # its common name
    hosts: tuple[str, ...]  # names and addresses that it is for
    usages: tuple[Usage, ...]
    duration: timedelta = timedelta(days=90)
    renew_before: timedelta = timedelta(days=30)

    def __post_init__(self) -> None:
        _check_times(self.secret, self.duration, self.renew_before)
        parse_hosts(self.hosts)
        if not 0 < len(self.name) <= _LONGEST_NAME:
            raise InvalidArgumentError(f"{self.secret}: name must have 1 to {_LONGEST_NAME} characters")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretsPlan:
    """The file that says which Secrets there are."""

    namespace: str
    authority: AuthoritySecret
    certificates: tuple[SignedSecret, ...]


class Outcome(enum.StrEnum):
    """What became of a Secret."""

    KEPT = "kept"
    MADE = "made"
    RENEWED = "renewed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A Secret after a run."""

    secret: str
    outcome: Outcome
    not_after: datetime


async def renew_certificates(client: KubeClient, plan: SecretsPlan, now: datetime) -> list[Change]:
    """Brings all Secrets of the plan up to date.

    Each is changed by one request that fails if another program has changed it meanwhile. Raises NotFoundError for a
    Secret that is not there.
    """
    now = now.replace(microsecond=0)
    authority, change = await _kept_authority(client, plan, now)
    return [change, *[await _kept(client, plan.namespace, wanted, authority, now) for wanted in plan.certificates]]


async def _kept_authority(client: KubeClient, plan: SecretsPlan, now: datetime) -> tuple[Pair, Change]:
    wanted = plan.authority
    stored = await _read(client, plan.namespace, wanted.secret)
    old = _pair_in(stored)
    if (old is None or not _may_sign(old.certificate)) and _is_filled(stored):
        raise PreconditionError(
            f"Secret {wanted.secret} has a certificate or key that cannot sign: it needs a CA certificate with its "
            "unencrypted EC key. Nothing was changed: put them there, or empty the Secret to have an authority made"
        )
    validity = _validity(now, wanted.duration)
    if old is None or old.certificate.not_valid_after_utc <= now:
        pair, outcome = new_authority(validity), Outcome.MADE
    elif old.certificate.not_valid_after_utc - now <= wanted.renew_before:
        pair, outcome = renewed_authority(old, validity), Outcome.RENEWED
    else:
        return old, _change(wanted.secret, Outcome.KEPT, old)
    await _write(client, plan.namespace, stored, pair, pair)
    return pair, _change(wanted.secret, outcome, pair)


async def _kept(client: KubeClient, namespace: str, wanted: SignedSecret, authority: Pair, now: datetime) -> Change:
    stored = await _read(client, namespace, wanted.secret)
    old = _pair_in(stored)
    if old is not None and _is_good(old, stored, wanted, authority, now):
        return _change(wanted.secret, Outcome.KEPT, old)
    end = min(now + wanted.duration, authority.certificate.not_valid_after_utc)
    validity = Validity(not_before=now - CLOCK_SKEW, not_after=end)
    pair = peer_pair(authority, wanted.name, parse_hosts(wanted.hosts), wanted.usages, validity)
    await _write(client, namespace, stored, pair, authority)
    return _change(wanted.secret, Outcome.MADE if old is None else Outcome.RENEWED, pair)


def _is_good(old: Pair, stored: SecretObject, wanted: SignedSecret, authority: Pair, now: datetime) -> bool:
    names, addresses = sans(old.certificate)
    return (
        old.certificate.not_valid_after_utc - now > wanted.renew_before
        and old.certificate.subject == subject_named(wanted.name)
        and usages_of(old.certificate) == set(wanted.usages)
        and {*names, *addresses} == set(parse_hosts(wanted.hosts))
        and stored.data.get(_AUTHORITY) == authority.certificate_pem
        and _has_signed(authority, old.certificate)
    )


def _has_signed(authority: Pair, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority.certificate)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _pair_in(stored: SecretObject) -> Pair | None:
    """The certificate and its key; None while there are none, or none that fit together."""
    try:
        certificate = x509.load_pem_x509_certificate(stored.data[_CERTIFICATE])
        key = serialization.load_pem_private_key(stored.data[_KEY], password=None)
    except (KeyError, ValueError, TypeError, UnsupportedAlgorithm):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        return None
    return Pair(certificate=certificate, key=key)


async def _read(client: KubeClient, namespace: str, name: str) -> SecretObject:
    try:
        return await client.get(SECRET_CONTENTS, name, namespace=namespace)
    except NotFoundError as error:
        hint = f"it must exist, and may be empty: kubectl -n {namespace} create secret generic {name}"
        raise NotFoundError(f"{error.message}; {hint}") from error


def _is_filled(stored: SecretObject) -> bool:
    return bool(stored.data.get(_CERTIFICATE) or stored.data.get(_KEY))


def _may_sign(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


async def _write(client: KubeClient, namespace: str, stored: SecretObject, pair: Pair, authority: Pair) -> None:
    data = {_CERTIFICATE: pair.certificate_pem, _KEY: pair.key_pem, _AUTHORITY: authority.certificate_pem}
    patch = {
        "metadata": {"resourceVersion": stored.version},  # refused if it was changed meanwhile
        "data": dict(_encoded(data)),
    }
    await client.patch(SECRET_CONTENTS, stored.name, patch, namespace=namespace, style=PatchStyle.MERGE)


def _encoded(data: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    for key, value in data.items():
        yield key, b64encode(value).decode()


def _validity(now: datetime, duration: timedelta) -> Validity:
    return Validity(not_before=now - CLOCK_SKEW, not_after=now + duration)


def _change(secret: str, outcome: Outcome, pair: Pair) -> Change:
    return Change(secret=secret, outcome=outcome, not_after=pair.certificate.not_valid_after_utc)


def _check_times(secret: str, duration: timedelta, renew_before: timedelta) -> None:
    if not timedelta() < renew_before < duration:
        raise InvalidArgumentError(f"{secret}: renewBefore must be longer than nothing and shorter than duration")
