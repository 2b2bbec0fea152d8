"""Authorizes users by bearer token, and service accounts by their bindings."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudgraft.demo.fake_kubernetes.calls import Json

if TYPE_CHECKING:
    from cloudgraft.demo.fake_kubernetes.store import Store


def account_name(namespace: str, name: str) -> str:
    """The user name of a service account."""
    return f"system:serviceaccount:{namespace}:{name}"


@dataclass(slots=True)
class User:
    """A user who may do everything but what is ``denied``, in ``namespaces`` only unless that is None.

    A service account may act where a binding names it, whatever role that binding gives.
    """

    name: str
    token: str = field(default_factory=lambda: secrets.token_urlsafe(16), repr=False)
    denied: set[tuple[str, str]] = field(default_factory=set)  # verb and plural, or plural/subresource
    namespaces: frozenset[str] | None = None
    is_service_account: bool = False


class Users:
    """All users of a server. Tests mostly use the first."""

    def __init__(self, first: User, store: Store) -> None:
        self.first = first
        self._others: list[User] = []
        self._store = store

    def add(self, user: User) -> User:
        """Adds a user; returns it."""
        self._others.append(user)
        return user

    def of_account(self, namespace: str, name: str) -> User:
        """A service account with a new token, as TokenRequest gives it."""
        return self.add(User(account_name(namespace, name), is_service_account=True))

    def by_header(self, authorization: str | None) -> User | None:
        """The user of this header, if it is known."""
        for user in (self.first, *self._others):
            if authorization == f"Bearer {user.token}":
                gone = user.is_service_account and not self._account_exists(user.name)
                return None if gone else user
        return None

    def may(self, user: User, verb: str, plural: str, *, subresource: str = "", namespace: str = "") -> bool:
        """Whether that is allowed."""
        what = f"{plural}/{subresource}" if subresource else plural
        if {(verb, what), (verb, plural)} & user.denied:
            return False
        if user.is_service_account:
            return self._is_bound(user.name, namespace)
        return user.namespaces is None or namespace in user.namespaces

    def _account_exists(self, name: str) -> bool:
        *_, namespace, account = name.split(":")
        return self._store.find("serviceaccounts", account, namespace) is not None

    def _is_bound(self, name: str, namespace: str) -> bool:
        if _names(self._store.items("clusterrolebindings"), name):
            return True
        return bool(namespace) and _names(self._store.items("rolebindings", namespace), name)


def _names(bindings: Iterable[Json], user: str) -> bool:
    subjects = (subject for binding in bindings for subject in binding.get("subjects") or ())
    return any(
        user == account_name(subject.get("namespace", ""), subject["name"])
        if subject["kind"] == "ServiceAccount"
        else user == subject["name"]
        for subject in subjects
    )
