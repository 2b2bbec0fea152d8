"""Adapts CloudStack, and Ikoula's.

Its create call takes no marks, so machines are identified by name. A create is a job: a machine whose job failed is
left behind as broken. The adapter deletes it, so that "no room" means that nothing exists. All requests use GET, even
with user data, of which little fits.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from importlib import import_module
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

import requests
from libcloud.compute.base import Node
from libcloud.compute.types import NodeState

from cloudgraft.drivers.libcloud.adapter import Adapter, States, host_of, query_of, shape_of
from cloudgraft.drivers.libcloud.errors import job_failure
from cloudgraft.drivers.libcloud.options import MachineSettings
from cloudgraft.drivers.libcloud.wire import Wire, wired
from cloudgraft.sdk.driver import DriverTraits, Machine, MachineSpec, MachineState, Ownership, Shape
from cloudgraft.sdk.errors import ConflictError, InvalidArgumentError, UnsupportedError

# Libcloud has only partial types.
_cloudstack: Any = import_module("libcloud.compute.drivers.cloudstack")
_ikoula: Any = import_module("libcloud.compute.drivers.ikoula")

_PAGE: Final = 500
_MOST_PAGES: Final = 1000
_STATES: Final = States(
    {
        "Running": NodeState.RUNNING,
        "Migrating": NodeState.RUNNING,
        "Starting": NodeState.PENDING,
        "Stopped": NodeState.STOPPED,
        "Stopping": NodeState.STOPPED,
        "Destroyed": NodeState.TERMINATED,
        "Expunging": NodeState.TERMINATED,
        "Error": NodeState.ERROR,
    }
)


class Cloudstack(Adapter):
    """Any CloudStack. ``endpoint`` is the whole address of its API, such as https://cloud.example/client/api."""

    traits = DriverTraits(ownership=Ownership.NAME, user_data_limit=2 * 1024, create_timeout=timedelta(minutes=6))
    needs = frozenset({"key", "endpoint"})
    takes = frozenset({"zone", "networks", "securityGroups", "sshKeys", "diskSize"})
    names = r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?"
    is_routed = False
    create_limit: ClassVar[timedelta] = timedelta(minutes=5)
    provider_id: ClassVar[str] = "external-cloudstack://{id}"

    def connect(self, wire: Wire, secret: str) -> Any:
        """Makes no request."""
        parts = urlsplit(self.options.endpoint)
        is_secure = parts.scheme == "https"
        port = parts.port or (443 if is_secure else 80)
        return wired(_cloudstack.CloudStackNodeDriver, wire, NODE_STATE_MAP=_STATES)(
            self.options.key, secret, is_secure, host_of(parts), parts.path or "/client/api", port
        )

    def is_change(self, request: requests.PreparedRequest) -> bool:
        """Everything is a GET here."""
        return query_of(request, "command") in (["deployVirtualMachine"], ["destroyVirtualMachine"])

    def create(self, cloud: Any, wire: Wire, spec: MachineSpec, settings: MachineSettings) -> Machine:
        """A job, which is waited for."""
        if not settings.zone:
            raise InvalidArgumentError("say in machine.zone the id of the zone")
        size = self.size_by_name(cloud, settings.shape)
        try:
            node = cloud.create_node(
                name=spec.name,
                size=size,
                image=self.image(cloud, settings.image),
                location=self.location(cloud, settings.zone),
                networks=[_cloudstack.CloudStackNetwork("", "", "", one, "", cloud) for one in settings.networks]
                or None,
                ex_keyname=settings.ssh_keys[0] if settings.ssh_keys else None,
                ex_userdata=spec.user_data or None,
                ex_security_groups=list(settings.security_groups) or None,
                ex_displayname=spec.name,
                ex_start_vm=True,
                ex_rootdisksize=settings.disk_size,
            )
        except Exception as error:
            self._clear(cloud, wire, spec.name, error)
            raise
        return self.machine(node)

    def _clear(self, cloud: Any, wire: Wire, name: str, error: Exception) -> None:
        """After a job that failed: deletes what it left behind, and raises what it failed with."""
        last = wire.last
        if type(error) is not Exception or last is None or last.is_change:
            return  # not what libcloud raises for a failed job
        accepted = next(exchange for exchange in wire.exchanges if exchange.is_accepted)
        answer = accepted.response.json() if accepted.response is not None else {}
        broken = answer.get("deployvirtualmachineresponse", {}).get("id")
        if not broken:
            return
        self.delete(cloud, Machine(name=name, machine_id=str(broken), state=MachineState.FAILED))
        raise job_failure(f"create {name}", "", str(error)) from None

    def delete(self, cloud: Any, machine: Machine) -> None:
        """For good: without it a machine stays as destroyed for a day."""
        cloud.destroy_node(self.node(cloud, machine), ex_expunge=True)

    def nodes(self, cloud: Any) -> Iterable[Node]:
        """Page by page, of which libcloud reads the first, with three more calls for addresses and rules."""
        seen: set[str] = set()
        total = 0
        for page in range(1, _MOST_PAGES + 1):
            params = {"page": page, "pagesize": _PAGE}
            answer = cloud._sync_request("listVirtualMachines", params=params)  # noqa: SLF001 - there is no public way
            found = answer.get("virtualmachine", [])
            seen |= {str(one["id"]) for one in found}
            for one in found:
                yield cloud._to_node(data=one)  # noqa: SLF001 - there is no public way
            total = max(total, int(answer.get("count", 0)))  # what goes meanwhile may push another to a page before
            if len(seen) >= total:
                return
            if not found:
                raise ConflictError(f"of {total} machines the cloud has shown {len(seen)}; a page was not whole")
        raise UnsupportedError(f"the list of {self.options.provider} has more than {_MOST_PAGES} pages")

    def created(self, node: Any) -> object:
        """Where libcloud puts it."""
        return node.extra.get("created")

    def shape(self, size: Any) -> Shape:
        """A service offering, by its name."""
        return shape_of(size.name, size.extra["cpu"], size.ram)


class Ikoula(Cloudstack):
    """One provider of CloudStack, at its own address."""

    needs = frozenset({"key"})
    is_routed = True

    def connect(self, wire: Wire, secret: str) -> Any:
        """Makes no request."""
        return wired(_ikoula.IkoulaNodeDriver, wire, NODE_STATE_MAP=_STATES)(self.options.key, secret)
