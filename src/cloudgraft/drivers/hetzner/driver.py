"""Implements the driver ``hetzner``: servers of one project of Hetzner Cloud.

One request creates the server with its addresses, labels and attachments, so a create cannot stop halfway. Names are
unique in a project, so a second create of a name is refused (``uniqueness_error``). The addresses of a server are
deleted with it; networks, firewalls and placement groups belong to the project, and stay.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from cloudgraft.drivers.common.label_text import HETZNER
from cloudgraft.drivers.common.secrets import error_without
from cloudgraft.drivers.hetzner.api import Api, Json
from cloudgraft.drivers.hetzner.options import MARK, USER_DATA_LIMIT, HetznerOptions, MachineSettings
from cloudgraft.drivers.hetzner.servers import Names, listed, machine_of, prices_of, shapes_of
from cloudgraft.sdk.blocking import BlockingDriver
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Machine, MachineSpec, Price, Shape
from cloudgraft.sdk.errors import (
    CloudgraftError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionError,
    UnavailableError,
)
from cloudgraft.validation import read_settings

T = TypeVar("T")
_OURS: Final = f"{MARK}cluster-id"  # the label of every server of cloudgraft
_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?")


class HetznerDriver(BlockingDriver):
    """A project of Hetzner Cloud."""

    Options = HetznerOptions
    MachineSettings = MachineSettings

    def __init__(self, options: HetznerOptions) -> None:
        """Makes no call and reads no file yet."""
        self.traits = DriverTraits(
            idempotency=Idempotency.UNIQUE_NAME,
            list_delay=options.list_delay,
            provider_id_by=options.providerIDBy,
            user_data_limit=USER_DATA_LIMIT,
        )
        self._options = options
        self._api = Api(options)
        self._names = Names(self._api)
        # Seconds after which no server is ordered any more: the time of two requests.
        self._preparation = 2 * (options.connect_timeout + options.timeout).total_seconds()

    def start(self) -> None:
        """Checks that there is a token."""
        self._api.start()

    def close(self) -> None:
        """Closes the connections."""
        self._api.close()

    def create(self, spec: MachineSpec) -> Machine:
        """Orders a server; Hetzner starts it."""
        what = f"create of {spec.name}"
        until = time.monotonic() + self._preparation
        try:
            order = self._order(spec)
            if time.monotonic() > until:  # the engine may soon give up, and a request must not be sent after that
                raise UnavailableError(f"{what}: the API takes too long for lookups. Nothing was done")
            answer = self._api.post("/servers", what, order)
        except CloudgraftError as error:
            if isinstance(error, NotFoundError | InvalidArgumentError):
                self._names.forget()
            # Something that the order names is missing, and not the server.
            found = InvalidArgumentError(error.message) if isinstance(error, NotFoundError) else error
            raise error_without(found, spec.user_data) from None
        try:
            return machine_of(answer["server"])
        except (KeyError, InternalError) as error:
            raise DeadlineError(f"{what}: no server in the response: {error}; the outcome is not known") from None

    def delete(self, machine: Machine) -> None:
        """Deletes the server. Ids are never reused, so it is the right one."""
        if not machine.machine_id:
            raise PreconditionError(f"the machine {machine.name!r} has no id: it cannot be deleted")
        if not machine.machine_id.isdecimal():
            return  # no server has such an id
        try:
            self._api.delete(f"/servers/{machine.machine_id}", f"delete of {machine.name or machine.machine_id}")
        except NotFoundError:
            return

    def mark(self, machine: Machine, tags: Mapping[str, str | None]) -> None:
        """Sets or removes our marks in the server's labels. A server without marks is not listed."""
        path, what = f"/servers/{machine.machine_id}", f"mark of {machine.name or machine.machine_id}"
        labels = _understood("labels", lambda: dict(self._api.get(path, what)["server"]["labels"]))
        for key, value in tags.items():
            labels.pop(key, None)
            if value is not None:
                labels[key] = HETZNER.encode(value, f"the mark {key}")
        self._api.put(path, what, {"labels": labels})  # replaces all labels

    def list(self) -> Sequence[Machine]:
        """Returns every server with our marks, of any cluster."""
        until = time.monotonic() + self._options.list_timeout.total_seconds()
        asked = {"label_selector": _OURS, "sort": "id:desc"}
        return [*listed(self._api, "/servers", "list", until, _listed_machine, **asked).values()]

    def shapes(self) -> Sequence[Shape]:
        """Returns the server types."""
        return _understood("server types", lambda: shapes_of(self._api, self._options.location))

    def prices(self) -> Sequence[Price]:
        """Returns their net prices in the cloud's location."""
        return _understood("prices", lambda: prices_of(self._api, self._options.location))

    def _order(self, spec: MachineSpec) -> dict[str, object]:
        if not _NAME.fullmatch(spec.name):
            raise InvalidArgumentError(f"{spec.name!r} is no host name of at most 63 letters, digits and dashes")
        size = len(spec.user_data.encode("utf-8", "replace"))
        if size > USER_DATA_LIMIT:
            raise InvalidArgumentError(f"the user data has {size} bytes; Hetzner takes {USER_DATA_LIMIT} at most")
        wanted = read_settings(MachineSettings, spec.settings)
        marks = {key: HETZNER.encode(value, f"the mark {key}") for key, value in spec.tags.items()}
        order: dict[str, object] = {
            "name": spec.name,
            "server_type": wanted.shape,
            "image": self._names.image(wanted.image, wanted.shape),
            "location": wanted.location or self._options.location,
            "labels": {**wanted.labels, **marks},
            "start_after_create": True,
            "public_net": {"enable_ipv4": wanted.public_ipv4, "enable_ipv6": wanted.public_ipv6},
        }
        return order | _attachments(wanted, self._names) | ({"user_data": spec.user_data} if spec.user_data else {})


def _attachments(wanted: MachineSettings, names: Names) -> dict[str, object]:
    found: dict[str, object] = {
        "networks": [names.number("/networks", one, "machine.networks") for one in wanted.networks],
        "firewalls": [{"firewall": names.number("/firewalls", one, "machine.firewalls")} for one in wanted.firewalls],
        "ssh_keys": list(wanted.ssh_keys),
    }
    if wanted.placement_group is not None:
        found["placement_group"] = names.number("/placement_groups", wanted.placement_group, "machine.placementGroup")
    return {key: value for key, value in found.items() if value}


def _listed_machine(server: Json) -> Machine:
    try:
        return machine_of(server)
    except InternalError as error:
        raise UnavailableError(f"list: {error.message}") from None


def _understood(what: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise InternalError(f"{what}: the API's response is invalid: {type(error).__name__} {error}") from None
