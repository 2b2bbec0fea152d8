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
from cloudgraft.drivers.libcloud.adapter import Adapter, States, price_of, shape_of
from cloudgraft.drivers.libcloud.options import MachineSettings
from cloudgraft.drivers.libcloud.wire import Wire, wired
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Machine, MachineSpec, Ownership, Price, Shape
from cloudgraft.sdk.errors import ConflictError
from cloudgraft.sdk.list_budget import current_budget

# Libcloud has only partial types.
_common: Any = import_module("libcloud.common.brightbox")
_brightbox: Any = import_module("libcloud.compute.drivers.brightbox")
_cloudscale: Any = import_module("libcloud.compute.drivers.cloudscale")
_digitalocean: Any = import_module("libcloud.compute.drivers.digitalocean")
_linode: Any = import_module("libcloud.compute.drivers.linode")
_vultr: Any = import_module("libcloud.compute.drivers.vultr")

_LIST_DELAY: Final = timedelta(seconds=5)
_VULTR_HOURS: Final = 672  # for which Vultr bills a month at most


class DigitalOcean(Adapter):
    """Droplets. Tags are words, and do not tell capitals from small letters."""

    traits = DriverTraits(list_delay=_LIST_DELAY, user_data_limit=64 * 1024)
    may = frozenset({"region"})
    takes = frozenset({"zone", "sshKeys"})
    has_prices = True
    provider_id: ClassVar[str] = "digitalocean://{id}"

    def connect(self, wire: Wire, secret: str) -> Any:
        """Makes no request. Libcloud's class can only be made by another one of its classes."""
        library = wired(_digitalocean.DigitalOcean_v2_NodeDriver, wire, __new__=lambda cls, *_: object.__new__(cls))
        return library(secret)

    def create(self, cloud: Any, wire: Wire, spec: MachineSpec, settings: MachineSettings) -> Machine:
        """One call."""
        more: dict[str, Any] = {"tags": words(spec.tags, 255)}
        if settings.ssh_keys:
            more["ssh_keys"] = [int(key) if key.isdigit() else key for key in settings.ssh_keys]
        node = cloud.create_node(
            name=spec.name,
            size=self.size(cloud, settings.shape),
            image=self.image(cloud, settings.image),
            location=self.location(cloud, self.place(settings)),
            ex_user_data=spec.user_data or None,
            ex_create_attr=more,
        )
        return self.machine(node)

    def nodes(self, cloud: Any) -> Iterable[Node]:
        """All pages, counted."""

        def read(page: int) -> tuple[list[Any], int]:
            answer = cloud.connection.request("/v2/droplets", params={"page": page}).object
            return answer["droplets"], int(answer["meta"]["total"])

        return map(cloud._to_node, _numbered(read))  # noqa: SLF001 - there is no public reader

    def tags(self, node: Any) -> Mapping[str, str]:
        """Back from words."""
        return from_words(node.extra.get("tags") or ())

    def shape(self, size: Any) -> Shape:
        """By its slug."""
        return shape_of(size.id, size.extra["vcpus"], size.ram, size.disk)

    def price(self, size: Any) -> Price | None:
        """By the hour, as it is told."""
        return price_of(size.id, size.price)


class Linode(Adapter):
    """Linodes. A tag has 50 characters at most."""

    traits = DriverTraits(idempotency=Idempotency.UNIQUE_NAME, list_delay=_LIST_DELAY, user_data_limit=16 * 1024)
    may = frozenset({"region"})
    takes = frozenset({"zone", "sshKeys"})
    has_prices = True
    names = r"[a-z](?!.*--)[a-z0-9-]{2,62}"
    provider_id: ClassVar[str] = "linode://{id}"
    _states: ClassVar[States] = States({**_linode.LinodeNodeDriverV4.LINODE_STATES, "deleting": NodeState.TERMINATED})

    def connect(self, wire: Wire, secret: str) -> Any:
        """Makes no request."""
        return wired(_linode.LinodeNodeDriverV4, wire, LINODE_STATES=self._states)(secret)

    def create(self, cloud: Any, wire: Wire, spec: MachineSpec, settings: MachineSettings) -> Machine:
        """One call. The password of root that Linode wants is drawn here, and known to nobody."""
        node = cloud.create_node(
            location=self.location(cloud, self.place(settings)),
            name=spec.name,
            size=self.size(cloud, settings.shape),
            image=self.image(cloud, settings.image),
            root_pass=secrets.token_urlsafe(48),
            ex_authorized_keys=list(settings.ssh_keys) or None,
            ex_tags=words(spec.tags, 50),
            ex_userdata=spec.user_data or None,
        )
        return self.machine(node)

    def nodes(self, cloud: Any) -> Iterable[Node]:
        """All pages, counted."""

        def read(page: int) -> tuple[list[Any], int]:
            answer = cloud.connection.request("/v4/linode/instances", params={"page": page}).object
            return answer["data"], int(answer["results"])

        return map(cloud._to_node, _numbered(read))  # noqa: SLF001 - there is no public reader

    def tags(self, node: Any) -> Mapping[str, str]:
        """Back from words."""
        return from_words(node.extra["tags"] or ())

    def shape(self, size: Any) -> Shape:
        """By its id. The disk is in MiB here."""
        return shape_of(size.id, size.extra["vcpus"], size.ram, size.disk / 1024)

    def price(self, size: Any) -> Price | None:
        """By the hour, of the default region."""
        return price_of(size.id, size.price)


