"""Defines the driver interface: machines in one cloud account. Three verbs; the engine does the rest.

All that a driver may declare is in :class:`DriverDeclarations`. Nothing is guessed from the name of a field.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Protocol, runtime_checkable

from cloudgraft.sdk.errors import InvalidArgumentError, UnsupportedError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Taint


class Ownership(enum.Enum):
    """How a machine proves that it is ours. The engine requires this proof before it deletes anything."""

    TAGS = "tags"  # the cloud keeps the tags of MachineSpec and gives them back in list()
    NAME = "name"  # the cloud keeps nothing but the name
    INVENTORY = "inventory"  # the driver itself knows which machines it owns


class Idempotency(enum.Enum):
    """What a second create() with the same name does."""

    # the cloud takes the name as a client token and answers with the first machine
    TOKEN = "token"  # noqa: S105 - no password
    UNIQUE_NAME = "unique_name"  # the cloud refuses a second machine of that name
    NONE = "none"  # the cloud makes a second machine


class ProviderIdBy(enum.Enum):
    """Who writes a machine's providerID on its node. By it the autoscaler matches the node to the machine (R30)."""

    KUBELET = "kubelet"  # the kubelet on the machine, configured by user data or by the image
    CLOUD_CONTROLLER = "cloud_controller"  # the cloud's cloud-controller-manager
    CLOUDGRAFT = "cloudgraft"  # cloudgraft, after the node has joined: needs access to the cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverTraits:
    """What a driver declares about its cloud, as data. The engine relies on it.

    When you are not certain, declare the weaker value: the engine is then slower, not wrong.
    """

    ownership: Ownership = Ownership.TAGS  # what proves that a machine is ours; nothing else is ever deleted
    idempotency: Idempotency = Idempotency.NONE  # what a second create() of the same name does
    # How long a new machine may be missing from list(), at most. Declared too short, the engine takes a machine that is
    # not listed yet for one that was never created, and creates another.
    list_delay: timedelta = timedelta(0)
    complete_list: bool = True  # False: a machine that is absent from list() may exist nevertheless
    # Such as "acme://{name}", when the providerID is known before the machine exists; empty when it is not.
    provider_id: str = ""
    provider_id_by: ProviderIdBy = ProviderIdBy.CLOUDGRAFT  # who writes the providerID on the node
    user_data_limit: int | None = None  # the most bytes of user data that the cloud accepts; None: no known limit
    catalog_lasts: timedelta = timedelta(hours=1)  # how long the answers of shapes() and prices() are cached
    create_timeout: timedelta | None = None  # for one create(), unless configured; None: the engine's default of 2 min
    max_calls: int | None = None  # the most create() and delete() at once; None: as many as are configured

    def __post_init__(self) -> None:
        """Refuses durations of zero or less, and a providerID that two machines would share."""
        if self.max_calls is not None and self.max_calls < 1:
            raise InvalidArgumentError(f"max_calls is {self.max_calls}: it is a number of calls from 1 on, or None")
        if self.user_data_limit is not None and self.user_data_limit < 0:
            raise InvalidArgumentError(f"user_data_limit is {self.user_data_limit}: it is a number of bytes, or None")
        if min(self.catalog_lasts, self.create_timeout or self.catalog_lasts) <= timedelta(0):
            raise InvalidArgumentError("catalog_lasts and create_timeout must be more than zero")
        check_provider_id(self.provider_id)


def check_provider_id(pattern: str) -> None:
    """Raises InvalidArgumentError for a providerID pattern that gives two machines the same id."""
    filled = pattern.replace("{name}", "")
    if pattern and (filled == pattern or "{" in filled or "}" in filled):
        raise InvalidArgumentError(
            f"the providerID {pattern!r} must hold {{name}}, which stands for the machine's name, and no other braces, "
            'such as "acme://{name}"; leave it empty when more than the name is in the providerID'
        )


