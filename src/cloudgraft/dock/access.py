"""Who may call: drivers and engines, by their certificates, by tokens, or by both; and for which kinds."""

from __future__ import annotations

import asyncio
import enum
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from cloudgraft.certs.token_file import TokenFile, bearer_of
from cloudgraft.config.sections.dock import Dock
from cloudgraft.dock.ports import Access, Context, EngineAccess, EngineIdentity, Identity
from cloudgraft.dock.protocol.messages import Key
from cloudgraft.sdk.errors import AuthenticationError, PermissionDeniedError
from cloudgraft.server.clients import client_names

__all__ = [
    "LOCAL",
    "CallerAccess",
    "CallerIdentity",
    "CallerRule",
    "Role",
    "admit",
    "admit_engine",
    "known_engine",
    "rules_of",
]

LOCAL: Final = "local"  # whoever is on this host, where nothing tells one program from another
_LOG = logging.getLogger("cloudgraft.dock")
_TELL_EVERY: Final = 60.0  # seconds
_MOST_TOLD: Final = 1000


class Role(enum.Enum):
    """What a caller is. Nobody is both: a driver could otherwise have other drivers' machines made and deleted."""

    DRIVER = "driver"
    ENGINE = "engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerIdentity:
    """Who a caller has proved to be."""

    name: str
    registers: frozenset[Key] | None = frozenset()  # what it may register as a driver; None: everything
    uses: frozenset[Key] | None = frozenset()  # whose drivers it may use as an engine; None: everybody's

    def may(self, key: Key) -> bool:
        """Whether it may register as the driver of these machines, and read their classes and secrets."""
        return self.registers is None or key in self.registers

    def may_use(self, key: Key) -> bool:
        """Whether it may have the driver of these machines make, delete and list them."""
        return self.uses is None or key in self.uses


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerRule:
    """A driver or an engine as the configuration has it. With names and a token, both are asked of it."""

    name: str
    keys: frozenset[Key]
    role: Role = Role.DRIVER
    client_names: frozenset[str] = frozenset()
    token_file: Path | None = None

    @property
    def identity(self) -> CallerIdentity:
        """Who has proved to be this one."""
        registers, uses = (self.keys, frozenset()) if self.role is Role.DRIVER else (frozenset(), self.keys)
        return CallerIdentity(name=self.name, registers=registers, uses=uses)


def rules_of(dock: Dock) -> tuple[CallerRule, ...]:
    """The drivers and engines of a configuration."""
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


def admit(access: Access, context: Context, key: Key | None = None) -> Identity:
    """The caller, if it may call, and register the key when one is given.

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


def known_engine(access: EngineAccess, context: Context) -> EngineIdentity:
    """The caller; raises AuthenticationError for a stranger, before anything that it has sent is looked at."""
    identity = access.identify(context)
    if identity is None:
        raise AuthenticationError(
            "the dock does not know this engine: it needs a certificate or a token of dock.engines in the dock's "
            "configuration"
        )
    return identity


def admit_engine(access: EngineAccess, context: Context, key: Key) -> EngineIdentity:
    """The caller, if it is an engine that may use the key's driver; else raises as :func:`admit` does."""
    identity = known_engine(access, context)
    if not identity.may_use(key):
        raise PermissionDeniedError(
            f"{identity.name} may not use the driver of {key}: add an entry to dock.engines in the dock's "
            "configuration, with that kind, and with a certificate or a token that is no driver's"
        )
    return identity


class _Known:
    """A driver or engine, and the tokens that it may come with."""

    def __init__(self, rule: CallerRule) -> None:
        self.rule = rule
        self.tokens = TokenFile(rule.token_file, owner=rule.name) if rule.token_file is not None else None

    def proves(self, names: Iterable[str], token: bytes) -> bool:
        """Whether a caller with these names and this token is this one."""
        if self.rule.client_names and self.rule.client_names.isdisjoint(names):
            return False
        return self.tokens.holds(token) if self.tokens is not None else bool(self.rule.client_names)


class Watch(Protocol):
    """Who is told where calls come from: it keeps room for those that may call."""

    def trust(self, peer: str) -> None:
        """A caller there is known."""

    def refused(self, peer: str) -> None:
        """A caller there is not."""


