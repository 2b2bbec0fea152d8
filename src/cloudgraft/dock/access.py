"""Who may dial in: drivers by their certificates, by tokens, or by both; and what each of them may register."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cloudgraft.certs.pem import Stamp, stamp
from cloudgraft.config.dock import SHORTEST_TOKEN, Dock
from cloudgraft.dock.messages import Key
from cloudgraft.dock.ports import Access, Context, Identity
from cloudgraft.sdk.errors import AuthenticationError, PermissionDeniedError
from cloudgraft.sdk.secrecy import hide, unhide
from cloudgraft.server.clients import client_names

__all__ = ["LOCAL", "DriverAccess", "DriverIdentity", "DriverRule", "admit", "rules_of"]

LOCAL: Final = "local"  # whoever is on this host, where nothing tells one program from another
_LOG = logging.getLogger("cloudgraft.dock")
_MOST_BYTES: Final = 1 << 16  # of a file of tokens
_TELL_EVERY: Final = 60.0  # seconds
_MOST_TOLD: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverIdentity:
    """Who a caller has proved to be."""

    name: str
    keys: frozenset[Key] | None  # what it may register; None: everything

    def may(self, key: Key) -> bool:
        """Whether it may register as the driver of these machines, and read their classes and secrets."""
        return self.keys is None or key in self.keys


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverRule:
    """A driver as the configuration has it. With names and a token, both are asked of it."""

    name: str
    keys: frozenset[Key]
    client_names: frozenset[str] = frozenset()
    token_file: Path | None = None


def rules_of(dock: Dock) -> tuple[DriverRule, ...]:
    """The drivers of a configuration."""
    return tuple(
        DriverRule(
            name=driver.name,
            keys=frozenset(Key(kind=kind, api_version=version) for kind, version in driver.may_register()),
            client_names=frozenset(driver.client_names),
            token_file=driver.token_file,
        )
        for driver in dock.drivers
    )


def admit(access: Access, context: Context, key: Key | None = None) -> Identity:
    """The caller, if it may call, and register the key when one is given.

    Raises AuthenticationError for a stranger, PermissionDeniedError for a driver of other kinds.
    """
    identity = access.identify(context)
    if identity is None:
        raise AuthenticationError(
            "the dock does not know this driver: it needs a certificate or a token of dock.drivers in the "
            "configuration of cloudgraft"
        )
    if key is not None and not identity.may(key):
        raise PermissionDeniedError(
            f"the driver {identity.name} may not register {key}: its entry in dock.drivers names other kinds"
        )
    return identity


@dataclass(slots=True, kw_only=True)
class _Known:
    """A driver, and the hashes of the tokens that it may come with."""

    rule: DriverRule
    identity: DriverIdentity
    seen: Stamp | None = None
    tokens: tuple[str, ...] = field(default=(), repr=False)  # to be shown again when they are gone
    hashes: tuple[bytes, ...] = field(default=(), repr=False)

    def proves(self, names: Iterable[str], token: bytes) -> bool:
        """Whether a caller with these names and this token is this driver."""
        if self.rule.client_names and self.rule.client_names.isdisjoint(names):
            return False
        if self.rule.token_file is None:
            return bool(self.rule.client_names)
        # All of them, so that the time taken does not tell which was nearly right.
        return sum(hmac.compare_digest(token, known) for known in self.hashes) > 0


class DriverAccess:
    """Tells callers apart. Without TLS and without tokens all are ``local``, and may do what any driver may.

    A session that is open keeps going when a certificate ends; it is cut off when its driver is removed or may do less,
    and when its token is taken out of the file.
    """

    def __init__(
        self, rules: Sequence[DriverRule] = (), *, secure: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``secure`` says whether the listener has TLS."""
        self._secure = secure
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._local: DriverIdentity | None = None
        self._callbacks: list[Callable[[DriverIdentity], None]] = []
        self._told: dict[str, float] = {}
        self.replace(rules)

    def on_removed(self, callback: Callable[[DriverIdentity], None]) -> None:
        """The callback is called at once for each identity that is gone, or can do less than before."""
        self._callbacks.append(callback)

    def replace(self, rules: Sequence[DriverRule]) -> None:
        """Takes the drivers of a new configuration. Those that are gone or changed are told."""
        before, local = self._known, self._local
        self._known = {rule.name: self._kept(before.get(rule.name), rule) for rule in rules}
        self._local = self._everyone(rules)
        self._look()
        gone = [known for name, known in before.items() if self._known.get(name) is not known]
        for known in gone:
            unhide(*known.tokens)
        self._tell([known.identity for known in gone])
        if local is not None and local != self._local:
            self._tell([local])

    def identify(self, context: Context) -> DriverIdentity | None:
        """The caller; None for a stranger."""
        if self._local is not None:
            return self._local
        self.look()
        names = client_names(context.auth_context())
        token = _token_of(context)
        for known in self._known.values():
            if known.proves(names, token):
                return known.identity
        self._warn(names, context.peer())
        return None

    def look(self) -> None:
        """Reads files of tokens that have changed, and tells of drivers one of whose tokens is good no more."""
        self._tell(self._look())

    async def run(self, every: float = 1.0) -> None:
        """Looks at the files of tokens until cancelled, so that a token is taken away even when nobody calls."""
        while True:
            await asyncio.sleep(every)
            self.look()

    def _everyone(self, rules: Sequence[DriverRule]) -> DriverIdentity | None:
        if self._secure or any(rule.token_file for rule in rules):
            return None
        keys = frozenset(key for rule in rules for key in rule.keys)
        return DriverIdentity(name=LOCAL, keys=keys if rules else None)

    @staticmethod
    def _kept(old: _Known | None, rule: DriverRule) -> _Known:
        if old is not None and old.rule == rule:
            return old
        return _Known(rule=rule, identity=DriverIdentity(name=rule.name, keys=rule.keys))

    def _look(self) -> list[DriverIdentity]:
        """Whose tokens became fewer."""
        poorer = []
        for known in self._known.values():
            file = known.rule.token_file
            now = stamp(file) if file is not None else None
            if file is None or now == known.seen:
                continue
            known.seen = now
            tokens = _read(file, known.rule.name)
            if tokens is None:
                continue
            if set(known.tokens) - set(tokens):
                poorer.append(known.identity)
            hide(*tokens)
            unhide(*known.tokens)
            known.tokens, known.hashes = tokens, tuple(_hash(token.encode()) for token in tokens)
        return poorer

    def _tell(self, gone: Iterable[DriverIdentity]) -> None:
        for identity in gone:
            _LOG.info("the driver may not dial in as before", extra={"driver": identity.name})
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
        what = "refused a caller that is no driver of dock.drivers: %s"
        _LOG.log(level, what, ", ".join(names) or "no name, and no token that is known", extra={"peer": peer})


