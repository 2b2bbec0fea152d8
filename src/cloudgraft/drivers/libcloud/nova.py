"""Adapts OpenStack, and Rackspace's.

Nova's names are not unique and it takes no token: only a list shows the outcome of a call without a response. Libcloud
reads a new server again after creating it; when only that fails, the machine is still known. The adapter parses lists
itself: libcloud requires keys that Nova leaves out when a cell is down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from importlib import import_module
from types import SimpleNamespace
from typing import Any, ClassVar, Final

from cloudgraft.drivers.libcloud.adapter import Adapter, moment, shape_of
from cloudgraft.drivers.libcloud.errors import ERRORS
from cloudgraft.drivers.libcloud.options import MachineSettings
from cloudgraft.drivers.libcloud.wire import Wire, wired
from cloudgraft.sdk.driver import DriverTraits, Machine, MachineSpec, MachineState, Shape
from cloudgraft.sdk.errors import ConflictError, InvalidArgumentError, UnsupportedError

# Libcloud has only partial types.
_openstack: Any = import_module("libcloud.compute.drivers.openstack")
_rackspace: Any = import_module("libcloud.compute.drivers.rackspace")

_MICROVERSION: Final = "2.69"  # from which on a list tells of servers in a cell that is down
_MOST_PAGES: Final = 10_000
_LONGEST: Final = 1000  # characters of a fault that are repeated
_STATES: Final[Mapping[str, MachineState]] = {
    "ACTIVE": MachineState.RUNNING,
    "REBOOT": MachineState.RUNNING,
    "HARD_REBOOT": MachineState.RUNNING,
    "MIGRATING": MachineState.RUNNING,
    "RESIZE": MachineState.RUNNING,
    "VERIFY_RESIZE": MachineState.RUNNING,
    "PASSWORD": MachineState.RUNNING,
    "RESCUE": MachineState.STOPPED,
    "SHUTOFF": MachineState.STOPPED,
    "PAUSED": MachineState.STOPPED,
    "SUSPENDED": MachineState.STOPPED,
    "SHELVED": MachineState.STOPPED,
    "SHELVED_OFFLOADED": MachineState.STOPPED,
    "DELETED": MachineState.DELETING,
    "SOFT_DELETED": MachineState.DELETING,
    "ERROR": MachineState.FAILED,
}


class Openstack(Adapter):
    """Any OpenStack. ``key`` is a user's name with a project, else an application credential's id."""

    # A server that is deleted while it is being made is shown as before for a while.
    traits = DriverTraits(list_delay=timedelta(seconds=5), user_data_limit=49_149)
    needs = frozenset({"key", "endpoint"})
    may = frozenset({"project", "domain", "region"})
    takes = frozenset({"zone", "networks", "securityGroups", "sshKeys"})
    is_routed = False
    provider_id: ClassVar[str] = "openstack:///{id}"

    def connect(self, wire: Wire, secret: str) -> Any:
        """Makes no request yet: libcloud logs in with the first call, and again when the token has expired."""
        options = self.options
        login: dict[str, Any] = {"ex_force_auth_version": "3.x_appcred"}
        if options.project:
            domain = options.domain or "Default"
            login = {
                "ex_force_auth_version": "3.x_password",
                "ex_tenant_name": options.project,
                "ex_domain_name": domain,
            }
        # Libcloud looks for a service by its name, which is free, and in a region that is made up.
        anywhere = {"service_name": None, "service_region": None, "get_auth_class": _login_by_names}
        compute = type("Compute", (_openstack.OpenStack_2_NodeDriver.connectionCls,), anywhere)
        library = type("Openstack", (_openstack.OpenStack_2_NodeDriver,), {"connectionCls": compute})
        return wired(library, wire)(
            options.key,
            secret,
            ex_force_auth_url=options.endpoint.rstrip("/").removesuffix("/v3"),
            ex_force_service_region=options.region or None,
            ex_force_microversion=_MICROVERSION,
            **login,
        )

    def create(self, cloud: Any, wire: Wire, spec: MachineSpec, settings: MachineSettings) -> Machine:
        """One call that counts, and one that only looks."""
        if len(settings.ssh_keys) > 1:
            raise InvalidArgumentError(f"{self.options.provider} takes one of sshKeys")
        order: dict[str, Any] = {
            "name": spec.name,
            "size": self.size_by_name(cloud, settings.shape),
            "image": self.image(cloud, settings.image),
            "ex_metadata": dict(spec.tags),
            "ex_userdata": spec.user_data or None,
            "ex_keyname": settings.ssh_keys[0] if settings.ssh_keys else None,
            "ex_availability_zone": settings.zone or None,
            "networks": [_openstack.OpenStackNetwork(one, one, "", cloud) for one in settings.networks],
            "ex_security_groups": [
                _openstack.OpenStackSecurityGroup(one, "", one, "", cloud) for one in settings.security_groups
            ],
        }
        try:
            cloud.create_node(**order)
        except Exception:
            if _made(wire) is None:
                raise
        made = _made(wire)
        return Machine(
            name=spec.name,
            machine_id=str(made),
            provider_id=self.provider_id.format(id=made),
            state=MachineState.PENDING,
            tags=dict(spec.tags),
        )

    def nodes(self, cloud: Any) -> Iterable[Any]:
        """All pages, of Rackspace's too, of which libcloud reads one. As Nova shows them: of a server in a cell that is
        down it tells little, and that little is too little for libcloud, for which the whole list is then broken.
        """
        return _pages(cloud, "/servers/detail", "servers")

    def machine(self, node: Any) -> Machine:
        """With the reason, if it failed."""
        state = _STATES.get(str(node.get("status")), MachineState.PENDING)
        if node.get("OS-EXT-STS:task_state") == "deleting":
            state = MachineState.DELETING
        fault = str((node.get("fault") or {}).get("message", ""))[:_LONGEST]
        row = ERRORS.find(text=fault) if fault else None
        addresses = [one["addr"] for network in (node.get("addresses") or {}).values() for one in network]
        return Machine(
            name=str(node.get("name") or ""),
            machine_id=str(node["id"]),
            provider_id=self.provider_id.format(id=node["id"]),
            state=state,
            tags=dict(node.get("metadata") or {}),
            created_at=moment(node.get("created")),
            reason=fault,
            addresses=tuple(addresses),
            failure=row.error.slug if row is not None else "",
        )

    def sizes(self, cloud: Any) -> Iterable[Any]:
        """All pages, where libcloud reads one."""
        found = _pages(cloud, "/flavors/detail", "flavors")
        return [SimpleNamespace(id=one["id"], name=one["name"], **_figures(one)) for one in found]

    def shape(self, size: Any) -> Shape:
        """By its name."""
        region = {"topology.kubernetes.io/region": self.options.region} if self.options.region else {}
        return shape_of(size.name, size.vcpus, size.ram, size.disk, region)


class Rackspace(Openstack):
    """Rackspace's own logins and regions."""

    needs = frozenset({"key", "region"})
    may = frozenset()
    takes = frozenset({"networks", "sshKeys"})
    is_routed = True

    def connect(self, wire: Wire, secret: str) -> Any:
        """Makes no request yet."""
        try:
            return wired(_rackspace.RackspaceNodeDriver, wire)(self.options.key, secret, region=self.options.region)
        except ValueError as error:
            raise InvalidArgumentError(f"RACKSPACE: {error}") from None