class CallerAccess:
    """Tells callers apart. Without TLS and without tokens all are ``local``, and may do what anybody may.

    A session that is open keeps going when a certificate ends; it is cut off when its driver is removed or may do less,
    and when its token is taken out of the file.
    """

    def __init__(
        self,
        rules: Sequence[CallerRule] = (),
        *,
        secure: bool,
        for_engines: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``secure`` says whether the listener has TLS.

        ``for_engines`` is for a dock that is there for engines elsewhere: where nobody is named, ``local`` may be one.
        """
        self._for_engines = for_engines
        self._secure = secure
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._local: CallerIdentity | None = None
        self._callbacks: list[Callable[[CallerIdentity], None]] = []
        self._told: dict[str, float] = {}
        self.watch: Watch | None = None
        self.replace(rules)

    def on_removed(self, callback: Callable[[CallerIdentity], None]) -> None:
        """The callback is called at once for each identity that is gone, or can do less than before."""
        self._callbacks.append(callback)

    def replace(self, rules: Sequence[CallerRule]) -> None:
        """Takes those of a new configuration. Who is gone or changed is told."""
        self._replace(rules, self._everyone(rules))

    def _replace(self, rules: Sequence[CallerRule], everyone: CallerIdentity | None) -> None:
        before, local = self._known, self._local
        # Those of whom more is asked first: who can show a token is not taken for one that needs none.
        ordered = sorted(rules, key=lambda rule: (rule.token_file is None, not rule.client_names))
        self._known = {rule.name: self._kept(before.get(rule.name), rule) for rule in ordered}
        self._local = everyone
        poorer = self._look()
        gone = [known for name, known in before.items() if self._known.get(name) is not known]
        for known in gone:
            if known.tokens is not None:
                known.tokens.forget()
        self._tell([*poorer, *(known.rule.identity for known in gone)])
        if local is not None and local != self._local:
            self._tell([local])

    def shut(self) -> None:
        """Knows nobody any more, until it is given rules again."""
        self._replace((), None)

    def identify(self, context: Context) -> CallerIdentity | None:
        """The caller; None for a stranger."""
        found = self._local if self._local is not None else self._identify(context)
        if self.watch is not None:
            (self.watch.refused if found is None else self.watch.trust)(context.peer())
        return found

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
        """Reads files of tokens that have changed, and tells of callers one of whose tokens is good no more."""
        self._tell(self._look())

    async def run(self, every: float = 1.0) -> None:
        """Looks at the files of tokens until cancelled, so that a token is taken away even when nobody calls."""
        while True:
            await asyncio.sleep(every)
            self.look()

    def _everyone(self, rules: Sequence[CallerRule]) -> CallerIdentity | None:
        if self._secure or any(rule.token_file for rule in rules):
            return None
        if not rules:
            return CallerIdentity(name=LOCAL, registers=None, uses=None if self._for_engines else frozenset())
        by_role = {role: [rule.keys for rule in rules if rule.role is role] for role in Role}
        uses = frozenset[Key]().union(*by_role[Role.ENGINE])
        if not by_role[Role.DRIVER]:
            return CallerIdentity(name=LOCAL, registers=None, uses=uses)
        return CallerIdentity(name=LOCAL, registers=frozenset[Key]().union(*by_role[Role.DRIVER]), uses=uses)

    @staticmethod
    def _kept(old: _Known | None, rule: CallerRule) -> _Known:
        if old is not None and old.rule == rule:
            return old
        return _Known(rule)

    def _look(self) -> list[CallerIdentity]:
        """Whose tokens became fewer."""
        known = self._known.values()
        return [each.rule.identity for each in known if each.tokens is not None and each.tokens.look()]

    def _tell(self, gone: Iterable[CallerIdentity]) -> None:
        for identity in gone:
            _LOG.info("who may call the dock has changed", extra={"caller": identity.name})
            for callback in self._callbacks:
                try:
                    callback(identity)
                except Exception:  # noqa: BLE001 - the others are to be told all the same
                    _LOG.exception("a listener of identities failed")

    def _warn(self, names: Sequence[str], peer: str) -> None:
        """Once a minute for each client: one that is configured wrongly tries for ever."""
        who = ", ".join(names) or peer.rpartition(":")[0]
        now = self._clock()
        level = logging.WARNING if now - self._told.get(who, -_TELL_EVERY) >= _TELL_EVERY else logging.DEBUG
        if level == logging.WARNING:
            recent = {told: at for told, at in self._told.items() if now - at < _TELL_EVERY}
            self._told = {**recent, who: now} if len(recent) < _MOST_TOLD else {who: now}
        what = "refused a caller that is in neither dock.drivers nor dock.engines: %s"
        _LOG.log(level, what, ", ".join(names) or "no name, and no token that is known", extra={"peer": peer})


def _token_of(context: Context) -> bytes:
    """The caller's token; empty when there is none."""
    for name, value in context.invocation_metadata() or ():
        if name == "authorization":
            return bearer_of(value.encode() if isinstance(value, str) else bytes(value))
    return b""
