"""Defines the adapter of one cloud in libcloud: which arguments it needs, and how to read its responses."""

from __future__ import annotations

import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar, Final
from urllib.parse import parse_qs, urlsplit

import requests
from libcloud.compute.base import Node, NodeImage, NodeLocation, NodeSize
from libcloud.compute.types import NodeState

from cloudgraft.drivers.common.secrets import SecretFile
from cloudgraft.drivers.libcloud.options import LibcloudOptions, MachineSettings
from cloudgraft.drivers.libcloud.providers import provider_of
from cloudgraft.drivers.libcloud.wire import Wire
from cloudgraft.sdk.driver import DriverTraits, Machine, MachineSpec, MachineState, Price, Shape
from cloudgraft.sdk.errors import ConflictError, InvalidArgumentError, UnsupportedError
from cloudgraft.sdk.list_budget import current_budget
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.validation import read_settings

MOST_PAGES: Final = 10_000  # of a list
_STATES: Final[Mapping[str, MachineState]] = {
    NodeState.RUNNING: MachineState.RUNNING,
    NodeState.REBOOTING: MachineState.RUNNING,
    NodeState.MIGRATING: MachineState.RUNNING,
    NodeState.UPDATING: MachineState.RUNNING,
    NodeState.RECONFIGURING: MachineState.RUNNING,
    NodeState.STOPPED: MachineState.STOPPED,
    NodeState.STOPPING: MachineState.STOPPED,
    NodeState.PAUSED: MachineState.STOPPED,
    NodeState.SUSPENDED: MachineState.STOPPED,
    NodeState.TERMINATED: MachineState.DELETING,
    NodeState.ERROR: MachineState.FAILED,
}


def states(**words: str) -> Mapping[str, MachineState]:
    """Builds the table of a cloud's states from its words for each MachineState."""
    return {word: MachineState[state] for state, text in words.items() for word in text.split()}


class States(dict[str, Any]):
    """A cloud's states, in place of libcloud's table, where one unknown state breaks the whole list."""

    def __missing__(self, key: str) -> Any:
        return NodeState.UNKNOWN


