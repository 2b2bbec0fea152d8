"""Authenticates drivers and engines by certificate, token or both, and authorizes them for machine kinds."""

from __future__ import annotations

import asyncio
import enum
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import grpc.aio

from cloudgraft.certs.token_file import TokenFile, bearer_of
from cloudgraft.config.sections.dock import Dock
from cloudgraft.dock.protocol.messages import Key
from cloudgraft.net.connections import RateLimitedLog
from cloudgraft.sdk.errors import AuthenticationError, PermissionDeniedError
from cloudgraft.server.clients import ConnectionWatch, client_names

Context = grpc.aio.ServicerContext[Any, Any]

LOCAL: Final = "local"  # any caller on this host; without TLS and tokens all programs look the same
_LOG = logging.getLogger("cloudgraft.dock")
WAYS_TO_SECRETS: Final = (
    "give it a tokenFile in dock.drivers, or dock.tls with a certificate; for a driver of 2018, which can send "
    "neither, dock.allowLocalSecrets: true trusts every program on this host"
)


class Role(enum.Enum):
    """The role of a caller. No caller has both: a driver could otherwise create and delete other drivers' machines."""

    DRIVER = "driver"
    ENGINE = "engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerIdentity:
    """An authenticated caller."""

    name: str
    is_proved: bool = True  # by a certificate or a token; False: all that is known is that it runs on this host
    gets_secrets: bool = True
    registers: frozenset[Key] | None = frozenset()  # keys that it may register as a driver; None: all
    uses: frozenset[Key] | None = frozenset()  # keys whose drivers it may use as an engine; None: all

    def may(self, key: Key) -> bool:
        """Whether it may register as the driver of these machines, and read their classes and secrets."""
        return self.registers is None or key in self.registers

    def may_use(self, key: Key) -> bool:
        """Whether it may have the driver of these machines make, delete and list them."""
        return self.uses is None or key in self.uses


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerRule:
    """A driver or an engine of the configuration. With names and a token, the caller must present both."""

    name: str
    keys: frozenset[Key]
    role: Role = Role.DRIVER
    client_names: frozenset[str] = frozenset()
    token_file: Path | None = None

    @property
    def identity(self) -> CallerIdentity:
        """The identity of a caller that matches this rule."""
        registers, uses = (self.keys, frozenset()) if self.role is Role.DRIVER else (frozenset(), self.keys)
        return CallerIdentity(name=self.name, registers=registers, uses=uses)


def rules_of(dock: Dock) -> tuple[CallerRule, ...]:
    """The rules for the drivers and engines of a configuration."""
    return tuple(
        CallerRule(
            name=caller.name,
            keys=frozenset(Key(kind=kind, api_version=version) for kind, version in caller.all_kinds()),
            role=role,
            client_names=frozenset(caller.client_names),
            token_file=caller.token_file,
        )
        for role, callers in ((Role.DRIVER, dock.drivers), (Role.ENGINE, dock.engines))
        for caller in callers
    )


def admit(access: CallerAccess, context: Context, key: Key | None = None) -> CallerIdentity:
    """Returns the caller if it may call, and may register the key when one is given.

    Raises AuthenticationError for a stranger, PermissionDeniedError for a driver of other kinds and for an engine.
    """
    identity = access.identify(context)
    if identity is None:
        raise AuthenticationError(
            "the dock does not know this driver: it needs a certificate or a token of dock.drivers in the "
            "configuration of cloudgraft"
        )
    if key is not None and not identity.may(key):
        raise PermissionDeniedError(
            f"{identity.name} may not register {key}: add that kind to its entry in dock.drivers in the configuration "
            "of cloudgraft, or an entry with a certificate or a token of its own, if this one is an engine's"
        )
    return identity


def admit_engine(access: CallerAccess, context: Context, key: Key | None = None) -> CallerIdentity:
    """Returns the caller if it may call, and may use the key's driver as an engine; else raises as :func:`admit`."""
    identity = access.identify(context)
    if identity is None:
        raise AuthenticationError(
            "the dock does not know this engine: it needs a certificate or a token of dock.engines in the dock's "
            "configuration"
        )
    if key is not None and not identity.may_use(key):
        raise PermissionDeniedError(
            f"{identity.name} may not use the driver of {key}: add an entry to dock.engines in the dock's "
            "configuration, with that kind, and with a certificate or a token that is no driver's"
        )
    return identity


class _Known:
    """A rule with the tokens that are valid for it now."""

    def __init__(self, rule: CallerRule) -> None:
        self.rule = rule
        self.tokens = TokenFile(rule.token_file, owner=rule.name) if rule.token_file is not None else None

    def proves(self, names: Iterable[str], token: bytes) -> bool:
        """Whether a caller with these names and this token matches."""
        if self.rule.client_names and self.rule.client_names.isdisjoint(names):
            return False
        return self.tokens.holds(token) if self.tokens is not None else bool(self.rule.client_names)


