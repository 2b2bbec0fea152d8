"""The narrow interface: machines in one cloud account. Three verbs, and the engine does the rest."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

from cloudgraft.sdk.errors import InvalidArgumentError, UnsupportedError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Taint

__all__ = [
    "Driver",
    "DriverTraits",
    "Idempotency",
    "Machine",
    "MachineSpec",
    "MachineState",
    "Ownership",
    "PartialList",
    "Price",
    "ProviderIdBy",
    "Shape",
    "check_provider_id",
]


class Ownership(enum.Enum):
    """How a machine shows that it is ours: the proof that is asked for before anything is deleted."""

    TAGS = "tags"  # the cloud keeps the tags of MachineSpec and gives them back in list()
    NAME = "name"  # the cloud keeps nothing but the name
    INVENTORY = "inventory"  # the driver itself knows which machines it may touch


class Idempotency(enum.Enum):
    """What a second create() with the same name does."""

    TOKEN = "token"  # noqa: S105 - the cloud takes the name as a client token and answers with the first machine
    UNIQUE_NAME = "unique_name"  # the cloud refuses a second machine of that name
    NONE = "none"  # the cloud makes a second machine


class ProviderIdBy(enum.Enum):
    """Who writes a machine's providerID on its node, so that the autoscaler takes the two for one (R30)."""

    KUBELET = "kubelet"  # the machine's own, started with it by user data or by the image
    CLOUD_CONTROLLER = "cloud_controller"  # the cloud's cloud-controller-manager
    CLOUDGRAFT = "cloudgraft"  # cloudgraft, when the node has joined: for that it must reach the cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverTraits:
    """What a driver declares about its cloud, as data."""

    ownership: Ownership = Ownership.TAGS
    idempotency: Idempotency = Idempotency.NONE
    list_delay: timedelta = timedelta(0)  # how long a new machine may be missing from list()
    complete_list: bool = True  # False: absence from list() proves nothing
    # Such as "acme://{name}", when a node's providerID is known before its machine exists; empty: it is not.
    provider_id: str = ""
    provider_id_by: ProviderIdBy = ProviderIdBy.CLOUDGRAFT
    user_data_limit: int | None = None  # bytes of user data that the cloud takes at most; None: no limit is known
    catalog_lasts: timedelta = timedelta(
        hours=1
    )  # how long shapes() and prices() are believed, until they are asked anew
    create_timeout: timedelta | None = (
        None  # for one create(), where nobody configures it; None: the engine's own 2 min
    )

    def __post_init__(self) -> None:
        """Refuses times in which nothing can be done, and a providerID that two machines would share."""
        if self.user_data_limit is not None and self.user_data_limit < 0:
            raise InvalidArgumentError(f"user_data_limit is {self.user_data_limit}: it is a number of bytes, or None")
        if min(self.catalog_lasts, self.create_timeout or self.catalog_lasts) <= timedelta(0):
            raise InvalidArgumentError("catalog_lasts and create_timeout must be more than zero")
        check_provider_id(self.provider_id)


def check_provider_id(pattern: str) -> None:
    """Raises InvalidArgumentError for a pattern of providerIDs that two machines would share."""
    filled = pattern.replace("{name}", "")
    if pattern and (filled == pattern or "{" in filled or "}" in filled):
        raise InvalidArgumentError(
            f"the providerID {pattern!r} must hold {{name}}, which stands for the machine's name, and no other braces, "
            'such as "acme://{name}"; leave it empty when more than the name is in the providerID'
        )


class MachineState(enum.Enum):
    """What the cloud says of a machine."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPED = "stopped"
    DELETING = "deleting"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSpec:
    """The machine to create. ``name`` is final and is the idempotency token: put it wherever the cloud keeps one."""

    name: str
    group: str
    settings: Mapping[str, object] = field(default_factory=dict)  # the group's `machine:` section
    tags: Mapping[str, str] = field(default_factory=dict)
    user_data: str = field(default="", repr=False)  # holds secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine as its cloud shows it."""

    name: str
    machine_id: str  # the cloud's own id
    provider_id: str | None = None  # what its node will carry; None while that is not known
    state: MachineState = MachineState.RUNNING
    tags: Mapping[str, str] = field(default_factory=dict)
    created_at: datetime | None = None
    reason: str = ""  # why it is in this state, for a person
    addresses: Sequence[str] = ()  # under which its node may be known: IP addresses and host names
    # Of a machine that FAILED: the name of the error that says best why, such as "out_of_stock" where a cloud first
    # accepts and then finds no room (see `slug` in sdk.errors). The autoscaler is told its class.
    failure: str = ""


