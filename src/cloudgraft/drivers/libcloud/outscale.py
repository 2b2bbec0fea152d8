"""Adapts Outscale's own API.

The create call cannot set tags, but the machine keeps the token of that call and shows it in every list. So the token
is the machine's name and identifies ours: one call creates a machine, and repeating it creates no second one. Libcloud
would send without a timeout and take an error for a machine. Here it only signs requests, and our own connection sends
them.
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
from urllib.parse import urlsplit

import requests
from libcloud.compute.base import Node
from libcloud.compute.types import NodeState

from cloudgraft.drivers.libcloud.adapter import Adapter, States, pages
from cloudgraft.drivers.libcloud.errors import ERRORS, refusal
from cloudgraft.drivers.libcloud.options import LibcloudOptions, MachineSettings
from cloudgraft.drivers.libcloud.wire import Wire
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Machine, MachineSpec, Ownership
from cloudgraft.sdk.errors import InvalidArgumentError, UnsupportedError

_outscale: Any = import_module("libcloud.compute.drivers.outscale")  # libcloud has only partial types

_VERSION: Final = "v1"
_PAGE: Final = 1000
_CHANGES: Final = ("CreateVms", "DeleteVms")
_GONE: Final = "terminated"  # lists show a deleted machine for an hour
_ROOT: Final = "/dev/sda1"  # the root disk, whatever the image
_STATES: Final = States(
    {
        "pending": NodeState.PENDING,
        "running": NodeState.RUNNING,
        "stopping": NodeState.STOPPED,
        "stopped": NodeState.STOPPED,
        "quarantine": NodeState.STOPPED,
        "shutting-down": NodeState.TERMINATED,
        _GONE: NodeState.TERMINATED,
    }
)


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
        if urlsplit(f"https://{_host(options.region)}/").hostname != _host(options.region):
            raise InvalidArgumentError(f"OUTSCALE: {options.region!r} is not a region; write it like eu-west-2")

    def connect(self, wire: Wire, secret: str) -> Any:
        cloud = _outscale.OutscaleNodeDriver(self.options.key, secret, region=self.options.region, version=_VERSION)
        cloud.NODE_STATE = _STATES
        connection = wire.connection(_host(self.options.region), 443)

        def call(action: str, data: str) -> requests.Response:
            headers = cloud._ex_generate_headers(action, data)  # noqa: SLF001 - there is no public way to sign
            connection.request("POST", f"/api/{_VERSION}/{action}", body=data, headers=headers)
            response: requests.Response = connection.getresponse()
            if not response.ok:
                raise refusal(response, action, is_change=action in _CHANGES, code=_code(response))
            return response

        cloud._call_api = call  # noqa: SLF001 - all requests of libcloud go through it
        return cloud

    def is_change(self, request: requests.PreparedRequest) -> bool:
        """Decides by the action: every request is a POST."""
        return urlsplit(request.url or "").path.endswith(_CHANGES)

    def create(self, cloud: Any, wire: Wire, spec: MachineSpec, settings: MachineSettings) -> Machine:
        """Passes no name: with one, libcloud would make two more calls."""
        root = {"DeviceName": _ROOT, "Bsu": {"VolumeSize": settings.disk_size, "DeleteOnVmDeletion": True}}
        node = cloud.create_node(
            image=self.image(cloud, settings.image),
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
        """Leaves out machines without a token, which cannot be ours, and deleted ones.

        It does not filter by the names of states: a machine in a new state would be missing.
        """

        def read(token: str) -> tuple[Iterable[Any], str]:
            asked = {"ResultsPerPage": _PAGE, **({"NextPageToken": token} if token else {})}
            page = cloud._call_api("ReadVms", json.dumps(asked)).json()  # noqa: SLF001 - libcloud reads one page only
            return page["Vms"], page.get("NextPageToken")

        for vm in pages(read):
            if vm.get("ClientToken") and vm["State"] != _GONE:
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


def _host(region: str) -> str:
    return f"api.{region}.outscale.com"


def _code(response: requests.Response) -> str:
    """Returns the number of an error if the table knows it, else its type."""
    first: Mapping[str, Any] = {}
    with contextlib.suppress(ValueError, LookupError, TypeError):
        first = dict(response.json()["Errors"][0])
    number = str(first.get("Code", ""))
    return number if ERRORS.find(code=number) else str(first.get("Type", ""))
