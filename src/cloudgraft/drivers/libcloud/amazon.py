"""Adapts EC2, the clouds with its API (Eucalyptus and two of Outscale's), and Outscale's own API.

Libcloud sends everything in the URL of a GET, even user data, where any proxy may log it. To EC2 it is sent as the body
of a POST instead. The other clouds use the old signature, which is for GET only: a proxy may refuse a request line over
8 KiB, so their user data is limited to a size that surely fits. Lists are read page by page, which libcloud does not
do, and without its second call for elastic addresses.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from importlib import import_module
from typing import Any, ClassVar, Final
from urllib.parse import urlencode, urlsplit

import requests
from libcloud.compute.base import Node
from libcloud.compute.types import NodeState

from cloudgraft.drivers.libcloud.adapter import Adapter, States, endpoint_of, pages, query_of, shape_of
from cloudgraft.drivers.libcloud.errors import ERRORS, refusal
from cloudgraft.drivers.libcloud.options import LibcloudOptions, MachineSettings
from cloudgraft.drivers.libcloud.wire import Wire, wired
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Machine, MachineSpec, Ownership, Shape
from cloudgraft.sdk.errors import InvalidArgumentError, UnsupportedError

# Libcloud has only partial types.
_ec2: Any = import_module("libcloud.compute.drivers.ec2")
_outscale: Any = import_module("libcloud.compute.drivers.outscale")
_xml: Any = import_module("libcloud.utils.xml")

_MARK: Final = "cloudgraft-cluster-id"
_ALIVE: Final = ("pending", "running", "shutting-down", "stopping", "stopped")
_PAGE: Final = 1000
_STATES: Final = States(
    {
        "pending": NodeState.PENDING,
        "running": NodeState.RUNNING,
        "shutting-down": NodeState.TERMINATED,
        "terminated": NodeState.TERMINATED,
        "stopping": NodeState.STOPPED,
        "stopped": NodeState.STOPPED,
        "quarantine": NodeState.STOPPED,  # of Outscale
    }
)


class Ec2(Adapter):
    """Amazon EC2."""

    traits = DriverTraits(idempotency=Idempotency.TOKEN, list_delay=timedelta(seconds=10), user_data_limit=16 * 1024)
    needs: ClassVar[frozenset[str]] = frozenset({"key", "region"})
    takes = frozenset({"zone", "networks", "securityGroups", "sshKeys"})  # the device of a disk depends on the image
    takes_one = frozenset({"networks", "sshKeys"})
    is_routed = False
    library: ClassVar[Any] = _ec2.EC2NodeDriver

    def connect(self, wire: Wire, secret: str) -> Any:
        where = {"region": self.options.region, "signature_version": "4"}
        return self._new_driver(wire, secret, where, connectionCls=_Posting)

    def _new_driver(self, wire: Wire, secret: str, where: Mapping[str, Any], **parts: Any) -> Any:
        if self.options.endpoint:
            is_secure, host, port, _ = endpoint_of(self.options.endpoint)
            where = {**where, "host": host, "port": port, "secure": is_secure}
        try:
            library = type(self.library.__name__, (self.library,), parts)
            return wired(library, wire, NODE_STATE_MAP=_STATES)(self.options.key, secret, **where)
        except ValueError as error:
            raise InvalidArgumentError(f"{self.options.provider}: {error}") from None

    def is_change(self, request: requests.PreparedRequest) -> bool:
        """Decides by the action: the others change things with GET, and EC2 lists with POST."""
        return query_of(request, "Action") in (["RunInstances"], ["TerminateInstances"])

    def create(self, cloud: Any, wire: Wire, spec: MachineSpec, settings: MachineSettings) -> Machine:
        node = cloud.create_node(
            **self.order(cloud, spec, settings),
            ex_userdata=spec.user_data or None,
            ex_metadata=dict(spec.tags),
            ex_clienttoken=spec.name,
            **self._where(cloud, settings),
        )
        return self.machine(node)

    def _where(self, cloud: Any, settings: MachineSettings) -> dict[str, Any]:
        given: dict[str, Any] = {}
        if settings.zone:
            zone = _ec2.ExEC2AvailabilityZone(settings.zone, None, cloud.region_name)
            given["location"] = _ec2.EC2NodeLocation(settings.zone, settings.zone, "", cloud, zone)
        if settings.networks:
            given["ex_subnet"] = _ec2.EC2NetworkSubnet(settings.networks[0], "", "")
        if settings.security_groups:
            key = "ex_security_group_ids" if settings.networks else "ex_security_groups"
            given[key] = list(settings.security_groups)
        if settings.ssh_keys:
            given["ex_keyname"] = settings.ssh_keys[0]
        return given

    def nodes(self, cloud: Any) -> Iterable[Node]:
        """Yields the existing instances with our marks."""
        states = {f"Filter.2.Value.{number}": state for number, state in enumerate(_ALIVE, 1)}
        params: dict[str, Any] = {"Action": "DescribeInstances", "MaxResults": _PAGE, **states}
        params |= {"Filter.1.Name": "tag-key", "Filter.1.Value.1": _MARK, "Filter.2.Name": "instance-state-name"}

        def read(token: str) -> tuple[Iterable[Node], str]:
            page = cloud.connection.request(cloud.path, params=params | ({"NextToken": token} if token else {})).object
            if not _xml.findall(element=page, xpath="reservationSet", namespace=_ec2.NAMESPACE):
                raise ValueError("the response is not a list of instances")
            reservations = _xml.findall(element=page, xpath="reservationSet/item", namespace=_ec2.NAMESPACE)
            to_nodes = cloud._to_nodes  # noqa: SLF001 - there is no public reader
            found = (node for reservation in reservations for node in to_nodes(reservation, "instancesSet/item"))
            return found, _xml.findtext(element=page, xpath="nextToken", namespace=_ec2.NAMESPACE)

        return pages(read)

    def tags(self, node: Any) -> Mapping[str, str]:
        return {key: value or "" for key, value in node.extra["tags"].items() if key != "Name"}

    def id_of(self, node: Any) -> str:
        """Returns the providerID that AWS's cloud controller writes."""
        zone = node.extra.get("availability")
        return f"aws:///{zone}/{node.id}" if zone else ""

    def sizes(self, cloud: Any) -> Iterable[Any]:
        """Reads libcloud's own table without its prices: reading those takes seconds, and a sixth of them is 0."""
        # The tables are large, and only used here.
        from libcloud.compute.constants.ec2_instance_types import INSTANCE_TYPES  # noqa: PLC0415
        from libcloud.compute.constants.ec2_region_details_complete import REGION_DETAILS  # noqa: PLC0415

        return [INSTANCE_TYPES[name] for name in REGION_DETAILS[cloud.region_name]["instance_types"]]

    def shape(self, size: Any) -> Shape:
        region = {"topology.kubernetes.io/region": self.options.region}
        return shape_of(size["id"], size["extra"]["vcpu"], size["ram"], labels=region)