class MachineState(enum.Enum):
    """A machine's state as its cloud reports it."""

    PENDING = "pending"  # accepted, and not running yet
    RUNNING = "running"  # it runs; whether its node has joined is not the driver's concern
    STOPPED = "stopped"  # it exists and does not run
    DELETING = "deleting"  # the cloud is deleting it
    FAILED = "failed"  # it will never run; the engine deletes it and reports the reason


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSpec:
    """The machine to create. ``name`` never changes. It is the idempotency token: put it where the cloud keeps one."""

    name: str  # unique for all time: at most 63 lower-case letters, digits and hyphens
    group: str  # the id of its node group
    # The group's `machine:` section as it is in the file, by its keys. ``cloudgraft.validation.read_settings`` makes an
    # object of your MachineSettings from it.
    settings: Mapping[str, object] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)  # whose machine it is: set them in the call that creates it
    user_data: str = field(default="", repr=False)  # for cloud-init or the like; holds secrets: never log it


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine as its cloud reports it."""

    name: str  # that of its MachineSpec; for a foreign machine, any name that the cloud has for it
    machine_id: str  # the cloud's own id, which delete() gets
    # The `spec.providerID` of its node, byte for byte: the autoscaler matches them by it. None while it is not known.
    provider_id: str | None = None
    state: MachineState = MachineState.RUNNING  # PENDING from create() when it is only accepted
    tags: Mapping[str, str] = field(default_factory=dict)  # all that create() and mark() have set, and others
    # With a time zone, and the same for the machine's whole life: it tells an id that was reused from the machine that
    # had it before.
    created_at: datetime | None = None
    reason: str = ""  # why it is in this state, for a person
    addresses: Sequence[str] = ()  # IP addresses and host names by which its node may be known
    # For a machine that FAILED: the name of the error that best says why (see `slug` in sdk.errors), such as
    # "out_of_stock" where a cloud first accepts and then finds no room. The autoscaler gets its class.
    failure: str = ""


class PartialList(list[Machine]):
    """A list() that may lack machines, with the scope for which it is complete.

    ``complete_for`` holds prefixes of machine ids: a machine whose id has none of them may exist although it is not in
    the list. ``is_whole``: every place where a machine can be created now has answered. A machine of unknown id that is
    not in the list then does not exist.

    Only for drivers in the same process as the engine. A plugin, or a driver that dials in, raises instead: their
    protocols cannot express a partial list, and refuse one.
    """

    __slots__ = ("complete_for", "is_whole")

    def __init__(self, machines: Iterable[Machine], *, complete_for: Iterable[str], is_whole: bool) -> None:
        """Takes the machines that are known to exist, and the scope for which their list is complete."""
        super().__init__(machines)
        self.complete_for, self.is_whole = tuple(complete_for), is_whole

    def tells_of(self, machine_id: str) -> bool:
        """Returns whether the list would hold a machine of this id if it existed. An empty id means an unknown one."""
        return machine_id.startswith(self.complete_for) if machine_id else self.is_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A machine type and its resources."""

    name: str  # the value of `shape` in the group's `machine:` section
    capacity: Mapping[str, Quantity]  # cpu, memory and every other resource: {"cpu": Quantity("4"), …}
    labels: Mapping[str, str] = field(default_factory=dict)  # that every node of this type has by itself
    taints: Sequence[Taint] = ()  # that every node of this type has by itself
    # The shapes that a machine may turn out to have, where that is not certain. A group is only served when its
    # template is true for each of them; the fields above then hold what they have in common. Drivers that are scripts
    # or HTTP endpoints can set neither this nor `problem`.
    variants: Sequence[Shape] = ()
    problem: str = ""  # why no such machine is available, for a person; a group that needs one is not served


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of a shape per hour."""

    shape: str  # the name of the shape
    hourly: Decimal  # a Decimal, never a float
    currency: str  # the same for all prices of a driver, such as "EUR"


# -- Declarations ------------------------------------------------------------------------------------------------------


class Place(enum.Enum):
    """A path that cloudgraft fills in when the configuration does not set it, or that the driver makes."""

    STATE_FILE = "state file"
    WORKING_DIRECTORY = "working directory"
    MADE = "made by the driver"  # never filled in


# Types for fields of `Options`, with None as the default: `state_file: StateFile = None`.
StateFile = Annotated[Path | None, Place.STATE_FILE]  # a file that only this cloud has, beside the journal
WorkingDirectory = Annotated[Path | None, Place.WORKING_DIRECTORY]  # the directory of the configuration file
MadePath = Annotated[Path, Place.MADE]  # a file or directory that the driver makes, so that it need not exist


@runtime_checkable
class MaxSizeCheck(Protocol):
    """An optional method of ``MachineSettings``, for machines of which a group can have only so many."""

    def check_max_size(self, max_size: int) -> None:
        """Raises InvalidArgumentError, which is reported at the group's ``maxSize``."""


