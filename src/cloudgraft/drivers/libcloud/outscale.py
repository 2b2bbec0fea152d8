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

from cloudgraft.drivers.common.error_table import retry_after
from cloudgraft.drivers.libcloud.adapter import Adapter, States
from cloudgraft.drivers.libcloud.errors import ERRORS, said
from cloudgraft.drivers.libcloud.options import LibcloudOptions, MachineSettings
from cloudgraft.drivers.libcloud.wire import Wire
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Machine, MachineSpec, Ownership
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError, UnsupportedError

_outscale: Any = import_module("libcloud.compute.drivers.outscale")  # libcloud has only partial types

_VERSION: Final = "v1"
_PAGE: Final = 1000
_MOST_PAGES: Final = 1000
_CHANGES: Final = ("CreateVms", "DeleteVms")
_GONE: Final = "terminated"  # in which a machine is shown for an hour
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
        user_data_limit=500 * 1024 // 4 * 3,  # what it takes is 500 KiB in base64
    )
    needs: ClassVar[frozenset[str]] = frozenset({"key", "region"})
    takes = frozenset({"zone", "networks", "securityGroups", "sshKeys", "diskSize"})

    def __init__(self, options: LibcloudOptions) -> None:
        """Refuses a region that is none: it is a part of the host's name."""
        super().__init__(options)
        if urlsplit(f"https://{_host(options.region)}/").hostname != _host(options.region):
            raise InvalidArgumentError(f"OUTSCALE: region {options.region!r} is none; write it like eu-west-2")

    def connect(self, wire: Wire, secret: str) -> Any:
        """Makes no request."""
        cloud = _outscale.OutscaleNodeDriver(self.options.key, secret, region=self.options.region, version=_VERSION)
        cloud.NODE_STATE = _STATES
        connection = wire.connection(_host(self.options.region), 443)

        def call(action: str, data: str) -> requests.Response:
            headers = cloud._ex_generate_headers(action, data)  # noqa: SLF001 - there is no public way to sign
            connection.request("POST", f"/api/{_VERSION}/{action}", body=data, headers=headers)
            response: requests.Response = connection.getresponse()
            if not response.ok:
                raise _refusal(action, response)
            return response

        cloud._call_api = call  # noqa: SLF001 - all that libcloud does here goes through it
        return cloud

    def is_change(self, request: requests.PreparedRequest) -> bool:
        """By the action: everything is a POST here."""
        return urlsplit(request.url or "").path.endswith(_CHANGES)

    def create(self, cloud: Any, wire: Wire, spec: MachineSpec, settings: MachineSettings) -> Machine:
        """One call. Without a name: for that libcloud would make two more."""
        if len(settings.networks) > 1 or len(settings.ssh_keys) > 1:
            raise InvalidArgumentError("OUTSCALE takes one of networks and one of sshKeys")
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
        """All pages; without what has no token, which cannot be ours, and without what is gone. States are not asked
        for by name: a machine in a new one would be missing.
        """
        asked: dict[str, Any] = {"ResultsPerPage": _PAGE}
        for _ in range(_MOST_PAGES):
            page = cloud._call_api("ReadVms", json.dumps(asked)).json()  # noqa: SLF001 - libcloud reads one page only
            for vm in page["Vms"]:
                if vm.get("ClientToken") and vm["State"] != _GONE:
                    yield cloud._to_node({"Tags": (), **vm})  # noqa: SLF001 - there is no public reader
            if not page.get("NextPageToken"):
                return
            asked["NextPageToken"] = page["NextPageToken"]
        raise UnsupportedError(f"the list of OUTSCALE has more than {_MOST_PAGES} pages")

    def delete(self, cloud: Any, machine: Machine) -> None:
        """With its disks. Libcloud sends one id where Outscale wants a list."""
        cloud._call_api("DeleteVms", json.dumps({"VmIds": [machine.machine_id]}))  # noqa: SLF001 - see above

    def machine(self, node: Any) -> Machine:
        """By the token, and not by a tag that anybody may set."""
        return dataclasses.replace(super().machine(node), name=str(node.extra.get("ClientToken", "")))

    def created(self, node: Any) -> object:
        """As Outscale tells it."""
        return node.extra.get("CreationDate")

    def id_of(self, node: Any) -> str:
        """As Outscale's cloud controller writes it."""
        zone = (node.extra.get("Placement") or {}).get("SubregionName")
        return f"aws:///{zone}/{node.id}" if zone else ""

    def sizes(self, cloud: Any) -> Iterable[Any]:
        """Not told: any number of cores and any amount of RAM is a type."""
        raise UnsupportedError("OUTSCALE has no list of its machine types tinav*: write template.capacity")


def _host(region: str) -> str:
    return f"api.{region}.outscale.com"


def _refusal(action: str, response: requests.Response) -> CloudgraftError:
    """Returns the exception for an error: by its number if that is known, else by its type, else by the status."""
    _, text = said(response.content)
    first: Mapping[str, Any] = {}
    with contextlib.suppress(ValueError, LookupError, TypeError):
        first = dict(response.json()["Errors"][0])
    number, kind = str(first.get("Code", "")), str(first.get("Type", ""))
    return ERRORS.error(
        f"{action}: {text[:600] or response.reason} (HTTP {response.status_code})",
        said=text,
        status=response.status_code,
        code=number if ERRORS.find(code=number) else kind,
        is_change=action in _CHANGES,
        retry_after=retry_after(response.headers),
    )
