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

    TOKEN = "token"  # noqa: S105 - the cloud takes the name as a client token and answers with the first machine
    UNIQUE_NAME = "unique_name"  # the cloud refuses a second machine of that name
    NONE = "none"  # the cloud makes a second machine


class ProviderIdBy(enum.Enum):
    """Who writes a machine's providerID on its node. By it the autoscaler matches the node to the machine (R30)."""

    KUBELET = "kubelet"  # the kubelet on the machine, configured by user data or by the image
    CLOUD_CONTROLLER = "cloud_controller"  # the cloud's cloud-controller-manager
    CLOUDGRAFT = "cloudgraft"  # cloudgraft, after the node has joined: needs access to the cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverTraits:
    """What a driver declares about its cloud, as data."""

    ownership: Ownership = Ownership.TAGS
    idempotency: Idempotency = Idempotency.NONE
    list_delay: timedelta = timedelta(0)  # how long a new machine may be missing from list()
    complete_list: bool = True  # False: absence from list() proves nothing
    # Such as "acme://{name}", when the providerID is known before the machine exists; empty when it is not.
    provider_id: str = ""
    provider_id_by: ProviderIdBy = ProviderIdBy.CLOUDGRAFT
    user_data_limit: int | None = None  # the most bytes of user data that the cloud accepts; None: no known limit
    catalog_lasts: timedelta = timedelta(hours=1)  # how long the answers of shapes() and prices() are cached
    create_timeout: timedelta | None = None  # for one create(), unless configured; None: the engine's default of 2 min

    def __post_init__(self) -> None:
        """Refuses durations of zero or less, and a providerID that two machines would share."""
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

    PENDING = "pending"
    RUNNING = "running"
    STOPPED = "stopped"
    DELETING = "deleting"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSpec:
    """The machine to create. ``name`` never changes. It is the idempotency token: put it where the cloud keeps one."""

    name: str
    group: str
    settings: Mapping[str, object] = field(default_factory=dict)  # the group's `machine:` section
    tags: Mapping[str, str] = field(default_factory=dict)
    user_data: str = field(default="", repr=False)  # holds secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine as its cloud reports it."""

    name: str
    machine_id: str  # the cloud's own id
    provider_id: str | None = None  # the providerID of its node; None while it is not known
    state: MachineState = MachineState.RUNNING
    tags: Mapping[str, str] = field(default_factory=dict)
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

    name: str
    capacity: Mapping[str, Quantity]
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Taint] = ()  # that every node of this type has by itself
    # The shapes that a machine may turn out to have, where that is not certain. A group is only served when its
    # template is true for each of them; the fields above then hold what they have in common. Drivers that are scripts
    # or HTTP endpoints can set neither this nor `problem`.
    variants: Sequence[Shape] = ()
    problem: str = ""  # why no such machine is available, for a person; a group that needs one is not served


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of a shape per hour."""

    shape: str
    hourly: Decimal
    currency: str


# -- Declarations ------------------------------------------------------------------------------------------------------


class Place(enum.Enum):
    """A path that cloudgraft fills in when the configuration does not set it."""

    STATE_FILE = "state file"
    WORKING_DIRECTORY = "working directory"


# Types for fields of `Options`, with None as the default: `state_file: StateFile = None`.
StateFile = Annotated[Path | None, Place.STATE_FILE]  # a file that only this cloud has, beside the journal
WorkingDirectory = Annotated[Path | None, Place.WORKING_DIRECTORY]  # the directory of the configuration file


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

    # An object of the class may have other traits than the class, such as those that its options set.
    traits: DriverTraits = DriverTraits()
    # For the cloud itself. The driver is then constructed with one argument, an object of this class; else with none.
    Options: type | None = None
    # For the `machine:` section of the cloud's node groups; see also MaxSizeCheck. None: the section is not checked.
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
        """

    @abstractmethod
    async def delete(self, machine: Machine) -> None:
        """Asks the cloud to delete the machine and everything created for it. A missing machine is not an error."""

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
        """Returns the machine types on offer."""
        raise UnsupportedError("this driver does not know its cloud's machine types")

    async def prices(self) -> Sequence[Price]:
        """Returns the price of each shape whose price the cloud publishes. A shape left out no longer has a price."""
        raise UnsupportedError("this driver does not know its cloud's prices")

    async def start(self) -> None:
        """Called once before the first call."""

    async def close(self) -> None:
        """Called once after the last call."""