class Adapter(ABC):
    """One cloud. Many threads use an adapter; the libcloud objects that it gets belong to one thread.

    An adapter passes arguments by name, and only those that the cloud's driver in libcloud knows. It refuses settings
    that the cloud does not support.
    """

    traits: ClassVar[DriverTraits] = DriverTraits()
    needs: ClassVar[frozenset[str]] = frozenset()  # required options, besides secretFile
    may: ClassVar[frozenset[str]] = frozenset()  # further options
    takes: ClassVar[frozenset[str]] = frozenset()  # machine settings, besides shape and image
    takes_one: ClassVar[frozenset[str]] = frozenset()  # lists among them that may have one entry only
    is_routed: ClassVar[bool] = True  # whether `endpoint` replaces every host; False: it is passed to libcloud
    has_prices: ClassVar[bool] = False
    names: ClassVar[str] = r"[a-z0-9][a-z0-9-]{0,62}"  # of machines, as a pattern
    create_limit: ClassVar[timedelta] = timedelta(seconds=110)  # the engine waits two minutes
    provider_id: ClassVar[str] = ""  # such as "acme://{id}"

    def __init__(self, options: LibcloudOptions) -> None:
        """Refuses options that this cloud does not support, and requires those that it needs."""
        self.options = options
        given = {key for key in ("key", "region", "project", "domain", "endpoint") if getattr(options, key)}
        problems = [f"{key} is missing" for key in sorted(self.needs - given)]
        problems += [f"{key} is not used: remove it" for key in sorted(given - self.needs - self.may - {"endpoint"})]
        if problems:
            raise InvalidArgumentError(f"{options.provider}: {'; '.join(problems)}")

    def secret_file(self) -> SecretFile:
        """Returns the file of the secret."""
        return SecretFile(path=self.options.secret_file, option="secretFile")

    def checked(self, spec: MachineSpec) -> MachineSettings:
        """Returns the settings of a machine; raises InvalidArgumentError for those that this cloud does not support."""
        provider, settings = self.options.provider, read_settings(MachineSettings, spec.settings)
        for key in settings.given():
            if key not in self.takes:
                raise InvalidArgumentError(f"{provider} does not support machine.{key}: remove it")
        lists = {
            "networks": settings.networks,
            "securityGroups": settings.security_groups,
            "sshKeys": settings.ssh_keys,
        }
        for key, values in lists.items():
            if key in self.takes_one and len(values) > 1:
                raise InvalidArgumentError(f"{provider} takes one of machine.{key}")
        if not re.fullmatch(self.names, spec.name):
            raise InvalidArgumentError(f"{provider} does not accept the machine name {spec.name!r}")
        limit, size = self.traits.user_data_limit, len(spec.user_data.encode())
        if limit is not None and size > limit:
            raise InvalidArgumentError(f"user data has {size} bytes, and {provider} takes {limit} through libcloud")
        return settings

    def place(self, settings: MachineSettings) -> str:
        """Returns the zone of a machine, or the cloud's region."""
        found = settings.zone or self.options.region
        if not found:
            raise InvalidArgumentError("set machine.zone, or the cloud's region, to the place of new machines")
        return found

    def is_change(self, request: requests.PreparedRequest) -> bool:
        """Returns whether a request creates or deletes something; one for a token does not."""
        path = urlsplit(request.url or "").path
        return request.method not in ("GET", "HEAD") and not path.endswith(("/token", "/tokens"))

    @abstractmethod
    def connect(self, wire: Wire, secret: str) -> Any:
        """Creates libcloud's driver for one thread. May call the cloud."""

    def let_go(self, cloud: Any) -> None:
        """Releases a libcloud driver that is no longer used; makes no request."""

    @abstractmethod
    def create(self, cloud: Any, wire: Wire, spec: MachineSpec, settings: MachineSettings) -> Machine:
        """Orders one machine."""

    @abstractmethod
    def nodes(self, cloud: Any) -> Iterable[Any]:
        """Yields all machines from all pages, in one pass, as ``machine`` takes them."""

    def delete(self, cloud: Any, machine: Machine) -> None:
        """Deletes the machine; raises libcloud's error when it is gone."""
        cloud.destroy_node(self.node(cloud, machine))

    def sizes(self, cloud: Any) -> Iterable[NodeSize]:
        """Returns all of libcloud's sizes."""
        found: Iterable[NodeSize] = cloud.list_sizes()
        return found

    def shape(self, size: Any) -> Shape:
        """Converts a size to a shape."""
        raise UnsupportedError(f"{self.options.provider} does not show its machine types through libcloud")

    def price(self, size: Any) -> Price | None:
        """Returns its price per hour; None when it is unknown. Only called if ``has_prices``."""
        return price_of(size.id, size.price)

    # -- reading -------------------------------------------------------------------------------------------------------

    def tags(self, node: Any) -> Mapping[str, str]:
        """Returns our marks."""
        return {}

    def created(self, node: Any) -> object:
        """Returns the creation time, in any form."""
        return node.created_at or node.extra.get("created_at")

    def id_of(self, node: Any) -> str:
        """Returns the providerID of its node."""
        return self.provider_id.format(id=node.id)

    def machine(self, node: Any) -> Machine:
        """Converts one of libcloud's nodes to a machine."""
        return Machine(
            name=str(node.name or ""),
            machine_id=str(node.id),
            provider_id=self.id_of(node) or None,
            state=_STATES.get(node.state, MachineState.PENDING),  # in an unknown state it is not gone
            tags=self.tags(node),
            created_at=moment(self.created(node)),
            addresses=tuple(str(address) for address in (*node.private_ips, *node.public_ips) if address),
        )

    # -- libcloud's arguments, built without a request -----------------------------------------------------------------

    def node(self, cloud: Any, machine: Machine) -> Node:
        """Builds a node for libcloud."""
        return Node(machine.machine_id, machine.name, NodeState.UNKNOWN, [], [], cloud)

    def order(self, cloud: Any, spec: MachineSpec, settings: MachineSettings) -> dict[str, Any]:
        """Builds the arguments that most clouds need to create a machine."""
        return {
            "name": spec.name,
            "size": NodeSize(settings.shape, settings.shape, 0, 0, 0, 0, cloud),
            "image": NodeImage(settings.image, settings.image, cloud),
        }

    def location(self, cloud: Any, name: str) -> NodeLocation:
        """Builds a location for libcloud."""
        return NodeLocation(name, name, "", cloud)

    def size_by_name(self, cloud: Any, name: str) -> NodeSize:
        """Looks up a size by name with a request, for clouds that require its id."""
        for size in self.sizes(cloud):
            if name in (size.name, size.id):
                return size
        raise InvalidArgumentError(f"{self.options.provider} has no machine type {name!r}; check machine.shape")


