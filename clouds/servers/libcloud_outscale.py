"""The fake of Outscale's own API; see ``libcloud_fake``. It was written from Outscale's public description of it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Any, Final

from clouds.servers.libcloud_clouds import PAGE, TOKEN, last_of, now
from clouds.servers.libcloud_fake import Answer, Asked, FakeCloud

__all__ = ["FakeOutscale", "refusal"]

_LOGIN: Final = re.compile(
    r"OSC4-HMAC-SHA256 Credential=([^/]+)/((\d{8})/([^/]+)/([^/]+)/osc4_request), SignedHeaders=([a-z0-9;-]+), "
    r"Signature=([0-9a-f]{64})"
)
_TYPE: Final = r"tinav[1-9]\.c[1-9]\d*r[1-9]\d*(p[123])?"
_TAKEN: Final = {
    "BlockDeviceMappings",
    "BootOnCreation",
    "BsuOptimized",
    "ClientToken",
    "DeletionProtection",
    "DryRun",
    "ImageId",
    "KeypairName",
    "MaxVmsCount",
    "MinVmsCount",
    "Placement",
    "SecurityGroupIds",
    "SubnetId",
    "UserData",
    "VmType",
}
_LARGEST: Final = 500 * 1024


def refusal(status: int, kind: str, number: str, details: str = "") -> Answer:
    """An error as Outscale writes it."""
    errors = [{"Code": number, "Type": kind, "Details": details}]
    return Answer(status, {"Errors": errors, "ResponseContext": {"RequestId": "0475ca1e-d0c5-441d-712a-da55a4175157"}})


class FakeOutscale(FakeCloud):
    """Machines in eu-west-2; a request must be signed."""

    def name_of(self, machine: Mapping[str, Any]) -> str:
        """The token by which it was made."""
        return str(machine["ClientToken"])

    def answer(self, asked: Asked) -> Answer:
        """One page holds three."""
        if not _is_signed(asked):
            return refusal(401, "AccessDenied", "1", "The access key or the signature is wrong")
        match last_of(asked.path), asked.body:
            case "CreateVms", order:
                return self._create(order)
            case "DeleteVms", {"VmIds": [number]}:
                if self.machines.pop(number, None) is None:
                    return refusal(400, "InvalidResource", "5063", "The VmId doesn't exist")
                return Answer(200, {"Vms": [{"VmId": number, "CurrentState": "shutting-down"}]})
            case "ReadVms", wanted if set(wanted) <= {"ResultsPerPage", "NextPageToken"}:
                return self._page(int(base64.b64decode(wanted.get("NextPageToken", "MA=="))))
        return refusal(400, "InvalidParameterValue", "4110", "The parameter's type is wrong")

    def _create(self, order: Mapping[str, Any]) -> Answer:
        if strange := set(order) - _TAKEN:
            return refusal(400, "InvalidParameter", "3001", f"unknown: {sorted(strange)}")
        known = next((one for one in self.machines.values() if one["ClientToken"] == order["ClientToken"]), None)
        if known is None:
            if not re.fullmatch(_TYPE, order["VmType"]):
                return refusal(400, "InvalidParameterValue", "4047", "The VmType is invalid")
            if len(order.get("UserData", "")) > _LARGEST:
                return refusal(400, "InvalidParameterValue", "4047", "The UserData is too long")
            number = f"i-{self.new_id():08d}"
            placement = {"Tenancy": "default", "SubregionName": "eu-west-2a", **order.get("Placement", {})}
            known = {"VmId": number, "State": "running", "ClientToken": order["ClientToken"], "Tags": []}
            known |= {"Placement": placement, "CreationDate": f"{now()}.000Z", "PrivateIp": "10.0.4.7"}
            known |= {"UserData": order.get("UserData", ""), "VmType": order["VmType"], "ImageId": order["ImageId"]}
            self.machines[number] = known
        return Answer(200, {"Vms": [{**known, "State": "pending"}]})

    def _page(self, first: int) -> Answer:
        page: dict[str, Any] = {"Vms": list(self.machines.values())[first : first + PAGE]}
        if first + PAGE < len(self.machines):
            page["NextPageToken"] = base64.b64encode(str(first + PAGE).encode()).decode()
        return Answer(200, page)


def _is_signed(asked: Asked) -> bool:
    found = _LOGIN.fullmatch(asked.headers.get("authorization", ""))
    if found is None or found[1] != "AKIAJUDGE" or found[4] != "eu-west-2" or found[5] != "api":
        return False
    names = found[6].split(";")
    if not {"host", "x-osc-date"} <= set(names) or asked.headers["host"] != "api.eu-west-2.outscale.com":
        return False
    lines = [f"{name}:{asked.headers[name].strip()}\n" for name in names]
    request = "\n".join([asked.method, asked.path, "", "".join(lines), found[6], hashlib.sha256(asked.raw).hexdigest()])
    digest = hashlib.sha256(request.encode()).hexdigest()
    key = f"OSC4{TOKEN}".encode()
    for part in (found[3], found[4], found[5], "osc4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = "\n".join(["OSC4-HMAC-SHA256", asked.headers["x-osc-date"], found[2], digest])
    return hmac.compare_digest(hmac.digest(key, text.encode(), "sha256").hex(), found[7])