class _Posting(_ec2.EC2Connection):  # type: ignore[misc]  # has only partial types
    """Sends parameters as the body of a POST, in place of a GET; the signature covers the body."""

    def request(self, action: str, params: Mapping[str, Any] | None = None, **_: Any) -> Any:
        body = urlencode({**(params or {}), "Version": self.version})
        headers = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
        return super().request(action, params={}, data=body, headers=headers, method="POST")


class Eucalyptus(Ec2):
    """A private cloud."""

    traits = dataclasses.replace(Ec2.traits, user_data_limit=5 * 1024)
    needs = frozenset({"key", "endpoint"})
    library = _ec2.EucNodeDriver

    def connect(self, wire: Wire, secret: str) -> Any:
        return self._new_driver(wire, secret, {"path": urlsplit(self.options.endpoint).path or None})

    def sizes(self, cloud: Any) -> Iterable[Any]:
        return Adapter.sizes(self, cloud)

    def shape(self, size: Any) -> Shape:
        return shape_of(size.id, size.extra["cpu"], size.ram, size.disk)


class OutscaleSas(Ec2):
    """Outscale's EC2-compatible API. Libcloud lacks the CPUs of its types, and uses Amazon's prices for them."""

    traits = Eucalyptus.traits
    library = _ec2.OutscaleSASNodeDriver

    def connect(self, wire: Wire, secret: str) -> Any:
        return self._new_driver(wire, secret, {"region": self.options.region})

    def sizes(self, cloud: Any) -> Iterable[Any]:
        raise UnsupportedError(f"{self.options.provider} does not show the CPUs of its machine types through libcloud")


class OutscaleInc(OutscaleSas):
    """The same API of the other company."""

    library = _ec2.OutscaleINCNodeDriver


# -- Outscale's own API ------------------------------------------------------------------------------------------------
# The create call cannot set tags, but the machine keeps the token of that call and shows it in every list. So the token
# is the machine's name and identifies ours: one call creates a machine, and repeating it creates no second one.
# Libcloud would send without a timeout and take an error for a machine. Here it only signs requests, and our own
# connection sends them.

# The create call cannot set tags, but the machine keeps the token of that call and shows it in every list. So the
# token is the machine's name and identifies ours: one call creates a machine, and repeating it creates no second one.
# Libcloud would send without a timeout and take an error for a machine. Here it only signs requests, and our own
# connection sends them.


_OUTSCALE_VERSION: Final = "v1"
_OUTSCALE_CHANGES: Final = ("CreateVms", "DeleteVms")
_OUTSCALE_ROOT: Final = "/dev/sda1"  # the root disk, whatever the image


