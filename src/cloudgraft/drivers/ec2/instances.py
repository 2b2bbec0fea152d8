"""Converts EC2 instances to machines, and defines the tags that identify them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from cloudgraft.sdk.driver import Machine, MachineState
from cloudgraft.sdk.errors import OutOfStockError, QuotaExceededError
from cloudgraft.sdk.flaws import Flaws

# -- tags --------------------------------------------------------------------------------------------------------------
# The tags that identify instances, and EC2's rules for tags.

NAME_TAG: Final = "Name"  # shown by AWS's console; a person may change it, so nothing depends on it
CLUSTER_ID_TAG: Final = "cloudgraft-cluster-id"  # on every machine that cloudgraft creates
MACHINE_TAG: Final = "cloudgraft-name"
_OURS: Final = "cloudgraft-"
_THEIRS: Final = "aws:"
_LONGEST_KEY, _LONGEST_VALUE, _MOST = 128, 256, 50


def is_reserved(key: str) -> bool:
    """Returns whether a configuration must not set this tag."""
    return key == NAME_TAG or key.lower().startswith((_OURS, _THEIRS))


def check_tags(tags: Mapping[str, str]) -> None:
    """Raises InvalidArgumentError for tags that EC2 would refuse; nothing is cut."""
    flaws = Flaws()
    flaws.expect(len(tags) <= _MOST, (), f"{len(tags)} tags are too many: EC2 keeps {_MOST} at most")
    for key, value in tags.items():
        is_key = 1 <= len(key) <= _LONGEST_KEY
        flaws.expect(is_key, (), f"the tag {key[:80]!r} must have between 1 and {_LONGEST_KEY} characters")
        too_long = f"the tag {key[:80]} has {len(value)} characters; EC2 keeps {_LONGEST_VALUE} at most"
        flaws.expect(len(value) <= _LONGEST_VALUE, (), too_long)
    flaws.raise_any()


# -- instances ---------------------------------------------------------------------------------------------------------

# The fields of an instance that are read anywhere. The parser drops all others: see session.py.
FIELDS: Final = frozenset(
    ["InstanceId", "LaunchTime", "Placement", "PrivateDnsName", "PrivateIpAddress", "State", "StateReason", "Tags"]
)
_STATES: Final[Mapping[str, MachineState]] = {
    "pending": MachineState.PENDING,
    "running": MachineState.RUNNING,
    "stopping": MachineState.STOPPED,
    "stopped": MachineState.STOPPED,
    "shutting-down": MachineState.DELETING,
    "terminated": MachineState.FAILED,  # only requested for failed launches
}
# Why an accepted instance ended before it ran, with the error that fits best.
_FAILURES: Final[Mapping[str, str]] = {
    "Server.InsufficientInstanceCapacity": OutOfStockError.slug,
    "Server.InternalError": "",
    "Client.InternalError": "",  # often a KMS key without permission
    "Client.InvalidSnapshot.NotFound": "",
    "Client.VolumeLimitExceeded": QuotaExceededError.slug,
}

_MARKED: Final = {"Name": "tag-key", "Values": [CLUSTER_ID_TAG]}
# The instances that cost money, of every cluster that uses cloudgraft.
LIVING: Final = [_MARKED, {"Name": "instance-state-name", "Values": [s for s in _STATES if s != "terminated"]}]
# Instances that EC2 accepted and could not start. It lists them for about an hour.
FAILED_LAUNCHES: Final = [
    _MARKED,
    {"Name": "instance-state-name", "Values": ["terminated"]},
    {"Name": "state-reason-code", "Values": list(_FAILURES)},
]


def machine_of(instance: Mapping[str, Any]) -> Machine:
    """Converts an instance to a machine. A new instance may lack fields."""
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