def endpoint_of(url: str) -> tuple[bool, str, int, str]:
    """Splits a URL for libcloud: whether it is secure, the host, to which libcloud appends the port, port and path."""
    parts = urlsplit(url)
    host, is_secure = parts.hostname or "", parts.scheme == "https"
    return is_secure, f"[{host}]" if ":" in host else host, parts.port or (443 if is_secure else 80), parts.path


def counted(read: Callable[[int, Collection[str]], tuple[Sequence[Any], int]], key: str = "id") -> list[Any]:
    """Returns the entries of all pages, each once; raises ConflictError when some are missing.

    ``read`` gets the number of a page, from 1, and the ids that are known; it returns entries and the total. Libcloud
    takes an incomplete page for the last one; and after a deletion between two reads, an entry moves to a page that was
    read already. So all entries are counted, against the highest total of any page: the last page no longer counts the
    deleted entry, and its total would hide the one that moved.
    """
    budget = current_budget()
    found: dict[str, Any] = {}
    total = 0
    for page in range(1, MOST_PAGES + 1):
        entries, count = read(page, found)
        total = max(total, int(count))
        found |= {str(entry[key]): entry for entry in entries}
        budget.check_count(len(found))
        if len(found) >= total:
            return list(found.values())
        if not entries:
            raise ConflictError(f"of {total} entries the cloud has shown {len(found)}; a page was incomplete")
    raise UnsupportedError(f"the list has more than {MOST_PAGES} pages")


def pages(read: Callable[[str], tuple[Iterable[Any], str | None]]) -> Iterator[Any]:
    """Yields the entries of all pages; ``read`` gets a cursor, at first "", and returns entries and the next cursor."""
    cursor = ""
    for _ in range(MOST_PAGES):
        entries, following = read(cursor)
        yield from entries
        if not following:
            return
        cursor = following
    raise UnsupportedError(f"the list has more than {MOST_PAGES} pages")


def moment(value: object) -> datetime | None:
    """Converts any of libcloud's time values; UTC when it has no zone."""
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        return None
    if not isinstance(found, datetime):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def shape_of(
    name: str, cpu: object, ram: object, disk_gib: float = 0, labels: Mapping[str, str] | None = None
) -> Shape:
    """Builds a shape from libcloud's values: RAM is in MiB."""
    capacity = {"cpu": Quantity(str(cpu)), "memory": Quantity(f"{int(float(str(ram)))}Mi")}
    if disk_gib > 0:
        capacity["ephemeral-storage"] = Quantity(f"{int(disk_gib)}Gi")
    return Shape(name=name, capacity=capacity, labels={"node.kubernetes.io/instance-type": name, **(labels or {})})


def price_of(name: str, hourly: object) -> Price | None:
    """Returns a price in dollars. Libcloud uses None and 0 for unknown prices."""
    if not isinstance(hourly, int | float | str) or not Decimal(str(hourly)):
        return None
    return Price(shape=name, hourly=Decimal(str(hourly)), currency="USD")


def query_of(request: requests.PreparedRequest, key: str) -> Sequence[str]:
    """Returns the values of a parameter in the URL or in the body."""
    body = request.body if isinstance(request.body, str) else ""
    return parse_qs(f"{urlsplit(request.url or '').query}&{body}").get(key, [])


def adapter_of(options: LibcloudOptions) -> Adapter:
    """Returns the adapter of a cloud; raises InvalidArgumentError for options that it does not support."""
    module, _, name = provider_of(options.provider).partition(":")
    found: type[Adapter] = getattr(importlib.import_module(f"cloudgraft.drivers.libcloud.{module}"), name)
    return found(options)