def _read(file: Path, driver: str) -> tuple[str, ...] | None:
    """The tokens of a file; none when it is gone. None when it cannot be read, and the old ones stay."""
    try:
        with file.open("rb") as stream:
            lines = stream.read(_MOST_BYTES).split()
    except FileNotFoundError:
        lines = []
    except OSError as error:
        reason = error.strerror or type(error).__name__
        _LOG.warning("the tokens of a driver cannot be read: %s", reason, extra={"driver": driver, "file": str(file)})
        return None
    good = [line.decode() for line in lines if len(line) >= SHORTEST_TOKEN and line.isascii()]
    if len(good) < max(len(lines), 1):
        words = (
            f"a token has fewer than {SHORTEST_TOKEN} characters, or odd ones"
            if lines
            else "there is no token in the file"
        )
        _LOG.warning("%s: nobody can dial in with it", words, extra={"driver": driver, "file": str(file)})
    return tuple(dict.fromkeys(good))


def _token_of(context: Context) -> bytes:
    """The hash of the caller's token; of nothing, when there is none."""
    for name, value in context.invocation_metadata() or ():
        if name == "authorization":
            said = value.encode() if isinstance(value, str) else bytes(value)
            scheme, _, token = said.partition(b" ")
            return _hash(token.strip() if scheme.lower() == b"bearer" else b"")
    return _hash(b"")


def _hash(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
