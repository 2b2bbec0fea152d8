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

import requests
from libcloud.compute.base import Node
from libcloud.compute.types import NodeState

from cloudgraft.drivers.libcloud.adapter import Adapter, States, counted, endpoint_of, query_of, shape_of
from cloudgraft.drivers.libcloud.errors import job_failure
from cloudgraft.drivers.libcloud.options import MachineSettings
from cloudgraft.drivers.libcloud.wire import Wire, wired
from cloudgraft.sdk.driver import DriverTraits, Machine, MachineSpec, MachineState, Ownership, Shape
from cloudgraft.sdk.errors import InvalidArgumentError

# Libcloud has only partial types.
_cloudstack: Any = import_module("libcloud.compute.drivers.cloudstack")
_ikoula: Any = import_module("libcloud.compute.drivers.ikoula")

_PAGE: Final = 500
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
    """Any CloudStack. ``endpoint`` is the whole URL of its API, such as https://cloud.example/client/api."""

    traits = DriverTraits(ownership=Ownership.NAME, user_data_limit=2 * 1024, create_timeout=timedelta(minutes=6))
    needs = frozenset({"key", "endpoint"})
    takes = frozenset({"zone", "networks", "securityGroups", "sshKeys", "diskSize"})
    names = r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?"
    is_routed = False
    create_limit: ClassVar[timedelta] = timedelta(minutes=5)
    provider_id: ClassVar[str] = "external-cloudstack://{id}"

    def connect(self, wire: Wire, secret: str) -> Any:
        is_secure, host, port, path = endpoint_of(self.options.endpoint)
        return wired(_cloudstack.CloudStackNodeDriver, wire, NODE_STATE_MAP=_STATES)(
            self.options.key, secret, is_secure, host, path or "/client/api", port
        )

    def is_change(self, request: requests.PreparedRequest) -> bool:
        """Decides by the command: every request is a GET."""
        return query_of(request, "command") in (["deployVirtualMachine"], ["destroyVirtualMachine"])

    def create(self, cloud: Any, wire: Wire, spec: MachineSpec, settings: MachineSettings) -> Machine:
        """Starts a job, and waits for its end."""
        if not settings.zone:
            raise InvalidArgumentError("set machine.zone to the id of the zone")
        order = self.order(cloud, spec, settings) | {"size": self.size_by_name(cloud, settings.shape)}
        networks = [_cloudstack.CloudStackNetwork("", "", "", one, "", cloud) for one in settings.networks]
        try:
            node = cloud.create_node(
                **order,
                location=self.location(cloud, settings.zone),
                networks=networks or None,
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
        """After a failed job: deletes the machine that it left behind, and raises the reason."""
        last = wire.last
        if type(error) is not Exception or last is None or last.is_change:
            return  # libcloud does not raise this for a failed job
        accepted = next(exchange for exchange in wire.exchanges if exchange.is_accepted)
        answer = accepted.response.json() if accepted.response is not None else {}
        broken = answer.get("deployvirtualmachineresponse", {}).get("id")
        if not broken:
            return
        self.delete(cloud, Machine(name=name, machine_id=str(broken), state=MachineState.FAILED))
        raise job_failure(f"create {name}", "", str(error)) from None

    def delete(self, cloud: Any, machine: Machine) -> None:
        cloud.destroy_node(self.node(cloud, machine), ex_expunge=True)  # else lists show it as destroyed for a day

    def nodes(self, cloud: Any) -> Iterable[Node]:
        """Reads all pages; libcloud reads the first, with three more calls for addresses and rules."""

        def read(page: int, _: object) -> tuple[list[Any], int]:
            params = {"page": page, "pagesize": _PAGE}
            answer = cloud._sync_request("listVirtualMachines", params=params)  # noqa: SLF001 - there is no public way
            return answer.get("virtualmachine", []), answer.get("count", 0)

        return [cloud._to_node(data=one) for one in counted(read)]  # noqa: SLF001 - there is no public reader

    def created(self, node: Any) -> object:
        return node.extra.get("created")

    def shape(self, size: Any) -> Shape:
        return shape_of(size.name, size.extra["cpu"], size.ram)  # a service offering


class Ikoula(Cloudstack):
    """One provider of CloudStack, at its own URL."""

    needs = frozenset({"key"})
    is_routed = True

    def connect(self, wire: Wire, secret: str) -> Any:
        return wired(_ikoula.IkoulaNodeDriver, wire, NODE_STATE_MAP=_STATES)(self.options.key, secret)