class PartialList(list[Machine]):
    """A list() that is not known to have every machine, of a driver that knows what it is complete for.

    ``complete_for`` are beginnings of machine ids: a machine whose id begins with none of them may be there although
    it is not in the list. ``is_whole``: every place was asked in which a machine can be made now, so that one whose id
    is not known, and that is not in the list, does not exist.

    Only for drivers in the same process as the engine: a plugin, or a driver that dials in, raises instead. Their
    protocols have no word for it, and such a list is refused there.
    """

    __slots__ = ("complete_for", "is_whole")

    def __init__(self, machines: Iterable[Machine], *, complete_for: Iterable[str], is_whole: bool) -> None:
        """The machines that are known to be there, and what their list is complete for."""
        super().__init__(machines)
        self.complete_for, self.is_whole = tuple(complete_for), is_whole

    def tells_of(self, machine_id: str) -> bool:
        """Whether a machine of this id, or of none that is known, would be in the list if it existed."""
        return machine_id.startswith(self.complete_for) if machine_id else self.is_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A machine type: what a machine of that name holds."""

    name: str
    capacity: Mapping[str, Quantity]
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Taint] = ()  # that every node of it has by itself
    # What a machine of it may turn out to be, where that is not certain: a group is only served when its template is
    # true of each of them. What is said above is then what they have in common. Neither this nor `problem` can be said
    # by scripts and HTTP endpoints that are a driver.
    variants: Sequence[Shape] = ()
    problem: str = ""  # why no machine of it can be had, for a person; a group that wants one is not served


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What an hour of a shape costs."""

    shape: str
    hourly: Decimal
    currency: str


class Driver(ABC):
    """Machines in one cloud account.

    Raise an error of :mod:`cloudgraft.sdk.errors`: its class decides whether the call is tried again and what the
    autoscaler is told. Every method may be called concurrently. Waiting for the cloud is fine here.
    """

    traits: DriverTraits = DriverTraits()
    # A dataclass (or pydantic model) for the `machine:` section of the cloud's node groups, as `Options` is one for the
    # cloud itself: keys are camelCase, unknown ones are refused with file and line. None: the section is not checked.
    # Where a group cannot have any number of such machines, give it a method `check_max_size(self, max_size: int)`
    # that raises InvalidArgumentError.
    MachineSettings: type | None = None

    @abstractmethod
    async def create(self, spec: MachineSpec) -> Machine:
        """Orders one machine and returns as soon as the cloud has accepted it; it need not be running yet.

        Called again with the same name after a crash or a lost answer: what then happens is declared in
        ``traits.idempotency``. Mark the machine with ``spec.tags`` in the same call that creates it.
        """

    @abstractmethod
    async def delete(self, machine: Machine) -> None:
        """Asks the cloud to delete the machine and everything made for it. One that is gone already is not an error."""

    @abstractmethod
    async def list(self) -> Sequence[Machine]:
        """Every machine in the account that may be ours, all pages. Raise rather than answer with a part.

        What is listed is taken as accepted: it comes up by itself, or fails. Where a create takes several steps of
        yours, leave a machine out while it is half made, so that a create that died is called again and finishes it;
        and list it as FAILED when nobody has come back for it, so that it is removed.

        A driver of several places that can tell which of them a machine is in, by its id, may answer with a
        :class:`PartialList` when one of them is away.
        """

    async def mark(self, machine: Machine, tags: Mapping[str, str | None]) -> None:
        """Puts tags on a machine that is there already, and takes off those whose value is None. Its others stay.

        Called for machines that an operator adopts or releases. list() must then show the tags as it shows those of
        create(). Raise NotFoundError when the machine is not there any more, or is another one by now.
        """
        raise UnsupportedError("this driver cannot mark machines that are there already")

    async def shapes(self) -> Sequence[Shape]:
        """The machine types on offer."""
        raise UnsupportedError("this driver does not know its cloud's machine types")

    async def prices(self) -> Sequence[Price]:
        """The price of each shape, where the cloud tells it. A shape that it leaves out has no price any more."""
        raise UnsupportedError("this driver does not know its cloud's prices")

    async def start(self) -> None:
        """Called once before the first call."""

    async def close(self) -> None:
        """Called once after the last call."""
