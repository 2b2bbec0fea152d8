"""Adapts clouds with JSON and a token: DigitalOcean, Linode, cloudscale.ch, Vultr, and Brightbox with its login.

In each of them a create is one call, and so is a delete. None has an idempotency token; only Linode refuses a second
machine of one name.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from decimal import Decimal
from importlib import import_module
from typing import Any, ClassVar, Final, cast

from libcloud.compute.base import Node
from libcloud.compute.types import NodeState

from cloudgraft.drivers.common.label_text import GOOGLE, from_pairs, from_words, pairs, words
from cloudgraft.drivers.libcloud.adapter import Adapter, States, counted, pages, price_of, shape_of
from cloudgraft.drivers.libcloud.options import MachineSettings
from cloudgraft.drivers.libcloud.wire import Wire, wired
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Machine, MachineSpec, Ownership, Price, Shape

# Libcloud has only partial types.
_common: Any = import_module("libcloud.common.brightbox")
_brightbox: Any = import_module("libcloud.compute.drivers.brightbox")
_cloudscale: Any = import_module("libcloud.compute.drivers.cloudscale")
_digitalocean: Any = import_module("libcloud.compute.drivers.digitalocean")
_linode: Any = import_module("libcloud.compute.drivers.linode")
_vultr: Any = import_module("libcloud.compute.drivers.vultr")

_LIST_DELAY: Final = timedelta(seconds=5)
_VULTR_HOURS: Final = 672  # that Vultr bills per month at most


class DigitalOcean(Adapter):
    """Droplets. Tags are words, and ignore case."""

    traits = DriverTraits(list_delay=_LIST_DELAY, user_data_limit=64 * 1024)
    may = frozenset({"region"})
    takes = frozenset({"zone", "sshKeys"})
    has_prices = True
    provider_id: ClassVar[str] = "digitalocean://{id}"

    def connect(self, wire: Wire, secret: str) -> Any:
        # Libcloud's class refuses to be created directly.
        library = wired(_digitalocean.DigitalOcean_v2_NodeDriver, wire, __new__=lambda cls, *_: object.__new__(cls))
        return library(secret)

    def create(self, cloud: Any, wire: Wire, spec: MachineSpec, settings: MachineSettings) -> Machine:
        more: dict[str, Any] = {"tags": words(spec.tags, 255)}
        if settings.ssh_keys:
            more["ssh_keys"] = [int(key) if key.isdigit() else key for key in settings.ssh_keys]
        node = cloud.create_node(
            **self.order(cloud, spec, settings),
            location=self.location(cloud, self.place(settings)),
            ex_user_data=spec.user_data or None,
            ex_create_attr=more,
        )
        return self.machine(node)

    def nodes(self, cloud: Any) -> Iterable[Node]:
        return _numbered(cloud, "/v2/droplets", lambda answer: (answer["droplets"], answer["meta"]["total"]))

    def tags(self, node: Any) -> Mapping[str, str]:
        return from_words(node.extra.get("tags") or ())

    def shape(self, size: Any) -> Shape:
        return shape_of(size.id, size.extra["vcpus"], size.ram, size.disk)


class Linode(Adapter):
    """Linodes. A tag has 50 characters at most; prices are those of the default region."""

    traits = DriverTraits(idempotency=Idempotency.UNIQUE_NAME, list_delay=_LIST_DELAY, user_data_limit=16 * 1024)
    may = frozenset({"region"})
    takes = frozenset({"zone", "sshKeys"})
    has_prices = True
    names = r"[a-z](?!.*--)[a-z0-9-]{2,62}"
    provider_id: ClassVar[str] = "linode://{id}"
    _states: ClassVar[States] = States({**_linode.LinodeNodeDriverV4.LINODE_STATES, "deleting": NodeState.TERMINATED})

    def connect(self, wire: Wire, secret: str) -> Any:
        return wired(_linode.LinodeNodeDriverV4, wire, LINODE_STATES=self._states)(secret)

    def create(self, cloud: Any, wire: Wire, spec: MachineSpec, settings: MachineSettings) -> Machine:
        node = cloud.create_node(
            **self.order(cloud, spec, settings),
            location=self.location(cloud, self.place(settings)),
            root_pass=secrets.token_urlsafe(48),  # Linode requires one; nobody knows it
            ex_authorized_keys=list(settings.ssh_keys) or None,
            ex_tags=words(spec.tags, 50),
            ex_userdata=spec.user_data or None,
        )
        return self.machine(node)

    def nodes(self, cloud: Any) -> Iterable[Node]:
        return _numbered(cloud, "/v4/linode/instances", lambda answer: (answer["data"], answer["results"]))

    def tags(self, node: Any) -> Mapping[str, str]:
        return from_words(node.extra["tags"] or ())

    def shape(self, size: Any) -> Shape:
        return shape_of(size.id, size.extra["vcpus"], size.ram, size.disk / 1024)  # from MiB


class Cloudscale(Adapter):
    """cloudscale.ch."""

    traits = DriverTraits(list_delay=_LIST_DELAY)
    may = frozenset({"region"})
    takes = frozenset({"zone", "networks", "sshKeys", "diskSize"})
    provider_id: ClassVar[str] = "cloudscale://{id}"

    def connect(self, wire: Wire, secret: str) -> Any:
        return wired(_cloudscale.CloudscaleNodeDriver, wire)(secret)

    def create(self, cloud: Any, wire: Wire, spec: MachineSpec, settings: MachineSettings) -> Machine:
        optional = {
            "user_data": spec.user_data,
            "zone": settings.zone or self.options.region,  # libcloud ignores a location
            "interfaces": [{"network": network} for network in settings.networks],
            "ssh_keys": list(settings.ssh_keys),
            "volume_size_gb": settings.disk_size,
        }
        more = {"tags": pairs(spec.tags, GOOGLE), **{key: value for key, value in optional.items() if value}}
        return self.machine(cloud.create_node(**self.order(cloud, spec, settings), ex_create_attr=more))

    def nodes(self, cloud: Any) -> Iterable[Node]:
        return _listed(cloud, "/v1/servers")

    def tags(self, node: Any) -> Mapping[str, str]:
        return from_pairs(node.extra.get("tags") or {}, GOOGLE)

    def shape(self, size: Any) -> Shape:
        return shape_of(size.id, size.extra["vcpu_count"], size.ram)  # libcloud invents the disk


class Vultr(Adapter):
    """Vultr. Its only tag is one word, which cannot hold our marks."""

    traits = DriverTraits(ownership=Ownership.NAME, list_delay=_LIST_DELAY)
    may = frozenset({"region"})
    takes = frozenset({"zone", "networks", "securityGroups", "sshKeys"})
    has_prices = True
    provider_id: ClassVar[str] = "vultr://{id}"

    def connect(self, wire: Wire, secret: str) -> Any:
        return wired(_vultr.VultrNodeDriverV2, wire)(secret)

    def create(self, cloud: Any, wire: Wire, spec: MachineSpec, settings: MachineSettings) -> Machine:
        node = cloud.create_node(
            **self.order(cloud, spec, settings),
            location=self.location(cloud, self.place(settings)),
            ex_hostname=spec.name,
            ex_userdata=spec.user_data or None,
            ex_ssh_key_ids=list(settings.ssh_keys) or None,
            ex_private_network_ids=list(settings.networks) or None,
            ex_firewall_group_id=settings.security_groups[0] if settings.security_groups else None,
        )
        return self.machine(node)

    def nodes(self, cloud: Any) -> Iterable[Node]:
        """Leaves out bare metal, which libcloud would list too; libcloud accepts a response without instances."""

        def read(cursor: str) -> tuple[Iterable[Any], str]:
            page = cloud.connection.request("/v2/instances", params={"cursor": cursor} if cursor else {}).object
            return page["instances"], page["meta"]["links"]["next"]

        return map(cloud._to_node, pages(read))  # noqa: SLF001 - there is no public reader

    def node(self, cloud: Any, machine: Machine) -> Node:
        node: Any = super().node(cloud, machine)
        node.size = ""  # by which libcloud recognizes bare metal
        return cast("Node", node)

    def sizes(self, cloud: Any) -> Iterable[Any]:
        found: Iterable[Any] = cloud.list_sizes(ex_list_bare_metals=False)
        return found

    def shape(self, size: Any) -> Shape:
        return shape_of(size.id, size.extra["vcpu_count"], size.ram, size.disk)

    def price(self, size: Any) -> Price | None:
        """Divides the price of a month by the hours that Vultr bills: rather too much than too little."""
        if not size.price:
            return None
        return price_of(size.id, str((Decimal(str(size.price)) / _VULTR_HOURS).quantize(Decimal("0.00001"))))


class Brightbox(Adapter):
    """Brightbox. The connection replaces libcloud's login, which is broken."""

    traits = DriverTraits(ownership=Ownership.NAME, list_delay=_LIST_DELAY, user_data_limit=16 * 1024)
    needs = frozenset({"key"})
    may = frozenset({"region"})
    takes = frozenset({"zone", "securityGroups"})
    provider_id: ClassVar[str] = "brightbox://{id}"

    def connect(self, wire: Wire, secret: str) -> Any:
        """Makes no request yet. After a refused token, the next libcloud driver gets a new one."""
        states = States({**_brightbox.BrightboxNodeDriver.NODE_STATE_MAP, "deleting": NodeState.TERMINATED})
        library = type("Brightbox", (_brightbox.BrightboxNodeDriver,), {"connectionCls": _BrightboxConnection})
        return wired(library, wire, NODE_STATE_MAP=states)(self.options.key, secret)

    def create(self, cloud: Any, wire: Wire, spec: MachineSpec, settings: MachineSettings) -> Machine:
        zone = settings.zone or self.options.region
        order = self.order(cloud, spec, settings) | {"size": self.size_by_name(cloud, settings.shape)}
        node = cloud.create_node(
            **order,
            location=self.location(cloud, zone) if zone else None,
            ex_userdata=spec.user_data or None,
            ex_servergroup=list(settings.security_groups) or None,
        )
        return self.machine(node)

    def nodes(self, cloud: Any) -> Iterable[Node]:
        return _listed(cloud, f"/{cloud.api_version}/servers")


