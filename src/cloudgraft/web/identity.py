"""Who calls: by the certificate, by a token, or by both; and in which role."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cloudgraft.certs.token_file import TokenFile

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

    Files of tokens are looked at on every call, so that a token that is taken out of one is good no more.
    """

    def __init__(self, rules: Sequence[ClientRule] = (), *, secure: bool) -> None:
        """``secure`` says whether the listener has TLS."""
        self._secure = secure
        self._rules: tuple[tuple[ClientRule, TokenFile | None], ...] = ()
        self.replace(rules)

    def replace(self, rules: Sequence[ClientRule]) -> None:
        """Takes the clients of a new configuration."""
        before = {rule: tokens for rule, tokens in self._rules if tokens is not None}
        # Those of whom more is asked first: who can show a token is not taken for one that needs none.
        ordered = sorted(rules, key=lambda rule: (rule.token_file is None, not rule.certificate))
        self._rules = tuple((rule, before.pop(rule, None) or _tokens_of(rule)) for rule in ordered)
        for tokens in before.values():
            tokens.forget()

    def identify(self, names: Collection[str], token: bytes) -> Caller | None:
        """The caller with these names in its certificate and this token; None for a stranger."""
        if not self._secure and not self._rules:
            return Caller(name="local", role=ANY_ROLE)
        for rule, tokens in self._rules:
            if _proves(rule, tokens, names, token):
                return Caller(name=rule.name, role=rule.role, scope=rule.scope)
        return None


def _tokens_of(rule: ClientRule) -> TokenFile | None:
    return TokenFile(rule.token_file, owner=rule.name) if rule.token_file is not None else None


def _proves(rule: ClientRule, tokens: TokenFile | None, names: Collection[str], token: bytes) -> bool:
    if rule.certificate and rule.certificate not in names:
        return False
    if tokens is None:
        return bool(rule.certificate)
    tokens.look()
    return bool(token) and tokens.holds(token)