class Cloudscale(Adapter):
    """cloudscale.ch."""

    traits = DriverTraits(list_delay=_LIST_DELAY)
    may = frozenset({"region"})
    takes = frozenset({"zone", "networks", "sshKeys", "diskSize"})
    provider_id: ClassVar[str] = "cloudscale://{id}"

    def connect(self, wire: Wire, secret: str) -> Any:
        """Makes no request."""
        return wired(_cloudscale.CloudscaleNodeDriver, wire)(secret)

    def create(self, cloud: Any, wire: Wire, spec: MachineSpec, settings: MachineSettings) -> Machine:
        """One call. Libcloud ignores a location: the zone is an attribute."""
        more: dict[str, Any] = {"tags": pairs(spec.tags, GOOGLE)}
        if spec.user_data:
            more["user_data"] = spec.user_data
        if zone := settings.zone or self.options.region:
            more["zone"] = zone
        if settings.networks:
            more["interfaces"] = [{"network": network} for network in settings.networks]
        if settings.ssh_keys:
            more["ssh_keys"] = list(settings.ssh_keys)
        if settings.disk_size:
            more["volume_size_gb"] = settings.disk_size
        size, image = self.size(cloud, settings.shape), self.image(cloud, settings.image)
        return self.machine(cloud.create_node(name=spec.name, size=size, image=image, ex_create_attr=more))

    def nodes(self, cloud: Any) -> Iterable[Node]:
        """One page."""
        return map(cloud._to_node, _listed(cloud, "/v1/servers"))  # noqa: SLF001 - there is no public reader

    def tags(self, node: Any) -> Mapping[str, str]:
        """As they were."""
        return from_pairs(node.extra.get("tags") or {}, GOOGLE)

    def shape(self, size: Any) -> Shape:
        """By its slug. The disk that libcloud tells is made up."""
        return shape_of(size.id, size.extra["vcpu_count"], size.ram)


class Vultr(Adapter):
    """Vultr, whose one word for a tag cannot hold our marks."""

    traits = DriverTraits(ownership=Ownership.NAME, list_delay=_LIST_DELAY)
    may = frozenset({"region"})
    takes = frozenset({"zone", "networks", "securityGroups", "sshKeys"})
    has_prices = True
    provider_id: ClassVar[str] = "vultr://{id}"

    def connect(self, wire: Wire, secret: str) -> Any:
        """Makes no request."""
        return wired(_vultr.VultrNodeDriverV2, wire)(secret)

    def create(self, cloud: Any, wire: Wire, spec: MachineSpec, settings: MachineSettings) -> Machine:
        """One call."""
        node = cloud.create_node(
            name=spec.name,
            size=self.size(cloud, settings.shape),
            location=self.location(cloud, self.place(settings)),
            image=self.image(cloud, settings.image),
            ex_hostname=spec.name,
            ex_userdata=spec.user_data or None,
            ex_ssh_key_ids=list(settings.ssh_keys) or None,
            ex_private_network_ids=list(settings.networks) or None,
            ex_firewall_group_id=settings.security_groups[0] if settings.security_groups else None,
        )
        return self.machine(node)

    def nodes(self, cloud: Any) -> Iterable[Node]:
        """All pages, without bare metal, for which libcloud would ask once more. To libcloud an answer without
        instances is a page like any other.
        """
        params: dict[str, Any] = {}
        while True:
            page = cloud.connection.request("/v2/instances", params=dict(params)).object
            yield from map(cloud._to_node, page["instances"])  # noqa: SLF001 - there is no public reader
            params["cursor"] = page["meta"]["links"]["next"]
            if not params["cursor"]:
                return

    def node(self, cloud: Any, machine: Machine) -> Node:
        """Libcloud looks at the size, to tell bare metal."""
        node: Any = super().node(cloud, machine)
        node.size = ""
        return cast("Node", node)

    def sizes(self, cloud: Any) -> Iterable[Any]:
        """Without bare metal."""
        found: Iterable[Any] = cloud.list_sizes(ex_list_bare_metals=False)
        return found

    def shape(self, size: Any) -> Shape:
        """By its id."""
        return shape_of(size.id, size.extra["vcpu_count"], size.ram, size.disk)

    def price(self, size: Any) -> Price | None:
        """By the hour of a month as Vultr bills it: rather too much than too little."""
        if not size.price:
            return None
        return price_of(size.id, str((Decimal(str(size.price)) / _VULTR_HOURS).quantize(Decimal("0.00001"))))


