"""Instances as EC2 describes them, and as machines."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from cloudgraft.drivers.ec2.marks import CLUSTER_ID_TAG, MACHINE_TAG, NAME_TAG
from cloudgraft.sdk.driver import Machine, MachineState
from cloudgraft.sdk.errors import OutOfStockError, QuotaExceededError

__all__ = ["FAILED_LAUNCHES", "FIELDS", "LIVING", "machine_of"]

# What is read of an instance, here and elsewhere. Nothing else is there: see lean.py.
FIELDS: Final = frozenset(
    {
        "InstanceId",
        "LaunchTime",
        "Placement",
        "PrivateDnsName",
        "PrivateIpAddress",
        "State",
        "StateReason",
        "Tags",
    }
)
_STATES: Final[Mapping[str, MachineState]] = {
    "pending": MachineState.PENDING,
    "running": MachineState.RUNNING,
    "stopping": MachineState.STOPPED,
    "stopped": MachineState.STOPPED,
    "shutting-down": MachineState.DELETING,
    "terminated": MachineState.FAILED,  # only asked for when its launch failed
}
# Why an instance that EC2 had accepted ended before it ran, and the error that says it best.
_FAILURES: Final[Mapping[str, str]] = {
    "Server.InsufficientInstanceCapacity": OutOfStockError.slug,
    "Server.InternalError": "",
    "Client.InternalError": "",  # often a key of KMS that may not be used
    "Client.InvalidSnapshot.NotFound": "",
    "Client.VolumeLimitExceeded": QuotaExceededError.slug,
}

_MARKED: Final = {"Name": "tag-key", "Values": [CLUSTER_ID_TAG]}
# The instances that cost something, of every cluster of cloudgraft's.
LIVING: Final = [_MARKED, {"Name": "instance-state-name", "Values": [s for s in _STATES if s != "terminated"]}]
# Those that EC2 accepted and could not start. It shows them for about an hour.
FAILED_LAUNCHES: Final = [
    _MARKED,
    {"Name": "instance-state-name", "Values": ["terminated"]},
    {"Name": "state-reason-code", "Values": list(_FAILURES)},
]


def machine_of(instance: Mapping[str, Any]) -> Machine:
    """A machine, by what is known of the instance: while it is new, that may be little."""
    tags = {str(tag["Key"]): str(tag.get("Value", "")) for tag in instance.get("Tags", ())}
    machine_id = str(instance["InstanceId"])
    zone = instance.get("Placement", {}).get("AvailabilityZone")
    state = _STATES.get(instance.get("State", {}).get("Name", ""), MachineState.PENDING)
    why: Mapping[str, str] = instance.get("StateReason", {})
    launched = instance.get("LaunchTime")
    return Machine(
        name=tags.get(MACHINE_TAG) or tags.get(NAME_TAG) or machine_id,
        machine_id=machine_id,
        provider_id=f"aws:///{zone}/{machine_id}" if zone else None,
        state=state,
        tags=tags,
        created_at=launched if isinstance(launched, datetime) else None,
        reason=why.get("Message", ""),
        addresses=tuple(str(instance[key]) for key in ("PrivateIpAddress", "PrivateDnsName") if instance.get(key)),
        failure=_FAILURES.get(why.get("Code", ""), "") if state is MachineState.FAILED else "",
    )
