"""Who calls: by the certificate, by a token, or by both; and in which role."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

from cloudgraft.certs.token_file import TokenFile, token_hash

__all__ = ["ANY_ROLE", "Caller", "ClientRule", "Gatekeeper"]

ANY_ROLE: Final = "*"  # of whoever is on this host, where nothing tells one program from another


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who a caller has proved to be. ``scope`` is what its role is limited to, such as one cluster; empty: nothing."""

    name: str
    role: str
    scope: str = ""

    def may(self, *roles: str) -> bool:
        """Whether it has one of these roles."""
        return self.role == ANY_ROLE or self.role in roles


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRule:
    """A client as the configuration has it. With a certificate's name and a token, both are asked of it."""

    name: str
    role: str
    certificate: str = ""  # a name in its certificate
    token_file: Path | None = None
    scope: str = ""


class Gatekeeper:
    """Tells callers apart. Without TLS and without clients everybody is ``local`` and may do anything.

    There may be thousands of clients, so they are found by an index. Files of tokens are looked at once a second: a
    token that is taken out of one is good no more after that.
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
        self._by_certificate: dict[str, ClientRule] = {}  # those who need no token
        self._has_clients = False
        self.replace(rules)

    def replace(self, rules: Sequence[ClientRule]) -> None:
        """Takes the clients of a new configuration."""
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
        """The caller with these names in its certificate and this token; None for a stranger."""
        if not self._secure and not self._has_clients:
            return Caller(name="local", role=ANY_ROLE)
        self._look()
        # Those of whom more is asked first: who can show a token is not taken for one that needs none.
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
