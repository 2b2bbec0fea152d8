"""Declares the interfaces that the hub needs: caller authentication and machine classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import grpc.aio

from cloudgraft.dock.protocol.messages import ClassRef, Key, MachineClass, Secret

Context = grpc.aio.ServicerContext[Any, Any]


class Identity(Protocol):
    """An authenticated driver."""

    @property
    def name(self) -> str:
        """For people, logs and limits."""

    def may(self, key: Key) -> bool:
        """Whether it may register as the driver of this key, and so read its classes and secrets."""


class Access(Protocol):
    """Authenticates drivers."""

    def identify(self, context: Context) -> Identity | None:
        """Returns the caller by its certificate or token; None for an unknown one. May be called during a stream."""

    def on_removed(self, callback: Callable[..., None]) -> None:
        """Calls back, with any arguments, when an identity was removed or lost rights."""


class EngineIdentity(Protocol):
    """An authenticated remote engine."""

    @property
    def name(self) -> str:
        """For people and logs."""

    def may_use(self, key: Key) -> bool:
        """Whether it may create, delete and list machines through the driver of this key."""


class EngineAccess(Protocol):
    """Authenticates engines."""

    def identify(self, context: Context) -> EngineIdentity | None:
        """Returns the caller by its certificate or token; None for an unknown one."""


class ClassStore(Protocol):
    """The current machine classes and secrets. Everything is in memory: no method blocks."""

    def get(self, name: str, key: Key) -> MachineClass:
        """The class of that name and kind; raises NotFoundError."""

    def secret(self, machine_class: MachineClass) -> Secret | None:
        """The secret that the class names; None when it needs none."""

    def ref(self, name: str, key: Key) -> ClassRef:
        """The current revisions of a class and its secret; raises NotFoundError."""

    def on_changed(self, callback: Callable[[Key, Sequence[str], Sequence[str]], None]) -> None:
        """Calls back with a kind and the names of its classes and secrets that have changed."""
