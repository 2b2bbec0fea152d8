"""Identifies callers by certificate, token or both, and assigns roles."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

from cloudgraft.certs.token_file import TokenFile, token_hash

ANY_ROLE: Final = "*"  # of any caller on this host; without TLS and clients all programs look the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """An authenticated caller. ``scope`` limits its role, for example to one cluster; empty: no limit."""

    name: str
    role: str
    scope: str = ""

    def may(self, *roles: str) -> bool:
        """Whether it has one of these roles."""
        return self.role == ANY_ROLE or self.role in roles


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRule:
    """A client of the configuration. With a certificate's name and a token, it must present both."""

    name: str
    role: str
    certificate: str = ""  # a name in its certificate
    token_file: Path | None = None
    scope: str = ""


class Gatekeeper:
    """Identifies callers. Without TLS and without clients every caller is ``local`` and may do anything.

    An index finds one of thousands of clients. Token files are checked once a second: a token that is removed from one
    is revoked after that.
    """

    def __init__(
        self,
        rules: Sequence[ClientRule] = (),
        *,
        secure: bool,
        look_every: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``secure`` says whether the listener has TLS."""
        self._secure = secure
        self._look_every = look_every
        self._clock = clock
        self._looked_at = -math.inf
        self._files: dict[ClientRule, TokenFile] = {}
        self._by_token: dict[bytes, list[ClientRule]] = {}
        self._by_certificate: dict[str, ClientRule] = {}  # clients without a token
        self._has_clients = False
        self.replace(rules)

    def replace(self, rules: Sequence[ClientRule]) -> None:
        """Applies the clients of a new configuration."""
        before = self._files
        self._files = {
            rule: before[rule] if rule in before else TokenFile(rule.token_file, owner=rule.name)
            for rule in rules
            if rule.token_file is not None
        }
        for rule in before.keys() - self._files.keys():
            before[rule].forget()
        self._by_certificate = {r.certificate: r for r in rules if r.token_file is None and r.certificate}
        self._has_clients = bool(rules)
        self._looked_at = -math.inf

    def identify(self, names: Collection[str], token: bytes) -> Caller | None:
        """Returns the caller with these certificate names and this token; None for an unknown one."""
        if not self._secure and not self._has_clients:
            return Caller(name="local", role=ANY_ROLE)
        self._look()
        # Strictest clients first: a caller that can show a token must not match a client that needs none.
        by_token = self._by_token.get(token_hash(token), ()) if token else ()
        both = (rule for rule in by_token if rule.certificate and rule.certificate in names)
        token_alone = (rule for rule in by_token if not rule.certificate)
        certificate_alone = (self._by_certificate[name] for name in names if name in self._by_certificate)
        rule = next(chain(both, token_alone, certificate_alone), None)
        return Caller(name=rule.name, role=rule.role, scope=rule.scope) if rule is not None else None

    def _look(self) -> None:
        now = self._clock()
        if now - self._looked_at < self._look_every:
            return
        self._looked_at = now
        by_token: dict[bytes, list[ClientRule]] = {}
        for rule, file in self._files.items():
            file.look()
            for hashed in file.hashes:
                by_token.setdefault(hashed, []).append(rule)
        self._by_token = by_token
