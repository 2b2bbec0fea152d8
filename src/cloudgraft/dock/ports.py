"""What the hub asks of others: who calls, and what machines are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import grpc.aio

from cloudgraft.dock.protocol.messages import ClassRef, Key, MachineClass, Secret

__all__ = ["Access", "ClassStore", "Context", "EngineAccess", "EngineIdentity", "Identity"]

Context = grpc.aio.ServicerContext[Any, Any]


class Identity(Protocol):
    """Who a driver has proved to be."""

    @property
    def name(self) -> str:
        """For people, logs and limits."""

    def may(self, key: Key) -> bool:
        """Whether it may register as the driver of these machines, and so read their classes and secrets."""


class Access(Protocol):
    """Who may call."""

    def identify(self, context: Context) -> Identity | None:
        """The caller by its certificate or token; None for a stranger. It may be asked again in mid-stream."""

    def on_removed(self, callback: Callable[..., None]) -> None:
        """The callback is called, with whatever, when an identity is gone or may do less than before."""


class EngineIdentity(Protocol):
    """Who an engine elsewhere has proved to be."""

    @property
    def name(self) -> str:
        """For people and logs."""

    def may_use(self, key: Key) -> bool:
        """Whether it may have the driver of these machines make, delete and list them."""


class EngineAccess(Protocol):
    """Which engines may call."""

    def identify(self, context: Context) -> EngineIdentity | None:
        """The caller by its certificate or token; None for a stranger."""


class ClassStore(Protocol):
    """Machine classes and secrets as they are now. All from memory: nothing here waits."""

    def get(self, name: str, key: Key) -> MachineClass:
        """The class of that name and kind; raises NotFoundError."""

    def secret(self, machine_class: MachineClass) -> Secret | None:
        """The secret that the class names; None when it needs none."""

    def ref(self, name: str, key: Key) -> ClassRef:
        """The present revisions of a class and its secret; raises NotFoundError."""

    def on_changed(self, callback: Callable[[Key, Sequence[str], Sequence[str]], None]) -> None:
        """The callback is called with a kind and the names of its classes and secrets that are other ones now."""
