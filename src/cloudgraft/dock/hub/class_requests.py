"""Machine classes and secrets for drivers: each gets what belongs to its own kind, and does not see that there is more.

Names are data: they are looked up, never put together to a path. What a caller may not have is answered like what does
not exist.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from cloudgraft.dock.hub.session import Session
from cloudgraft.dock.ports import Access, ClassStore, Context
from cloudgraft.dock.protocol.messages import MachineClass, Secret
from cloudgraft.sdk.errors import AuthenticationError, NotFoundError

__all__ = ["Fetching", "secret_json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetching:
    """Answers drivers that are connected. Their connection tells their kind, for a request does not name it."""

    access: Access
    classes: ClassStore
    sessions: Callable[[], Sequence[Session]]

    def check(self, context: Context) -> None:
        """Raises AuthenticationError for a caller that the dock does not know."""
        if self.access.identify(context) is None:
            raise AuthenticationError("the dock does not know this driver: it needs a certificate or a token")

    def machine_class(self, context: Context, name: str) -> MachineClass:
        """The class of that name, of the caller's own kind; raises NotFoundError."""
        for session in self._callers(context):
            found = self._class(session, name)
            if found is not None:
                session.note_class(name)
                return found
        raise _nothing("machine class")

    def secret_of(self, context: Context, machine_class: str) -> Secret:
        """The secret that a class of the caller's own kind names; raises NotFoundError."""
        for session in self._callers(context):
            found = self._class(session, machine_class)
            secret = self.classes.secret(found) if found is not None else None
            if secret is not None:
                return secret
        raise _nothing("secret")

    def secret_named(self, context: Context, name: str, namespace: str) -> Secret:
        """The secret of that name, if a class with which the caller works names it; raises NotFoundError.

        A class may name two. Each name gives the values of both: a driver of 2018 knows of one, and asks only for that.
        """
        for session in self._callers(context):
            for known in reversed(session.classes):
                found = self._class(session, known)
                if found is None or not name or name not in (found.secret, found.also_named):
                    continue
                secret = self.classes.secret(found)
                if secret is not None and namespace in {"", secret.namespace, found.namespace}:
                    return replace(secret, name=name)
        raise _nothing("secret")

    def _callers(self, context: Context) -> Iterator[Session]:
        """The caller's own connections: first those that come the same way as this call."""
        identity = self.access.identify(context)
        if identity is None:
            raise AuthenticationError("the dock does not know this driver: it needs a certificate or a token")
        own = [each for each in self.sessions() if each.identity == identity.name and identity.may(each.key)]
        peer = context.peer()
        return iter(sorted(own, key=lambda session: session.peer != peer))

    def _class(self, session: Session, name: str) -> MachineClass | None:
        try:
            found = self.classes.get(name, session.key)
        except NotFoundError:
            return None
        return found if found.key == session.key else None


def _nothing(what: str) -> NotFoundError:
    # Without the name: it is the caller's own text, and may be anything.
    return NotFoundError(f"there is no such {what} for drivers of this kind that are connected")


def secret_json(secret: Secret) -> str:
    """A secret as Kubernetes writes it, which is what drivers of v0 read."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": {"name": secret.name, "namespace": secret.namespace, "resourceVersion": str(secret.revision)},
            "data": {name: base64.b64encode(value).decode() for name, value in secret.data.items()},
        }
    )
