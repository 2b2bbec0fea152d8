"""Lists machines, checks whether the list is complete, and sets marks on existing machines."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cloudgraft.drivers.common.listing import is_younger
from cloudgraft.drivers.proxmox.api import Api
from cloudgraft.drivers.proxmox.inventory import (
    Guest,
    Inventory,
    Marks,
    from_description,
    from_tags,
    other_tags,
    read_inventory,
    uuid_of,
    without_marks,
)
from cloudgraft.drivers.proxmox.options import ProviderIdForm, ProxmoxOptions
from cloudgraft.sdk.driver import Machine, MachineState
from cloudgraft.sdk.errors import NotFoundError, PermissionDeniedError, UnavailableError

# -- rights ------------------------------------------------------------------------------------------------------------
# Proxmox silently leaves out what our user may not see. So a revoked permission looks like deleted machines. Whenever a
# list has lost a machine, and when the first list is empty, the driver reads the permissions of our user; only a
# machine that it may see counts as gone.

_SEE: Final = "VM.Audit"


def _sees(rights: Mapping[str, Any], vmid: int, pools: Iterable[str]) -> bool:
    own = rights.get(f"/vms/{vmid}")  # present only if it has permissions of its own, or exists
    if isinstance(own, dict) and _SEE in own:
        return True
    in_pool = any(_SEE in (rights.get(f"/pool/{pool}") or ()) for pool in pools if pool)
    general = bool((rights.get("/vms") or {}).get(_SEE))  # 0: for that path alone, not inherited
    return in_pool or (general and own is None)


# -- lists -------------------------------------------------------------------------------------------------------------
# A machine gets its tags last, and has no name in its first seconds. Its description shows whether it is ours, so it is
# read on its own. A machine of others is remembered with its name. Ours is left out while a create may work on it or be
# repeated: the engine would take it as accepted, and would not finish it. After that it is listed as RUNNING if it
# runs, else as FAILED, so that the engine deletes it.

_FIRST_START = timedelta(minutes=2)  # for which a new machine may be off before it first runs
_MARGIN = timedelta(seconds=10)  # by which clocks may differ
_GOING = frozenset({"destroyed"})


class Machines:
    """Lists machines, and marks them."""

    def __init__(self, api: Api, options: ProxmoxOptions) -> None:
        self._api = api
        self._options = options
        self._lock = threading.Lock()
        self._known: dict[int, str] | None = None  # the pools of listed machines by VMID; None: nothing was listed yet
        self._strangers: dict[int, str] = {}  # names of others' machines in our VMID range
        self._begun: dict[int, datetime] = {}  # when the latest create for a VMID began here
        self._making = options.create_timeout + options.timeout + _MARGIN  # the last request may take its time

    def begin(self, vmid: int) -> None:
        """Records that a create works on this VMID, before the cluster shows it."""
        now = datetime.now(UTC)
        with self._lock:
            self._begun = {other: at for other, at in self._begun.items() if now - at < self._making}
            self._begun[vmid] = now

    def all(self) -> list[Machine]:
        """Returns all with our marks, of any cluster, and all in our pool; none that is half made."""
        inventory = read_inventory(self._api, "list")
        self._check_rights(inventory)
        machines = []
        for guest in inventory.guests.values():
            if guest.is_container or guest.is_template:
                continue
            if self._is_to_be_looked_at(guest):
                machines += self._unfinished(guest, inventory)
            elif guest.marks is not None:
                machines.append(self.machine(guest.vmid, guest.name, guest.marks, self._state(guest, inventory)))
            elif self._options.pool and guest.pool == self._options.pool:
                machines.append(self._unmarked(guest, inventory))
        return machines

    def machine(self, vmid: int, name: str, marks: Marks, state: tuple[MachineState, str]) -> Machine:
        """Converts one of ours. Its marks identify it, even if it was renamed by hand.

        Marks that may have come with a copy do not count: under the name of its original, a copy would look like a
        duplicate. It then has its own name in Proxmox, and none until Proxmox reports one.
        """
        known = (marks.name or name) if marks.is_made_for(vmid, self._options) else name
        return Machine(
            name=known,
            machine_id=str(vmid),
            provider_id=self._provider_id(vmid, known),
            state=state[0],
            tags=marks.tags,
            created_at=marks.made,
            reason=state[1],
        )

    def _provider_id(self, vmid: int, name: str) -> str | None:
        if self._options.providerID is ProviderIdForm.UUID:
            return f"proxmox://{uuid_of(name)}" if name else None
        return f"proxmox://{self._options.region}/{vmid}"

    def _unmarked(self, guest: Guest, inventory: Inventory) -> Machine:
        """Converts a machine without our marks; a person may want to adopt it."""
        state, reason = self._state(guest, inventory)
        return Machine(
            name=guest.name,
            machine_id=str(guest.vmid),
            provider_id=self._provider_id(guest.vmid, ""),  # its UUID may be any
            state=state,
            reason=reason,
        )

    def _state(self, guest: Guest, inventory: Inventory) -> tuple[MachineState, str]:
        marks = guest.marks
        is_new = marks is not None and marks.made is not None and is_younger(marks.made, _FIRST_START)
        if guest.lock in _GOING:
            return MachineState.DELETING, "it is being destroyed"
        if guest.status == "running":
            return MachineState.RUNNING, ""
        if is_new or (guest.status == "unknown" and guest.lock):
            return MachineState.PENDING, "it is new, and was not seen to run yet"
        if guest.status == "stopped":
            return MachineState.STOPPED, "it is stopped"
        # A machine whose node does not answer may still run.
        where = f"its node {guest.node} is {inventory.node_of(guest.node)}"
        return MachineState.RUNNING, f"{where}: whether it runs is not known"

    def _check_rights(self, inventory: Inventory) -> None:
        """Raises PermissionDeniedError when machines are missing that our user may no longer see."""
        ours = {vmid: guest.pool for vmid, guest in inventory.guests.items() if guest.marks is not None}
        with self._lock:
            known = self._known
        if known is None:
            missing = {} if ours else {self._options.first_vmid: self._options.pool}
        else:
            missing = {vmid: pool for vmid, pool in known.items() if vmid not in inventory.guests}
        if missing:
            self._expect_visible(missing)
        with self._lock:
            self._known = ours

    def _expect_visible(self, missing: Mapping[int, str]) -> None:
        given = self._api.get("access/permissions", "list, what its user may see")
        rights: Mapping[str, Any] = given if isinstance(given, dict) else {}
        own_pool = self._options.pool
        hidden = [vmid for vmid, pool in missing.items() if not _sees(rights, vmid, {pool, own_pool})]
        if hidden:
            where = f"/pool/{own_pool}" if own_pool else "/vms"
            raise PermissionDeniedError(
                f"list: the user {self._options.user} may not see VM {hidden[0]} any more, and so the list is not "
                f"whole; give it, or its token, {_SEE} on {where}"
            )

    # -- those that are being made -------------------------------------------------------------------------------------

    def _is_to_be_looked_at(self, guest: Guest) -> bool:
        """Returns whether its tags do not identify it: it has none yet, or those of its template."""
        if not self._options.first_vmid <= guest.vmid <= self._options.last_vmid:
            return False
        if guest.marks is not None:
            return not guest.marks.is_made_for(guest.vmid, self._options) and guest.name != guest.marks.name
        with self._lock:
            return not guest.name or self._strangers.get(guest.vmid) != guest.name

    def _unfinished(self, guest: Guest, inventory: Inventory) -> list[Machine]:
        try:
            config = self._api.config(guest.node, guest.vmid, f"list, VM {guest.vmid}")
        except (NotFoundError, PermissionDeniedError):
            # It is gone, or has moved to another node; or it is not ours, or not in our pool yet.
            return []
        except UnavailableError as error:
            if inventory.node_of(guest.node) == "online":
                raise
            return [self._unknown(guest, f"its node is away: {error.message}")]
        marks = marks_of(config, guest.vmid, self._options)
        if marks is None:
            if config.get("lock") == "clone" and not config.get("name"):
                return [self._unknown(guest, "it is being cloned, and has no name yet")]
            with self._lock:
                self._strangers[guest.vmid] = str(config.get("name", ""))
            is_ours = self._options.pool and guest.pool == self._options.pool
            return [self._unmarked(guest, inventory)] if is_ours else []
        if marks == from_tags(str(config.get("tags", ""))):  # finished since the list was made
            state = self._state(dataclasses.replace(guest, marks=marks), inventory)
        elif self._is_being_made(guest.vmid, marks):
            return []
        else:
            state = _left_state(guest)
        return [self.machine(guest.vmid, str(config.get("name", "")), marks, state)]

    def _unknown(self, guest: Guest, reason: str) -> Machine:
        """Converts a machine that may be ours. Its id counts as existing; its name is left out until it is proven."""
        return Machine(name="", machine_id=str(guest.vmid), state=MachineState.PENDING, reason=reason)

    def _is_being_made(self, vmid: int, marks: Marks) -> bool:
        """Returns whether a create may work on a machine without tags, or may be repeated."""
        with self._lock:
            begun = self._begun.get(vmid)
        return any(is_younger(at, self._making) for at in (begun, marks.made) if at is not None)

    # -- marks ---------------------------------------------------------------------------------------------------------
    # As tags, which are in the list of all machines. They include the VMID, as for machines that we create, so that a
    # clone of the machine does not count as it. Tags of others stay.

    def mark(self, vmid: int, name: str, tags: Mapping[str, str | None], what: str) -> None:
        """Sets these marks, and removes those that are None. Raises NotFoundError when the VMID has another machine."""
        guest = read_inventory(self._api, what).guests.get(vmid)
        if guest is None or guest.is_container or guest.is_template:
            raise NotFoundError(f"{what}: there is no VM {vmid}")
        path = f"nodes/{guest.node}/qemu/{vmid}/config"
        config = self._api.get(path, what)
        known = marks_of(config, vmid, self._options)
        if name not in (str(config.get("name", "")), known.name if known is not None else ""):
            raise NotFoundError(f"{what}: VM {vmid} is another machine by now")
        wanted = {key: value for key, value in ({**known.tags, **tags} if known else tags).items() if value is not None}
        marks = Marks(tags=wanted, made=known.made if known else None, vmid=vmid) if wanted else None
        # With the digest, Proxmox refuses the change if the machine was changed since it was read.
        self._api.put(path, what, digest=config["digest"], **_changes(config, marks))


def _left_state(guest: Guest) -> tuple[MachineState, str]:
    """Returns the state of one without tags whose create never finished, or whose tags were removed."""
    if guest.lock in _GOING:
        return MachineState.DELETING, "it is being destroyed"
    if guest.status == "running":
        return MachineState.RUNNING, "its tags are missing"
    if guest.status == "stopped":
        return MachineState.FAILED, "it was cloned and never finished: its create was interrupted"
    return MachineState.PENDING, "its tags are missing, and its node has not told its state yet"


def marks_of(config: Mapping[str, Any], vmid: int, options: ProxmoxOptions) -> Marks | None:
    """Returns our marks in a machine's configuration: its tags, else its description. Marks of a copy do not count.

    A clone has the tags of its template, which may have been a machine of ours: certain marks come first.
    """
    both = from_tags(str(config.get("tags", ""))), from_description(str(config.get("description", "")))
    possible = [marks for marks in both if marks is not None and marks.is_of(vmid)]
    certain = [marks for marks in possible if marks.is_made_for(vmid, options)]
    return next(iter((*certain, *possible)), None)


def _changes(config: Mapping[str, Any], marks: Marks | None) -> dict[str, object]:
    others = other_tags(str(config.get("tags", "")))
    if marks is not None:
        return {"tags": ";".join([*others, marks.as_tags()])}
    changes: dict[str, object] = {"tags": ";".join(others)} if others else {"delete": "tags"}
    notes = str(config.get("description", ""))
    if without_marks(notes) != notes:
        changes["description"] = without_marks(notes)
    return changes