class CallerAccess:
    """Identifies callers. Without TLS and without tokens every caller is ``local``, with the rights of any caller.

    An open session outlives the expiry of its certificate. It ends when its driver is removed or loses rights, and when
    its token is removed from the file.
    """

    def __init__(
        self,
        rules: Sequence[CallerRule] = (),
        *,
        secure: bool,
        for_engines: bool = False,
        local_secrets: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``secure`` says whether the listener has TLS.

        ``for_engines`` is for a dock that serves remote engines: without configured engines, ``local`` may be one.
        ``local_secrets`` gives ``local`` the secrets too: it has proved nothing, so by default it gets none.
        """
        self._for_engines = for_engines
        self._local_secrets = local_secrets
        self._secure = secure
        self._known: dict[str, _Known] = {}
        self._local: CallerIdentity | None = None
        self._callbacks: list[Callable[[CallerIdentity], None]] = []
        self._refusals = RateLimitedLog(_LOG, clock=clock)
        self.watch: ConnectionWatch | None = None  # reserves connections for known callers
        self.replace(rules)

    def on_removed(self, callback: Callable[[CallerIdentity], None]) -> None:
        """Calls back at once for each identity that was removed or lost rights."""
        self._callbacks.append(callback)

    def replace(self, rules: Sequence[CallerRule], *, local_secrets: bool | None = None) -> None:
        """Applies the rules of a new configuration, and calls back for identities that were removed or changed."""
        if local_secrets is not None:
            self._local_secrets = local_secrets
        self._replace(rules, self._everyone(rules))

    def _replace(self, rules: Sequence[CallerRule], everyone: CallerIdentity | None) -> None:
        before, local = self._known, self._local
        # Strictest rules first: a caller that can show a token must not match a rule that needs none.
        ordered = sorted(rules, key=lambda rule: (rule.token_file is None, not rule.client_names))
        self._known = {rule.name: self._kept(before.get(rule.name), rule) for rule in ordered}
        self._local = everyone
        poorer = self._reread_tokens()
        gone = [known for name, known in before.items() if self._known.get(name) is not known]
        for known in gone:
            if known.tokens is not None:
                known.tokens.forget()
        self._notify([*poorer, *(known.rule.identity for known in gone)])
        if local is not None and local != self._local:
            self._notify([local])

    def shut(self) -> None:
        """Rejects every caller until :meth:`replace` sets rules again."""
        self._replace((), None)

    def identify(self, context: Context) -> CallerIdentity | None:
        """Returns the caller by its certificate or token; None for an unknown one. May be called during a stream."""
        found = self._local if self._local is not None else self._identify(context)
        if self.watch is not None and found is None:
            self.watch.refused(context.peer())
        elif found is not None and found.is_proved:
            self.trust(context)
        return found

    def trust(self, context: Context) -> None:
        """Keeps the connection when the listener has too many: the caller has proved who it is, or is registered."""
        if self.watch is not None:
            self.watch.trust(context.peer())

    def _identify(self, context: Context) -> CallerIdentity | None:
        self.look()
        names = client_names(context.auth_context())
        token = _token_of(context)
        for known in self._known.values():
            if known.proves(names, token):
                return known.rule.identity
        self._warn(names, context.peer())
        return None

    def look(self) -> None:
        """Rereads token files that have changed, and calls back for callers that lost a token."""
        self._notify(self._reread_tokens())

    async def run(self, every: float = 1.0) -> None:
        """Checks the token files until cancelled, so that a removed token is revoked even without calls."""
        while True:
            await asyncio.sleep(every)
            self.look()

    def _everyone(self, rules: Sequence[CallerRule]) -> CallerIdentity | None:
        if self._secure or any(rule.token_file for rule in rules):
            return None
        local = CallerIdentity(name=LOCAL, is_proved=False, gets_secrets=self._local_secrets, registers=None)
        if not rules:
            return replace(local, uses=None if self._for_engines else frozenset())
        by_role = {role: [rule.keys for rule in rules if rule.role is role] for role in Role}
        uses = frozenset[Key]().union(*by_role[Role.ENGINE])
        if not by_role[Role.DRIVER]:
            return replace(local, uses=uses)
        return replace(local, registers=frozenset[Key]().union(*by_role[Role.DRIVER]), uses=uses)

    @staticmethod
    def _kept(old: _Known | None, rule: CallerRule) -> _Known:
        if old is not None and old.rule == rule:
            return old
        return _Known(rule)

    def _reread_tokens(self) -> list[CallerIdentity]:
        """Returns the rules that lost a token."""
        known = self._known.values()
        return [each.rule.identity for each in known if each.tokens is not None and each.tokens.look()]

    def _notify(self, gone: Iterable[CallerIdentity]) -> None:
        for identity in gone:
            _LOG.info("who may call the dock has changed", extra={"caller": identity.name})
            for callback in self._callbacks:
                try:
                    callback(identity)
                except Exception:  # noqa: BLE001 - the other callbacks must still run
                    _LOG.exception("a listener of identities failed")

    def _warn(self, names: Sequence[str], peer: str) -> None:
        """Warns once a minute for each client, because a misconfigured one retries for ever."""
        self._refusals.warning(
            "refused a caller that is in neither dock.drivers nor dock.engines: %s",
            ", ".join(names) or "no name, and no token that is known",
            who=tuple(names) or peer.rpartition(":")[0],
            extra={"peer": peer},
        )


def _token_of(context: Context) -> bytes:
    """The caller's token; empty when there is none."""
    for name, value in context.invocation_metadata() or ():
        if name == "authorization":
            return bearer_of(value.encode() if isinstance(value, str) else bytes(value))
    return b""