def _numbered(cloud: Any, path: str, parse: Callable[[Any], tuple[list[Any], int]]) -> Iterable[Node]:
    """Reads numbered pages; ``parse`` returns the entries of a page, and the total."""
    found = counted(lambda page, _: parse(cloud.connection.request(path, params={"page": page}).object))
    return map(cloud._to_node, found)  # noqa: SLF001 - there is no public reader


def _listed(cloud: Any, path: str) -> Iterable[Node]:
    """Reads a list without pages. Libcloud also accepts an object, and takes an empty one for no machines."""
    found = cloud.connection.request(path).object
    if not isinstance(found, list):
        raise TypeError("the response is not a list")
    return map(cloud._to_node, found)  # noqa: SLF001 - there is no public reader


class _BrightboxConnection(_common.BrightboxConnection):  # type: ignore[misc]  # has only partial types
    def _fetch_oauth_token(self) -> str:
        """Reads the response itself: libcloud reads the return value of ``request``, which is None."""
        login = base64.b64encode(f"{self.user_id}:{self.key}".encode()).decode()
        body = json.dumps({"client_id": self.user_id, "grant_type": "none"})
        headers = {"Host": self.host, "Authorization": f"Basic {login}", "Content-Type": "application/json"}
        self.connect()
        self.connection.request(method="POST", url="/token", body=body, headers=headers)
        answer = _common.BrightboxResponse(response=self.connection.getresponse(), connection=self)
        return str(answer.object["access_token"])
