"""Virtual machines as vCenter shows them, read as machines. Nothing here talks to a vCenter."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from cloudgraft.drivers.common.ages import CLOCKS_DIFFER
from cloudgraft.drivers.vsphere.api import Data
from cloudgraft.drivers.vsphere.marks import NAME_KEY, TAGS_KEY, Marks, instance_uuid, marks_in
from cloudgraft.sdk.driver import Machine, MachineState

__all__ = ["PROPERTIES", "is_same", "machine_of", "marks_of", "provider_id_of"]

# By their keys: all of extraConfig would bring the user data of every machine along.
_MARKS: Final = tuple(f'config.extraConfig["{key}"]' for key in (NAME_KEY, TAGS_KEY))
PROPERTIES: Final = (
    "name",
    "config.template",
    "config.uuid",
    "config.instanceUuid",
    *_MARKS,
    "config.createDate",
    "runtime.powerState",
    "runtime.connectionState",
    "guest.ipAddress",
    "guest.hostName",
)
_STATES: Final = {
    "poweredOn": MachineState.RUNNING,
    "poweredOff": MachineState.STOPPED,
    "suspended": MachineState.STOPPED,
}
_SWITCHED_ON: Final = timedelta(minutes=3)  # after it was made, at the latest: the clone does that at its end


def machine_of(shown: Mapping[str, Data], now: datetime) -> Machine | None:
    """The machine; None for what is none, such as a template.

    One that carries our marks with another's instance UUID was copied by hand: it is shown under its own name, and
    with no marks, for they are not its own.
    """
    if shown.get("config.template"):
        return None
    name, instance = str(shown.get("name") or ""), str(shown.get("config.instanceUuid") or "").lower()
    marks = marks_of(shown)
    if not instance:  # in the making: vCenter shows its name first
        return Machine(name=name, machine_id=instance_uuid(name), state=MachineState.PENDING, reason="it is being made")
    is_own = marks is not None and instance == instance_uuid(marks.name)
    state, reason = _state(shown, now)
    return Machine(
        name=marks.name if marks is not None and is_own else name,
        machine_id=instance,
        provider_id=provider_id_of(shown),
        state=state,
        tags=marks.tags if marks is not None and is_own else {},
        created_at=_moment(shown.get("config.createDate")),
        reason=reason if marks is None or is_own else f"it is a copy of {marks.name}, made by hand",
        addresses=tuple(str(shown[key]) for key in ("guest.ipAddress", "guest.hostName") if shown.get(key)),
    )


def marks_of(shown: Mapping[str, Data]) -> Marks | None:
    """What a virtual machine says of itself."""
    told = [shown[path] for path in _MARKS if shown.get(path) is not None]
    return marks_in({str(one.key): str(one.value) for one in told})


def is_same(shown: Mapping[str, Data], machine_id: str, name: str) -> bool:
    """Whether this virtual machine is still the machine that is meant (law 4). One without marks goes by its id."""
    instance = str(shown.get("config.instanceUuid") or "").lower()
    marks = marks_of(shown)
    if instance != machine_id.lower() or marks is None:
        return instance == machine_id.lower()
    return name == (marks.name if instance == instance_uuid(marks.name) else shown.get("name"))


def provider_id_of(shown: Mapping[str, Data]) -> str | None:
    """As vSphere's cloud provider writes it: the BIOS UUID, in small letters."""
    number = shown.get("config.uuid")
    return f"vsphere://{str(number).lower()}" if number else None


def _state(shown: Mapping[str, Data], now: datetime) -> tuple[MachineState, str]:
    power, connection = str(shown.get("runtime.powerState")), str(shown.get("runtime.connectionState"))
    state = _STATES.get(power, MachineState.PENDING)
    made = _moment(shown.get("config.createDate"))
    if power == "poweredOff" and made is not None and -CLOCKS_DIFFER < now - made < _SWITCHED_ON:
        return MachineState.PENDING, "it was made, and is not switched on yet"
    reason = "" if state is MachineState.RUNNING else f"vCenter says {power}"
    if connection not in ("connected", "None"):
        reason = f"vCenter says that it is {connection}"
    return state, reason


def _moment(value: Data) -> datetime | None:
    if not isinstance(value, datetime) or value.year < 2000:  # a date that was never set is in 1970
        return None
    return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
