"""Defines what hub and drivers exchange in every version of the protocol: values, without a transport."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from cloudgraft.dock.protocol.codes import Code, Verb
from cloudgraft.sdk.driver import DriverTraits, Machine, MachineSpec, Price, Shape


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Key:
    """The kind of machines that a driver manages. A key has at most one driver at a time."""

    kind: str
    api_version: str

    def __str__(self) -> str:
        return f"{self.kind} ({self.api_version})"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverInfo:
    """A driver's description of itself when it connects."""

    key: Key
    protocol: str  # "v0" or "v1"
    name: str = ""
    version: str = ""
    instance_id: str = ""  # empty: unknown (v0)
    max_in_flight: int = 0  # 0: no limit of its own
    capabilities: frozenset[str] = frozenset()
    traits: DriverTraits | None = None  # None: undeclared (v0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRef:
    """The current revisions of a machine class."""

    name: str
    revision: int = 0
    secret_revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineClass:
    """The template of a group's machines: a Kubernetes object, or an equivalent from a file."""

    name: str
    key: Key
    revision: int
    provider_spec: Mapping[str, object] = field(default_factory=dict, repr=False)
    node_template: Mapping[str, object] = field(default_factory=dict)
    secret: str = ""  # name of the secret with the credentials; empty: none needed
    also_named: str = ""  # name of a second secret, whose values the first one's override: a driver sees both as one
    namespace: str = ""
    json: str = field(default="", repr=False)  # the whole object, for drivers


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """Credentials for a driver's cloud."""

    name: str
    revision: int
    data: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation for a driver."""

    verb: Verb
    class_ref: ClassRef
    timeout: timedelta
    spec: MachineSpec | None = None  # for a create
    machine: Machine | None = None  # for a delete
    max_in_flight: int = 1  # operations at once for a driver that cannot declare it (v0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How an operation ended."""

    code: Code = Code.OK
    message: str = ""
    retry_after: timedelta | None = None
    is_plain: bool = False  # a text without a code (v0): see :mod:`cloudgraft.dock.protocol.texts`


Answer = Machine | Sequence[Machine] | Sequence[Shape] | Sequence[Price] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of an operation as its driver reported it."""

    status: Status
    answer: Answer = None
