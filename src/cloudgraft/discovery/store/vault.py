"""Encrypts credentials with AES-256-GCM, stores them, and re-encrypts them when the first key changes.

A key ring is a text of one key per line: 32 bytes in base64, with an id in front if you like (``2026-01:BASE64``). The
first key encrypts, all decrypt. To rotate: put a new key in front, give every server the ring, re-encrypt, and only
then take the old key away. What a ciphertext is for is bound to it: moved to another cluster, it does not decrypt.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import Connection, delete, select, update

from cloudgraft.discovery.store import schema
from cloudgraft.discovery.store.statements import INSERTS
from cloudgraft.sdk.errors import InvalidArgumentError, NotFoundError, PreconditionError
from cloudgraft.sdk.secrecy import hide

_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_FORM: Final = b"\x01"  # format of the ciphertext: this byte, the nonce, the output of AES-GCM
_PURPOSE: Final = "cloudgraft/discovery/credentials/1"
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MAKE_ONE: Final = "make one with `head -c 32 /dev/urandom | base64`"


@dataclass(frozen=True, slots=True, kw_only=True)
class VaultKey:
    """A key and its name. Messages may contain the name, never the key."""

    id: str
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A ciphertext, and the id of its key."""

    key_id: str
    ciphertext: bytes = field(repr=False)


def new_key() -> str:
    """A new key, as a line of a key ring."""
    return base64.b64encode(os.urandom(_KEY_BYTES)).decode()


class Vault:
    """Encrypts with its first key and decrypts with all."""

    def __init__(self, keys: Sequence[VaultKey]) -> None:
        if not keys:
            raise InvalidArgumentError(f"there is no key to encrypt credentials with: {_MAKE_ONE}")
        names = [key.id for key in keys]
        if len(set(names)) != len(names):
            raise InvalidArgumentError("two keys of the ring have the same id: give each its own")
        self._keys = {key.id: AESGCM(key.secret) for key in keys}
        self.current = names[0]  # the id of the key that encrypts

    def __repr__(self) -> str:
        return f"Vault(keys={list(self._keys)})"

    @classmethod
    def parse(cls, text: str, *, where: str) -> Vault:
        """Parses a key ring. ``where`` is its source, for messages, which contain none of the text."""
        lines = [line.strip() for line in re.split(r"[\n,]", text)]
        return cls(
            [
                _parse(line, f"key {number} of {where}")
                for number, line in enumerate(lines, 1)
                if line and line[0] != "#"
            ]
        )

    @classmethod
    def from_file(cls, path: Path) -> Vault:
        """Reads a key ring from a file."""
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise PreconditionError(f"cannot read the keys in {path}: {error.strerror or error}") from error
        except UnicodeDecodeError:
            raise PreconditionError(f"cannot read the keys in {path}: write them in base64; {_MAKE_ONE}") from None
        return cls.parse(text, where=str(path))

    @classmethod
    def from_environment(cls, name: str) -> Vault:
        """Reads a key ring from an environment variable; commas may separate the lines."""
        text = os.environ.get(name, "")
        if not text.strip():
            raise PreconditionError(f"the environment variable {name} holds no key: {_MAKE_ONE}")
        return cls.parse(text, where=f"the environment variable {name}")

    def seal(self, cluster: str, secret: str) -> Sealed:
        """Encrypts with the first key."""
        nonce = os.urandom(_NONCE_BYTES)
        body = self._keys[self.current].encrypt(nonce, secret.encode(), _bound_to(cluster, self.current))
        return Sealed(key_id=self.current, ciphertext=_FORM + nonce + body)

    def unseal(self, cluster: str, sealed: Sealed) -> str:
        """Decrypts. PreconditionError, without any of the text, when that fails."""
        key = self._keys.get(sealed.key_id)
        if key is None:
            raise PreconditionError(
                f"the credentials of {cluster} were encrypted with the key {sealed.key_id}, which this server does not "
                "have: add it to the key ring, or upload the credentials again"
            )
        raw = sealed.ciphertext
        nonce, body = raw[1 : 1 + _NONCE_BYTES], raw[1 + _NONCE_BYTES :]
        try:
            if raw[:1] != _FORM:
                raise InvalidTag  # noqa: TRY301 - reported like any other foreign ciphertext
            return key.decrypt(nonce, body, _bound_to(cluster, sealed.key_id)).decode()
        except (InvalidTag, ValueError):
            raise PreconditionError(
                f"the credentials of {cluster} do not decrypt with the key {sealed.key_id}: either that is another key "
                "by the same id, or they were altered. Put the right key back, or upload the credentials again"
            ) from None


