"""A fake of Azure's resource manager and of its login; see ``libcloud_fake``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from clouds.servers.libcloud_clouds import PAGE, TOKEN, last_of, now
from clouds.servers.libcloud_fake import Answer, Asked, FakeCloud

__all__ = ["GROUP", "SUBSCRIPTION", "TENANT", "FakeAzure"]

SUBSCRIPTION: Final = "0b1f6471-1bf0-4dda-aec3-111122223333"
TENANT: Final = "5f1de6ab-0000-4dda-aec3-444455556666"
GROUP: Final = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/Lab"
_SERVICE: Final = "/providers/Microsoft.Compute"
_VMS: Final = f"{GROUP}{_SERVICE}/virtualMachines"


class FakeAzure(FakeCloud):
    """Virtual machines of one group. Their cards and disks come and go with them, as their orders say."""

    def __init__(self) -> None:
        """Nothing is there."""
        super().__init__()
        self.cards: set[str] = set()
        self.disks: set[str] = set()
        self.lifetime = 3600  # of a token, in seconds
        self.statuses: dict[str, list[Mapping[str, str]]] = {}  # by name, for those that are told apart
        self.others: list[dict[str, Any]] = []  # of the subscription, in other groups
        self._tokens: set[str] = set()

    def answer(self, asked: Asked) -> Answer:
        """One page holds three."""
        if asked.path.endswith("/oauth2/token"):
            return self._login(asked)
        if asked.headers.get("authorization", "").removeprefix("Bearer ") not in self._tokens:
            return _error(401, "InvalidAuthenticationToken", "The access token is invalid.")
        if not asked.query.get("api-version"):
            return _error(400, "MissingApiVersionParameter", "The api-version query parameter is required.")
        if asked.path.startswith(f"{_VMS}/"):
            return self._create(asked) if asked.method == "PUT" else self._delete(last_of(asked.path))
        return self._read(asked)

    def _read(self, asked: Asked) -> Answer:
        if asked.path.endswith("/vmSizes"):
            kept = {"osDiskSizeInMB": 1047552, "resourceDiskSizeInMB": 8192, "maxDataDiskCount": 4}
            return Answer(200, {"value": [{"name": "Standard_B2s", "numberOfCores": 2, "memoryInMB": 4096, **kept}]})
        if asked.path == f"/subscriptions/{SUBSCRIPTION}{_SERVICE}/virtualMachines":
            found = [*map(self._status, self.machines.values()), *self.others]
            return self._page(asked, found if asked.query.get("statusOnly") == "true" else [])
        if asked.path == _VMS:
            return self._page(asked, list(self.machines.values()))
        return _error(404, "ResourceGroupNotFound", "Resource group could not be found.")

    def forget_tokens(self) -> None:
        """As if they were over."""
        self._tokens.clear()

    def _login(self, asked: Asked) -> Answer:
        form = dict(parse_qsl(asked.raw.decode()))
        if not asked.path.startswith(f"/{TENANT}/"):
            told = {"error": "invalid_request", "error_description": "AADSTS90002: Tenant not found."}
            return Answer(400, told)
        if form.get("client_secret") != TOKEN:
            told = {"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret provided."}
            return Answer(401, told)
        token = f"lent-by-azure-{self.new_id()}"
        self._tokens.add(token)
        until = int(time.time()) + self.lifetime
        return Answer(200, {"access_token": token, "expires_on": str(until), "expires_in": str(self.lifetime)})

    def _create(self, asked: Asked) -> Answer:
        name, order = last_of(asked.path), asked.body
        if name in self.machines:
            if asked.headers.get("if-none-match") == "*":
                return _error(412, "PreconditionFailed", "The resource exists.")
            return _error(409, "PropertyChangeNotAllowed", "Changing property 'osProfile.customData' is not allowed.")
        if order["properties"]["hardwareProfile"]["vmSize"] != "Standard_B2s":
            return _error(400, "InvalidParameter", "The value of parameter vmSize is invalid.")
        properties = {key: value for key, value in order["properties"].items() if key != "osProfile"}
        shouting = f"{GROUP.upper()}{_SERVICE}/virtualMachines/{name}"  # as Azure shows it now and then
        self.machines[name] = {
            "id": shouting,
            "name": name,
            "location": order["location"],
            "tags": order["tags"],
            "properties": {**properties, "provisioningState": "Succeeded", "timeCreated": f"{now()}.1234567+00:00"},
        }
        self.disks.add(properties["storageProfile"]["osDisk"]["name"])
        self.cards |= {one["name"] for one in properties["networkProfile"]["networkInterfaceConfigurations"]}
        shown = {**self.machines[name], "properties": {**properties, "provisioningState": "Creating"}}
        return Answer(201, shown, {"Azure-AsyncOperation": "https://management.azure.com/operations/1"})

    def _delete(self, name: str) -> Answer:
        gone = self.machines.pop(name, None)
        if gone is None:
            return Answer(204)
        disk = gone["properties"]["storageProfile"]["osDisk"]
        cards = gone["properties"]["networkProfile"]["networkInterfaceConfigurations"]
        self.disks -= {disk["name"]} if disk.get("deleteOption") == "Delete" else set()
        self.cards -= {one["name"] for one in cards if one["properties"].get("deleteOption") == "Delete"}
        return Answer(202, None, {"Location": "https://management.azure.com/operations/2"})

    def _status(self, machine: Mapping[str, Any]) -> dict[str, Any]:
        statuses = self.statuses.get(machine["name"], [])
        return {"id": machine["id"], "name": machine["name"], "properties": {"instanceView": {"statuses": statuses}}}

    def _page(self, asked: Asked, found: list[Any]) -> Answer:
        first = int(asked.query.get("$skiptoken", 0))
        page: dict[str, Any] = {"value": found[first : first + PAGE]}
        if first + PAGE < len(found):
            query = urlencode({**asked.query, "$skiptoken": first + PAGE})
            page["nextLink"] = f"https://management.azure.com:443{asked.path}?{query}"
        return Answer(200, page)


def _error(status: int, code: str, message: str) -> Answer:
    return Answer(status, {"error": {"code": code, "message": message}})