class Outscale(Adapter):
    """One account in one region."""

    traits = DriverTraits(
        ownership=Ownership.NAME,
        idempotency=Idempotency.TOKEN,
        list_delay=timedelta(seconds=10),
        user_data_limit=500 * 1024 // 4 * 3,  # 500 KiB in base64
    )
    needs: ClassVar[frozenset[str]] = frozenset({"key", "region"})
    takes = frozenset({"zone", "networks", "securityGroups", "sshKeys", "diskSize"})
    takes_one = frozenset({"networks", "sshKeys"})

    def __init__(self, options: LibcloudOptions) -> None:
        """Refuses an invalid region: it is a part of the host's name."""
        super().__init__(options)
        if urlsplit(f"https://{_outscale_host(options.region)}/").hostname != _outscale_host(options.region):
            raise InvalidArgumentError(f"OUTSCALE: {options.region!r} is not a region; write it like eu-west-2")

    def connect(self, wire: Wire, secret: str) -> Any:
        cloud = _outscale.OutscaleNodeDriver(
            self.options.key, secret, region=self.options.region, version=_OUTSCALE_VERSION
        )
        cloud.NODE_STATE = _STATES
        connection = wire.connection(_outscale_host(self.options.region), 443)

        def call(action: str, data: str) -> requests.Response:
            headers = cloud._ex_generate_headers(action, data)  # noqa: SLF001 - there is no public way to sign
            connection.request("POST", f"/api/{_OUTSCALE_VERSION}/{action}", body=data, headers=headers)
            response: requests.Response = connection.getresponse()
            if not response.ok:
                raise refusal(response, action, is_change=action in _OUTSCALE_CHANGES, code=_outscale_code(response))
            return response

        cloud._call_api = call  # noqa: SLF001 - all requests of libcloud go through it
        return cloud

    def is_change(self, request: requests.PreparedRequest) -> bool:
        """Decides by the action: every request is a POST."""
        return urlsplit(request.url or "").path.endswith(_OUTSCALE_CHANGES)

    def create(self, cloud: Any, wire: Wire, spec: MachineSpec, settings: MachineSettings) -> Machine:
        """Passes no name: with one, libcloud would make two more calls."""
        root = {"DeviceName": _OUTSCALE_ROOT, "Bsu": {"VolumeSize": settings.disk_size, "DeleteOnVmDeletion": True}}
        node = cloud.create_node(
            image=self.order(cloud, spec, settings)["image"],
            ex_block_device_mapping=[root] if settings.disk_size else None,
            ex_bsu_optimized=False,
            ex_client_token=spec.name,
            ex_keypair_name=settings.ssh_keys[0] if settings.ssh_keys else None,
            ex_max_vms_count=1,
            ex_min_vms_count=1,
            ex_placement={"SubregionName": settings.zone} if settings.zone else None,
            ex_security_group_ids=list(settings.security_groups) or None,
            ex_subnet_id=settings.networks[0] if settings.networks else None,
            ex_user_data=base64.b64encode(spec.user_data.encode()).decode() if spec.user_data else None,
            ex_vm_type=settings.shape,
        )
        return dataclasses.replace(self.machine(node), name=spec.name)

    def nodes(self, cloud: Any) -> Iterable[Node]:
        """Leaves out machines without a token, which cannot be ours, and deleted ones, which are listed for an hour.

        It does not filter by the names of states: a machine in a new state would be missing.
        """

        def read(token: str) -> tuple[Iterable[Any], str]:
            asked = {"ResultsPerPage": _PAGE, **({"NextPageToken": token} if token else {})}
            page = cloud._call_api("ReadVms", json.dumps(asked)).json()  # noqa: SLF001 - libcloud reads one page only
            return page["Vms"], page.get("NextPageToken")

        for vm in pages(read):
            if vm.get("ClientToken") and vm["State"] != "terminated":
                yield cloud._to_node({"Tags": (), **vm})  # noqa: SLF001 - there is no public reader

    def delete(self, cloud: Any, machine: Machine) -> None:
        """Deletes it with its disks. Libcloud sends one id where Outscale requires a list."""
        cloud._call_api("DeleteVms", json.dumps({"VmIds": [machine.machine_id]}))  # noqa: SLF001 - see connect

    def machine(self, node: Any) -> Machine:
        """Takes the name from the token, and not from a tag, which anybody may set."""
        return dataclasses.replace(super().machine(node), name=str(node.extra.get("ClientToken", "")))

    def created(self, node: Any) -> object:
        return node.extra.get("CreationDate")

    def id_of(self, node: Any) -> str:
        """Returns the providerID that Outscale's cloud controller writes."""
        zone = (node.extra.get("Placement") or {}).get("SubregionName")
        return f"aws:///{zone}/{node.id}" if zone else ""

    def sizes(self, cloud: Any) -> Iterable[Any]:
        # Any number of cores and any amount of RAM is a type.
        raise UnsupportedError("OUTSCALE has no list of its machine types tinav*: set template.capacity")


def _outscale_host(region: str) -> str:
    return f"api.{region}.outscale.com"


def _outscale_code(response: requests.Response) -> str:
    """Returns the number of an error if the table knows it, else its type."""
    first: Mapping[str, Any] = {}
    with contextlib.suppress(ValueError, LookupError, TypeError):
        first = dict(response.json()["Errors"][0])
    number = str(first.get("Code", ""))
    return number if ERRORS.find(code=number) else str(first.get("Type", ""))
