"""Whether a list may be believed: Proxmox leaves out, without a word, what our user may not see.

So a right that was taken away looks like machines that are gone. Whenever a list has lost a machine, and when the first
one has none, it is asked what our user may see; only what it could have seen is gone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final

from cloudgraft.drivers.proxmox.api import Api
from cloudgraft.drivers.proxmox.inventory import Inventory
from cloudgraft.drivers.proxmox.options import ProxmoxOptions
from cloudgraft.sdk.errors import PermissionDeniedError

__all__ = ["Rights"]

_SEE: Final = "VM.Audit"


class Rights:
    """Remembers which machines of ours there were."""

    def __init__(self, api: Api, options: ProxmoxOptions) -> None:
        self._api = api
        self._options = options
        self._lock = threading.Lock()
        self._known: dict[int, str] | None = None  # the pools of machines by their VMIDs; None: nothing is known yet

    def check(self, inventory: Inventory) -> None:
        """Raises PermissionDeniedError when machines are missing that our user may not see any more."""
        ours = {vmid: guest.pool for vmid, guest in inventory.guests.items() if guest.marks is not None}
        with self._lock:
            known = self._known
        if known is None:
            missing = {} if ours else {self._options.first_vmid: self._options.pool}
        else:
            missing = {vmid: pool for vmid, pool in known.items() if vmid not in inventory.guests}
        if missing:
            self._expect(missing)
        with self._lock:
            self._known = ours

    def _expect(self, missing: Mapping[int, str]) -> None:
        given = self._api.get("access/permissions", "list, what its user may see")
        rights: Mapping[str, Any] = given if isinstance(given, dict) else {}
        hidden = [vmid for vmid, pool in missing.items() if not _sees(rights, vmid, {pool, self._options.pool})]
        if hidden:
            where = f"/pool/{self._options.pool}" if self._options.pool else "/vms"
            raise PermissionDeniedError(
                f"list: the user {self._options.user} may not see VM {hidden[0]} any more, and so the list is not "
                f"whole; give it, or its token, {_SEE} on {where}"
            )


def _sees(rights: Mapping[str, Any], vmid: int, pools: Iterable[str]) -> bool:
    own = rights.get(f"/vms/{vmid}")  # there only if somebody has said something of it, or it exists
    if isinstance(own, dict) and _SEE in own:
        return True
    in_pool = any(_SEE in (rights.get(f"/pool/{pool}") or ()) for pool in pools if pool)
    general = bool((rights.get("/vms") or {}).get(_SEE))  # 0: it is for that path alone
    return in_pool or (general and own is None)
