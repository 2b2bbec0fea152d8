"""Converts servers of the API to machines, and reads a paged list completely.

Pages are numbered, so a deletion between two reads shifts the other servers, and one may move to a page that was read
already. So the servers are counted. They are read newest first: a new server then does not appear, and can only make
another one appear twice. A pass that has seen as many as there were at first has seen them all. Otherwise all pages are
read again, and a server counts as existing when either pass has seen it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from cloudgraft.drivers.common.label_text import HETZNER
from cloudgraft.drivers.common.listing import is_younger
from cloudgraft.drivers.hetzner.api import Api, Json
from cloudgraft.drivers.hetzner.options import MARK
from cloudgraft.sdk.driver import Machine, MachineState
from cloudgraft.sdk.errors import InternalError, UnavailableError
from cloudgraft.sdk.list_budget import current_budget

T = TypeVar("T")
_PER_PAGE: Final = 50  # the API's maximum
_MOST_PAGES: Final = 10_000
_FIRST_START: Final = timedelta(minutes=2)  # for which a new server may be off before its first start
_STATES: Final = {
    "initializing": MachineState.PENDING,
    "starting": MachineState.PENDING,
    "running": MachineState.RUNNING,
    "migrating": MachineState.RUNNING,
    "rebuilding": MachineState.RUNNING,
    "stopping": MachineState.STOPPED,
    "off": MachineState.STOPPED,
    "deleting": MachineState.DELETING,
}


def machine_of(server: Mapping[str, Any]) -> Machine:
    """Converts a server to a machine; raises InternalError when the response is invalid."""
    try:
        created = datetime.fromisoformat(server["created"])
        created = created if created.tzinfo else created.replace(tzinfo=UTC)
        state, reason = _state(str(server["status"]), created)
        return Machine(
            name=str(server["name"]),
            machine_id=str(int(server["id"])),
            provider_id=f"hcloud://{int(server['id'])}",
            state=state,
            tags={key: HETZNER.decode(value) for key, value in server["labels"].items() if key.startswith(MARK)},
            created_at=created,
            reason=reason,
            addresses=_addresses(server),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InternalError(f"the API has shown a server that makes no sense: {type(error).__name__} {error}") from None


def _state(status: str, created: datetime) -> tuple[MachineState, str]:
    state = _STATES.get(status)
    if state is None:
        return MachineState.PENDING, f"Hetzner says that its status is {status!r}"
    if state is MachineState.STOPPED and is_younger(created, _FIRST_START):
        return MachineState.PENDING, f"it is new, and {status}"
    return state, "" if state is MachineState.RUNNING else f"it is {status}"


def _addresses(server: Mapping[str, Any]) -> tuple[str, ...]:
    public = server.get("public_net") or {}
    found = [private["ip"] for private in server.get("private_net") or ()]
    if public.get("ipv4"):
        found.append(public["ipv4"]["ip"])
    if public.get("ipv6"):  # a network, of which the server uses the first address
        found.append(public["ipv6"]["ip"].partition("/")[0] + "1")
    return tuple(str(address) for address in found if address)


# -- lists -------------------------------------------------------------------------------------------------------------


def listed(
    api: Api, path: str, key: str, what: str, until: float, read: Callable[[Json], T], **query: object
) -> dict[int, T]:
    """Returns all entries of a list by id; raises UnavailableError rather than return a part.

    ``until`` is the monotonic deadline. ``read`` converts an entry at once: thousands of raw entries would take much
    memory, and freeing them all at once would delay everything else.
    """
    both: dict[int, T] = {}
    totals = [0]
    for _ in range(2):
        found, totals = _pass(lambda page: _page(api, path, key, what, until, page, query), read)
        if len(found) >= totals[0]:
            return found
        both |= found
    if len(both) < min(totals):
        raise UnavailableError(f"{what}: of {min(totals)} entries the API has shown {len(both)}; a page was not whole")
    return both


def _pass(
    turn: Callable[[int], tuple[list[Json], int | None, int | None]], read: Callable[[Json], T]
) -> tuple[dict[int, T], list[int]]:
    """Reads all pages once; returns the entries, and the total that each page reported.

    ``turn`` returns the entries of a page, the number of the next page, and the total number of entries.
    """
    budget = current_budget()
    found: dict[int, T] = {}
    totals: list[int] = []
    for number in range(1, _MOST_PAGES + 1):
        entries, following, total = turn(number)
        found |= {int(entry["id"]): read(entry) for entry in entries}
        budget.check_count(len(found))
        totals.append(0 if total is None else total)  # None: the API does not know
        if following is None:
            return found, totals
        if following != number + 1:
            raise InternalError(f"after page {number} the API leads to page {following}")
    raise InternalError(f"the API's list has more than {_MOST_PAGES} pages")


def _page(
    api: Api, path: str, key: str, what: str, until: float, page: int, query: Mapping[str, object]
) -> tuple[list[Json], int | None, int | None]:
    if time.monotonic() > until:
        raise UnavailableError(f"{what}: the API takes too long for all pages; {page - 1} were read")
    answer = api.get(path, f"{what}, page {page}", page=page, per_page=_PER_PAGE, **query)
    try:
        about = answer["meta"]["pagination"]
        following, total = about["next_page"], about["total_entries"]
        entries = [entry for entry in answer[key] if int(entry["id"])]
        return entries, None if following is None else int(following), None if total is None else int(total)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnavailableError(f"{what}: page {page} is not whole: {type(error).__name__} {error}") from None