def _bound_to(cluster: str, key_id: str) -> bytes:
    return f"{_PURPOSE}\0{cluster}\0{key_id}".encode()


def _parse(line: str, where: str) -> VaultKey:
    name, colon, text = line.rpartition(":")
    try:
        secret = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidArgumentError(f"{where} is not base64: {_MAKE_ONE}") from None
    if len(secret) != _KEY_BYTES:
        raise InvalidArgumentError(f"{where} has {len(secret)} bytes, and not {_KEY_BYTES}: {_MAKE_ONE}")
    if colon and not _ID.fullmatch(name.strip()):
        raise InvalidArgumentError(f"the id of {where} may have letters, digits, '.', '_' and '-', at most 64")
    hide(text.strip())
    return VaultKey(id=name.strip() or hashlib.sha256(secret).hexdigest()[:8], secret=secret)


# -- Credentials in the database ---------------------------------------------------------------------------------------
# Always encrypted, and re-encrypted in steps.


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """The result of a rotation, or of a step of it: how many were re-encrypted, and which could not be decrypted.

    ``last`` is the cluster after which the next step continues; "" at the end.
    """

    rotated: int
    unreadable: Sequence[str]
    last: str = ""


def write_credentials(connection: Connection, cluster: str, sealed: Sealed) -> None:
    """Stores the credentials of a cluster, replacing others. NotFoundError when there is no such cluster."""
    table = schema.clusters
    if connection.execute(select(table.c.id).where(table.c.id == cluster)).first() is None:
        raise NotFoundError(f"there is no cluster {cluster}")
    values = {"key_id": sealed.key_id, "ciphertext": sealed.ciphertext}
    statement = INSERTS[connection.dialect.name](schema.credentials).values(cluster_id=cluster, **values)
    connection.execute(statement.on_conflict_do_update(index_elements=["cluster_id"], set_=values))


def drop_credentials(connection: Connection, cluster: str) -> None:
    """Deletes the credentials. Succeeds when there are none."""
    connection.execute(delete(schema.credentials).where(schema.credentials.c.cluster_id == cluster))


def read_credentials(connection: Connection, cluster: str) -> Sealed:
    """The stored credentials. NotFoundError when there are none."""
    table = schema.credentials
    statement = select(table.c.key_id, table.c.ciphertext).where(table.c.cluster_id == cluster)
    row = connection.execute(statement).one_or_none()
    if row is None:
        raise NotFoundError(f"cluster {cluster} has no credentials: upload them first")
    return Sealed(key_id=row[0], ciphertext=bytes(row[1]))


def rotate_some(connection: Connection, vault: Vault, *, after: str, limit: int) -> Rotation:
    """Re-encrypts the next few with the current key. Skips those that already use it."""
    table = schema.credentials
    old = select(table).where(table.c.key_id != vault.current, table.c.cluster_id > after)
    rows = connection.execute(old.order_by(table.c.cluster_id).limit(limit)).all()
    unreadable = []
    for cluster, key_id, ciphertext in rows:
        try:
            sealed = vault.seal(cluster, vault.unseal(cluster, Sealed(key_id=key_id, ciphertext=bytes(ciphertext))))
        except PreconditionError:
            unreadable.append(cluster)
            continue
        values = {"key_id": sealed.key_id, "ciphertext": sealed.ciphertext}
        connection.execute(update(table).where(table.c.cluster_id == cluster).values(values))
    last = rows[-1][0] if len(rows) == limit else ""
    return Rotation(rotated=len(rows) - len(unreadable), unreadable=unreadable, last=last)