def _figures(flavor: Mapping[str, Any]) -> dict[str, Any]:
    return {key: flavor[key] for key in ("vcpus", "ram", "disk")}


def _pages(cloud: Any, path: str, key: str) -> Iterator[Any]:
    """Everything, each once, until a page is empty or has nothing new.

    Nova makes a page of servers from two tables. One that moves from the first to the second meanwhile makes the page
    too short, and Nova then names no next one, for which libcloud looks; or it is shown again behind itself. And an
    answer without the key is an error, and not an empty page, for which libcloud takes it.
    """
    seen: set[str] = set()
    params: dict[str, str] = {}
    for _ in range(_MOST_PAGES):
        answer = cloud.connection.request(path, params=dict(params)).object
        page = answer[key]
        fresh = [one for one in page if one["id"] not in seen]
        yield from fresh
        seen.update(one["id"] for one in fresh)
        is_full = any(link.get("rel") == "next" for link in answer.get(f"{key}_links", ()))
        if not page or not (fresh or is_full):
            return
        if not fresh:
            raise ConflictError(f"{path}: servers move while they are listed")
        params["marker"] = str(page[-1]["id"])
    raise UnsupportedError(f"there is no end of the pages of {path}")


def _made(wire: Wire) -> str | None:
    """The id of the server that the cloud has accepted in this call."""
    for exchange in wire.exchanges:
        if exchange.is_accepted and exchange.response is not None:
            server = exchange.response.json().get("server", {})
            return str(server["id"]) if server.get("id") else None
    return None


def _login_by_names(connection: Any) -> Any:
    """Libcloud's login; but it would name the project's domain by its id, which nobody knows by heart."""
    login = _openstack.OpenStack_2_NodeDriver.connectionCls.get_auth_class(connection)
    made = type(login)._get_auth_data  # noqa: SLF001 - there is no public way

    def named() -> Any:
        data = made(login)
        project = data["auth"].get("scope", {}).get("project")
        if project is not None:
            project["domain"] = {"name": login.domain_name}
        return data

    login._get_auth_data = named  # noqa: SLF001 - there is no public way
    return login
