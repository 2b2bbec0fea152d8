"""Adapts Azure: virtual machines in one resource group.

Libcloud creates a network card first, which is left behind when the machine fails, and cannot send user data. Here one
request through its connection creates everything: the virtual machine with its marks and user data, and a card and a
disk that Azure deletes with the machine. The name is unique in the group, and an existing machine is never changed.
Azure accepts first and checks for room later: a list then shows what failed.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from importlib import import_module
from typing import Any, ClassVar, Final
from urllib.parse import parse_qsl, urlsplit

from cloudgraft.drivers.libcloud.adapter import Adapter, moment, pages, shape_of, states
from cloudgraft.drivers.libcloud.errors import ERRORS
from cloudgraft.drivers.libcloud.options import LibcloudOptions, MachineSettings
from cloudgraft.drivers.libcloud.wire import Wire, wired
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Machine, MachineSpec, MachineState, Shape
from cloudgraft.sdk.errors import AlreadyExistsError, InvalidArgumentError
from cloudgraft.sdk.list_budget import bounded
from cloudgraft.sdk.secrecy import hide, unhide

# Libcloud has only partial types.
_azure: Any = import_module("libcloud.compute.drivers.azure_arm")
_common: Any = import_module("libcloud.common.azure_arm")
_exceptions: Any = import_module("libcloud.common.exceptions")

_VERSION: Final = "2024-07-01"  # of the API: the first ones with network cards in the request ignore If-None-Match
_NETWORK_VERSION: Final = "2020-11-01"  # the one that Azure documents for network cards in the request
_MARK: Final = "cloudgraft-cluster-id"
_USER: Final = "azureuser"  # as libcloud names it
_LONGEST_TAG: Final = 256  # characters
_LONGEST: Final = 1000  # characters of a reason
_NO_CONTENT, _FORBIDDEN, _PRECONDITION_FAILED = 204, 403, 412
_FAILED: Final = frozenset({"failed", "canceled"})
_STATES: Final = states(PENDING="creating", RUNNING="succeeded updating migrating", DELETING="deleting")


class Azure(Adapter):
    """One resource group. ``domain`` is the tenant, ``project`` the subscription and the group, ``key`` the client."""

    traits = DriverTraits(
        idempotency=Idempotency.UNIQUE_NAME, list_delay=timedelta(seconds=30), user_data_limit=64 * 1024 - 1
    )
    needs = frozenset({"key", "domain", "project", "region"})
    takes = frozenset({"zone", "networks", "securityGroups", "sshKeys", "diskSize"})
    takes_one = frozenset({"securityGroups"})
    names: ClassVar[str] = r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?"

    def __init__(self, options: LibcloudOptions) -> None:
        """Refuses a project that is not a subscription and a group."""
        super().__init__(options)
        if not re.fullmatch(r"[0-9A-Fa-f-]{36}/[-\w.()]{1,90}", options.project):
            raise InvalidArgumentError("AZURE_ARM: project must be a subscription's id and a resource group: id/group")
        self._subscription, _, group = options.project.partition("/")
        self._group = f"/subscriptions/{self._subscription}/resourceGroups/{group}"
        self._place = options.region.lower().replace(" ", "")

    def connect(self, wire: Wire, secret: str) -> Any:
        """Gets a token at once; libcloud renews it before it expires."""
        library = type("Azure", (_azure.AzureNodeDriver,), {"connectionCls": _Connection})
        options = self.options
        return wired(library, wire)(options.domain, self._subscription, options.key, secret, region=self._place)

    def let_go(self, cloud: Any) -> None:
        """Unhides its token: if Azure refuses all of ours, every list would add one more to hide."""
        unhide(cloud.connection.access_token)

    def checked(self, spec: MachineSpec) -> MachineSettings:
        """Also requires settings that Azure needs."""
        settings = super().checked(spec)
        _image(settings.image)
        if not settings.networks:
            raise InvalidArgumentError("AZURE_ARM: set machine.networks to a subnet: network/subnet, or its whole id")
        if not settings.ssh_keys:
            raise InvalidArgumentError("AZURE_ARM: set machine.sshKeys to a public key: Azure requires one")
        if any(len(value) > _LONGEST_TAG for value in spec.tags.values()):
            raise InvalidArgumentError(f"AZURE_ARM takes tags of {_LONGEST_TAG} characters at most")
        return settings

    def create(self, cloud: Any, wire: Wire, spec: MachineSpec, settings: MachineSettings) -> Machine:
        """Creates it in one call, which Azure refuses when the name exists."""
        try:
            answer = self._ask(cloud, self._path(spec.name), "PUT", self._order(spec, settings), {"If-None-Match": "*"})
        except _exceptions.BaseHTTPError as error:
            if error.code == _PRECONDITION_FAILED:
                raise AlreadyExistsError(f"create {spec.name}: a machine with this name exists") from None
            raise
        return self.machine(answer)

    def delete(self, cloud: Any, machine: Machine) -> None:
        """Deletes it with its network card and disk; does not wait for the end."""
        self._ask(cloud, self._path(machine.machine_id), "DELETE")

    def _order(self, spec: MachineSpec, settings: MachineSettings) -> dict[str, Any]:
        system: dict[str, Any] = {"computerName": spec.name, "adminUsername": _USER}
        path = f"/home/{_USER}/.ssh/authorized_keys"
        keys = [{"path": path, "keyData": key} for key in settings.ssh_keys]
        system["linuxConfiguration"] = {"disablePasswordAuthentication": True, "ssh": {"publicKeys": keys}}
        if spec.user_data:
            system["customData"] = base64.b64encode(spec.user_data.encode()).decode()
        disk: dict[str, Any] = {
            "name": f"{spec.name}-os",
            "createOption": "FromImage",
            "deleteOption": "Delete",
            "caching": "ReadWrite",
            "managedDisk": {"storageAccountType": "StandardSSD_LRS"},
        }
        if settings.disk_size:
            disk["diskSizeGB"] = settings.disk_size
        cards = [self._card(spec.name, number, subnet, settings) for number, subnet in enumerate(settings.networks)]
        return {
            "location": self._place,
            "tags": dict(spec.tags),
            **({"zones": [settings.zone]} if settings.zone else {}),
            "properties": {
                "hardwareProfile": {"vmSize": settings.shape},
                "storageProfile": {"imageReference": _image(settings.image), "osDisk": disk},
                "osProfile": system,
                "networkProfile": {"networkApiVersion": _NETWORK_VERSION, "networkInterfaceConfigurations": cards},
            },
        }

    def _card(self, name: str, number: int, subnet: str, settings: MachineSettings) -> dict[str, Any]:
        address = {"name": "ip", "properties": {"primary": True, "subnet": {"id": self._subnet(subnet)}}}
        card: dict[str, Any] = {"primary": number == 0, "deleteOption": "Delete", "ipConfigurations": [address]}
        if settings.security_groups:
            group = self._network_thing("networkSecurityGroups", settings.security_groups[0])
            card["networkSecurityGroup"] = {"id": group}
        return {"name": f"{name}-nic{number}", "properties": card}

    def _subnet(self, said: str) -> str:
        if said.startswith("/"):
            return said
        network, _, subnet = said.partition("/")
        return f"{self._network_thing('virtualNetworks', network)}/subnets/{subnet or 'default'}"

    def _network_thing(self, kind: str, said: str) -> str:
        """Returns the id of a resource by its name in the group, or the given id."""
        return said if said.startswith("/") else f"{self._group}/providers/Microsoft.Network/{kind}/{said}"

    def _path(self, name: str = "") -> str:
        return f"{self._group}/providers/Microsoft.Compute/virtualMachines{f'/{name}' if name else ''}"

    def nodes(self, cloud: Any) -> Iterable[Any]:
        """Reads all pages of the group; libcloud stops silently after some.

        If a machine with our mark has failed, one more pass finds the reasons, in place of one call per machine.
        """
        found = list(bounded(self._pages(cloud, self._path())))
        if not any(_word(node) in _FAILED and _MARK in (node.get("tags") or {}) for node in found):
            return found
        statuses = self._statuses(cloud)
        return [{**node, "statuses": statuses.get(str(node["id"]).lower(), ())} for node in found]

    def _statuses(self, cloud: Any) -> Mapping[str, Any]:
        """Returns the statuses of the subscription's machines by id. Azure has no such list of a group."""
        path = f"/subscriptions/{self._subscription}/providers/Microsoft.Compute/virtualMachines"
        try:
            found = list(bounded(self._pages(cloud, path, statusOnly="true")))
        except _exceptions.BaseHTTPError as error:
            if error.code != _FORBIDDEN:
                raise
            return {}  # without permission for the subscription, the reasons stay unknown
        return {
            str(node["id"]).lower(): (node["properties"].get("instanceView") or {}).get("statuses") or ()
            for node in found
        }

    @staticmethod
    def _pages(cloud: Any, path: str, **params: str) -> Iterator[Any]:
        def read(link: str) -> tuple[Iterable[Any], str]:
            following = urlsplit(link)
            asked = dict(parse_qsl(following.query)) if link else {"api-version": _VERSION, **params}
            page = cloud.connection.request(following.path or path, params=asked).object
            return page["value"], page.get("nextLink")

        return pages(read)

    def machine(self, node: Any) -> Machine:
        properties, name = node["properties"], str(node["name"])
        word = _word(node)
        state, reason, failure = _STATES.get(word, MachineState.PENDING), "", ""
        if word in _FAILED:
            state, reason, failure = _failed(node.get("statuses", ()))
        return Machine(
            name=name,
            machine_id=name,
            provider_id=self._provider_id(name),
            state=state,
            tags={str(key): str(value) for key, value in (node.get("tags") or {}).items()},
            created_at=moment(properties.get("timeCreated")),
            reason=reason,
            failure=failure,
        )

    def _provider_id(self, name: str) -> str:
        """Returns the providerID that Azure's cloud controller writes. Azure may show the group in capitals."""
        group = self._group.rpartition("/")
        return f"azure://{group[0]}/{group[2].lower()}/providers/Microsoft.Compute/virtualMachines/{name}"

    def shape(self, size: Any) -> Shape:
        """Leaves out the disk: it is a second one, which is lost when the machine moves."""
        region = {"topology.kubernetes.io/region": self._place}
        return shape_of(size.name, size.extra["numberOfCores"], size.ram, labels=region)

    @staticmethod
    def _ask(cloud: Any, path: str, method: str, data: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        params = {"api-version": _VERSION}
        return cloud.connection.request(path, params=params, data=data, headers=headers, method=method).object


def _image(said: str) -> dict[str, str]:
    """Returns the reference to an image of the marketplace, or to an own one."""
    if said.startswith("/"):
        return {"id": said}
    parts = said.split(":")
    if len(parts) != 4 or not all(parts):
        raise InvalidArgumentError(
            f"AZURE_ARM: machine.image is {said!r}; write publisher:offer:sku:version, or the whole id of an image"
        )
    return dict(zip(("publisher", "offer", "sku", "version"), parts, strict=True))


def _word(node: Any) -> str:
    return str(node["properties"].get("provisioningState", "")).lower()


def _failed(statuses: Iterable[Any]) -> tuple[MachineState, str, str]:
    """Returns the state, the reason and the failure of a machine that Azure calls failed.

    That is any machine whose last change failed, even one that has run for weeks and got a bad extension.
    """
    reason = failure = ""
    for status in statuses:
        kind, _, rest = str(status.get("code", "")).partition("/")
        if (kind, rest) == ("PowerState", "running"):
            return MachineState.RUNNING, "", ""
        if kind == "ProvisioningState":
            code, text = rest.rpartition("/")[2], str(status.get("message", ""))
            row = ERRORS.find(code=code, text=text)
            reason, failure = f"{code}: {text}"[:_LONGEST], row.error.slug if row is not None else ""
    return MachineState.FAILED, reason, failure


class _Answer(_common.AzureJsonResponse):  # type: ignore[misc]  # has only partial types
    def success(self) -> bool:
        """Accepts the response for a missing machine, which is an error to libcloud."""
        return bool(super().success()) or self.status == _NO_CONTENT


class _Connection(_common.AzureResourceManagementConnection):  # type: ignore[misc]  # has only partial types
    responseCls = _Answer  # noqa: N815 - as libcloud spells it
    access_token: str = ""

    def get_token_from_credentials(self) -> None:
        """Also hides the token until the next one."""
        old = self.access_token
        super().get_token_from_credentials()
        hide(self.access_token)
        if old:
            unhide(old)