class Brightbox(Adapter):
    """Brightbox, whose login is broken in libcloud: it reads an answer from what is none."""

    traits = DriverTraits(ownership=Ownership.NAME, list_delay=_LIST_DELAY, user_data_limit=16 * 1024)
    needs = frozenset({"key"})
    may = frozenset({"region"})
    takes = frozenset({"zone", "securityGroups"})
    provider_id: ClassVar[str] = "brightbox://{id}"

    def connect(self, wire: Wire, secret: str) -> Any:
        """Makes no request yet. A token that is not taken any more is had anew with a new driver."""
        states = States({**_brightbox.BrightboxNodeDriver.NODE_STATE_MAP, "deleting": NodeState.TERMINATED})
        library = type("Brightbox", (_brightbox.BrightboxNodeDriver,), {"connectionCls": _BrightboxConnection})
        return wired(library, wire, NODE_STATE_MAP=states)(self.options.key, secret)

    def create(self, cloud: Any, wire: Wire, spec: MachineSpec, settings: MachineSettings) -> Machine:
        """One call."""
        zone = settings.zone or self.options.region
        node = cloud.create_node(
            name=spec.name,
            size=self.size_by_name(cloud, settings.shape),
            image=self.image(cloud, settings.image),
            location=self.location(cloud, zone) if zone else None,
            ex_userdata=spec.user_data or None,
            ex_servergroup=list(settings.security_groups) or None,
        )
        return self.machine(node)

    def nodes(self, cloud: Any) -> Iterable[Node]:
        """One page."""
        return map(cloud._to_node, _listed(cloud, f"/{cloud.api_version}/servers"))  # noqa: SLF001 - see above


def _numbered(read: Callable[[int], tuple[list[Any], int]]) -> list[Any]:
    """Everything on numbered pages. Libcloud takes a page that is not whole for the last one; and where something goes
    between two pages, another slips from one to the other. So all are counted; by the most that any page has told, for
    the last one counts no more what went, and would hide what slipped.
    """
    budget = current_budget()
    found: dict[str, Any] = {}
    page = total = 0
    while True:
        page += 1
        entries, told = read(page)
        total = max(total, told)
        found |= {str(entry["id"]): entry for entry in entries}
        budget.check_count(len(found))
        if len(found) >= total:
            return list(found.values())
        if not entries:
            raise ConflictError(f"of {total} machines the cloud has shown {len(found)}; a page was not whole")


def _listed(cloud: Any, path: str) -> list[Any]:
    """A page that is a list. Libcloud takes an object for one, and an empty one for no machines."""
    found = cloud.connection.request(path).object
    if not isinstance(found, list):
        raise TypeError("the answer is not a list")
    return found


class _BrightboxConnection(_common.BrightboxConnection):  # type: ignore[misc]  # has only partial types
    def _fetch_oauth_token(self) -> str:
        """Libcloud takes what ``request`` returns for the answer, and that is nothing."""
        login = base64.b64encode(f"{self.user_id}:{self.key}".encode()).decode()
        body = json.dumps({"client_id": self.user_id, "grant_type": "none"})
        headers = {"Host": self.host, "Authorization": f"Basic {login}", "Content-Type": "application/json"}
        self.connect()
        self.connection.request(method="POST", url="/token", body=body, headers=headers)
        answer = _common.BrightboxResponse(response=self.connection.getresponse(), connection=self)
        return str(answer.object["access_token"])
