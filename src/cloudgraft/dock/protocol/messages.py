"""What hub and drivers say to each other, whatever the version of the protocol: values, without a transport."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from cloudgraft.dock.protocol.codes import Code
from cloudgraft.sdk.driver import DriverTraits, Machine, MachineSpec, Price, Shape

__all__ = [
    "Answer",
    "ClassRef",
    "DriverInfo",
    "Key",
    "MachineClass",
    "Operation",
    "Result",
    "Secret",
    "Status",
    "Verb",
]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Key:
    """Which machines a driver makes. There is at most one driver of a key at a time."""

    kind: str
    api_version: str

    def __str__(self) -> str:
        return f"{self.kind} ({self.api_version})"


class Verb(enum.Enum):
    """What a driver can be asked."""

    CREATE = "create"
    DELETE = "delete"
    LIST = "list"
    SHAPES = "shapes"
    PRICES = "prices"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverInfo:
    """What a driver says of itself when it connects."""

    key: Key
    protocol: str  # "v0" or "v1"
    name: str = ""
    version: str = ""
    instance_id: str = ""  # empty: it does not say (v0)
    max_in_flight: int = 0  # 0: no limit of its own
    capabilities: frozenset[str] = frozenset()
    traits: DriverTraits | None = None  # None: it does not say (v0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRef:
    """A machine class as it is now."""

    name: str
    revision: int = 0
    secret_revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineClass:
    """What machines of a group are made of: an object of Kubernetes, or the like of one from a file."""

    name: str
    key: Key
    revision: int
    provider_spec: Mapping[str, object] = field(default_factory=dict, repr=False)
    node_template: Mapping[str, object] = field(default_factory=dict)
    secret: str = ""  # the name of the secret with the credentials; empty: it needs none
    also_named: str = ""  # the name of one over whose values those are laid: the two are one to a driver
    namespace: str = ""
    json: str = field(default="", repr=False)  # the whole object, for drivers


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """Credentials of a driver's cloud."""

    name: str
    revision: int
    data: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing for a driver to do."""

    verb: Verb
    class_ref: ClassRef
    timeout: timedelta
    spec: MachineSpec | None = None  # of a create
    machine: Machine | None = None  # of a delete


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How an operation ended."""

    code: Code = Code.OK
    message: str = ""
    retry_after: timedelta | None = None


Answer = Machine | Sequence[Machine] | Sequence[Shape] | Sequence[Price] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The end of an operation as its driver tells it."""

    status: Status
    answer: Answer = None
