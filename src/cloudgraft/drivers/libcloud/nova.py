"""Adapts OpenStack, and Rackspace's.

Nova's names are not unique and it takes no token: only a list shows the outcome of a call without a response. Libcloud
reads a new server again after creating it; when only that fails, the machine is still known. The adapter parses lists
itself: libcloud requires keys that Nova leaves out when a cell is down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from importlib import import_module
from types import SimpleNamespace
from typing import Any, ClassVar, Final

from cloudgraft.drivers.libcloud.adapter import MOST_PAGES, Adapter, moment, shape_of, states
from cloudgraft.drivers.libcloud.errors import ERRORS
from cloudgraft.drivers.libcloud.options import MachineSettings
from cloudgraft.drivers.libcloud.wire import Wire, wired
from cloudgraft.sdk.driver import DriverTraits, Machine, MachineSpec, MachineState, Shape
from cloudgraft.sdk.errors import ConflictError, InvalidArgumentError, UnsupportedError

# Libcloud has only partial types.
_openstack: Any = import_module("libcloud.compute.drivers.openstack")
_rackspace: Any = import_module("libcloud.compute.drivers.rackspace")

_MICROVERSION: Final = "2.69"  # since which a list shows servers in a cell that is down
_LONGEST: Final = 1000  # characters of a fault that are repeated
_STATES: Final = states(
    RUNNING="ACTIVE REBOOT HARD_REBOOT MIGRATING RESIZE VERIFY_RESIZE PASSWORD",
    STOPPED="RESCUE SHUTOFF PAUSED SUSPENDED SHELVED SHELVED_OFFLOADED",
    DELETING="DELETED SOFT_DELETED",
    FAILED="ERROR",
)


class Openstack(Adapter):
    """Any OpenStack. ``key`` is a user's name with a project, else an application credential's id."""

    # For a while, lists show a server that was deleted during its creation as before.
    traits = DriverTraits(list_delay=timedelta(seconds=5), user_data_limit=49_149)
    needs = frozenset({"key", "endpoint"})
    may = frozenset({"project", "domain", "region"})
    takes = frozenset({"zone", "networks", "securityGroups", "sshKeys"})
    takes_one = frozenset({"sshKeys"})
    is_routed = False
    provider_id: ClassVar[str] = "openstack:///{id}"

    def connect(self, wire: Wire, secret: str) -> Any:
        """Makes no request yet: libcloud logs in with the first call, and again when the token has expired."""
        options = self.options
        login: dict[str, Any] = {"ex_force_auth_version": "3.x_appcred"}
        if options.project:
            login = {"ex_force_auth_version": "3.x_password", "ex_tenant_name": options.project}
            login["ex_domain_name"] = options.domain or "Default"
        # Libcloud looks up a service by its name, which an operator may choose, and in an invented region.
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
        """Creates it in one call. Libcloud then reads the server, and that call may fail."""
        order: dict[str, Any] = {
            **self.order(cloud, spec, settings),
            "size": self.size_by_name(cloud, settings.shape),
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
        """Yields servers as Nova shows them: too little for libcloud if a cell is down, which breaks its whole list."""
        return _pages(cloud, "/servers/detail", "servers")

    def machine(self, node: Any) -> Machine:
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
        """Reads all pages, where libcloud reads one."""
        keys = ("id", "name", "vcpus", "ram", "disk")
        found = _pages(cloud, "/flavors/detail", "flavors")
        return [SimpleNamespace(**{key: flavor[key] for key in keys}) for flavor in found]

    def shape(self, size: Any) -> Shape:
        region = {"topology.kubernetes.io/region": self.options.region} if self.options.region else {}
        return shape_of(size.name, size.vcpus, size.ram, size.disk, region)


class Rackspace(Openstack):
    """Rackspace, with its own login and regions."""

    needs = frozenset({"key", "region"})
    may = frozenset()
    takes = frozenset({"networks", "sshKeys"})
    is_routed = True

    def connect(self, wire: Wire, secret: str) -> Any:
        try:
            return wired(_rackspace.RackspaceNodeDriver, wire)(self.options.key, secret, region=self.options.region)
        except ValueError as error:
            raise InvalidArgumentError(f"RACKSPACE: {error}") from None


def _pages(cloud: Any, path: str, key: str) -> Iterator[Any]:
    """Yields all entries, each once, until a page is empty or has no new entry.

    Nova builds a page of servers from two tables. If a server moves from the first to the second meanwhile, the page is
    too short, and names no next page, at which libcloud stops; or the server appears twice. A response without the key
    is an error; libcloud takes it for an empty page.
    """
    seen: set[str] = set()
    params: dict[str, str] = {}
    for _ in range(MOST_PAGES):
        answer = cloud.connection.request(path, params=dict(params)).object
        page = answer[key]
        fresh = [one for one in page if one["id"] not in seen]
        yield from fresh
        seen.update(one["id"] for one in fresh)
        is_full = any(link.get("rel") == "next" for link in answer.get(f"{key}_links", ()))
        if not page or not (fresh or is_full):
            return
        if not fresh:
            raise ConflictError(f"{path}: servers moved while they were listed")
        params["marker"] = str(page[-1]["id"])
    raise UnsupportedError(f"{path} has more than {MOST_PAGES} pages")


def _made(wire: Wire) -> str | None:
    """Returns the id of the server that the cloud has accepted in this call."""
    for exchange in wire.exchanges:
        if exchange.is_accepted and exchange.response is not None:
            server = exchange.response.json().get("server", {})
            return str(server["id"]) if server.get("id") else None
    return None


def _login_by_names(connection: Any) -> Any:
    """Returns libcloud's login, with the project's domain by name: libcloud sends it as an id."""
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