class DriverDeclarations:
    """Attributes that a driver's class may set. :class:`Driver` and :class:`BlockingDriver` have them both.

    ``Options`` and ``MachineSettings`` are dataclasses or pydantic models, or `dict` to check nothing. Keys in the
    file are camelCase; unknown ones and wrong types are refused with file and line. A ``Path``, or a string in a
    field named ``…_file`` or ``…_dir``, is relative to the file; a ``timedelta`` is written as a duration. A
    ``__post_init__`` checks what types cannot: see :class:`~cloudgraft.sdk.flaws.Flaws`.
    """

    # What the cloud can do. An object of the class may have other traits than the class, such as those that its options
    # set.
    traits: DriverTraits = DriverTraits()
    # The class of the cloud's keys in the configuration. The driver is constructed with one argument, an object of it.
    # None: the cloud has no keys, and the driver is constructed without arguments.
    Options: type | None = None
    # The class of the `machine:` section of the cloud's node groups; see also MaxSizeCheck. None: it is not checked.
    MachineSettings: type | None = None
    # True: create() sets `labels` and `taints` of its machine settings on the node. MachineSettings must have both
    # keys; where a group leaves one out, its value is that of the group's template.
    sets_node_labels: bool = False

    def known_shapes(self) -> Sequence[Shape] | None:
        """Returns the machine types that follow from the options alone; None when only the cloud knows them.

        `cloudgraft serve --check` compares the groups with them. It makes no call to the cloud, and the driver is not
        started.
        """
        return None

    def missing(self) -> Mapping[str, str]:
        """Returns what the options name and this host lacks, such as a program: the option's key, and what is wrong.

        For `cloudgraft serve --check`, as above. Files that options name are checked without it.
        """
        return {}


class Driver(DriverDeclarations, ABC):
    """Machines in one cloud account.

    Raise an error of :mod:`cloudgraft.sdk.errors`: its class decides whether the engine retries the call and which
    error the autoscaler gets. Every method may be called concurrently. Methods may wait for the cloud.
    """

    @abstractmethod
    async def create(self, spec: MachineSpec) -> Machine:
        """Orders one machine and returns as soon as the cloud has accepted it; it need not be running yet.

        The engine calls it again with the same name after a crash or a lost response; ``traits.idempotency`` declares
        what happens then. Set ``spec.tags`` on the machine in the same call that creates it.

        Raise DeadlineError when the call was sent and its outcome is not known: no response, a lost connection, a 5xx.
        The engine then looks for the machine in the list. Most other errors promise that nothing was done, and after a
        wrong promise the engine creates a second machine: see ``nothing_done`` of the errors.
        """

    @abstractmethod
    async def delete(self, machine: Machine) -> None:
        """Asks the cloud to delete the machine and everything created for it. A missing machine is not an error.

        Return as soon as the cloud has accepted it: a list shows when the machine is gone. Delete by ``machine_id``; a
        NotFoundError means that no machine has this id any more.
        """

    @abstractmethod
    async def list(self) -> Sequence[Machine]:
        """Returns every machine in the account that may be ours, from all pages. Raise rather than return a part.

        The engine takes a listed machine as accepted: it comes up by itself, or fails. Where your create takes several
        steps, leave a half-made machine out of the list: the engine then repeats a create that died, which finishes it.
        List it as FAILED when no create has continued it for long, so that the engine deletes it.

        A driver of several places that can tell from a machine's id which place it is in may return a
        :class:`PartialList` when one of them is unavailable.
        """

    async def mark(self, machine: Machine, tags: Mapping[str, str | None]) -> None:
        """Sets tags on an existing machine, and removes those whose value is None. Its other tags stay.

        Called for machines that an operator adopts or releases. list() must then return the tags as it returns those of
        create(). Raise NotFoundError when the machine no longer exists, or when its id now belongs to another one.
        """
        raise UnsupportedError("this driver cannot mark machines that are there already")

    async def shapes(self) -> Sequence[Shape]:
        """Returns the machine types on offer, each once. Groups of these shapes need no ``template.capacity``."""
        raise UnsupportedError("this driver does not know its cloud's machine types")

    async def prices(self) -> Sequence[Price]:
        """Returns the price of each shape whose price the cloud publishes. A shape left out no longer has a price."""
        raise UnsupportedError("this driver does not know its cloud's prices")

    async def start(self) -> None:
        """Called once before the first call. Open connections here. After an error the engine calls it again later."""

    async def close(self) -> None:
        """Called once after the last call. Close connections and stop threads here."""
