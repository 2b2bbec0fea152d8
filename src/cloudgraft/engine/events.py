"""Defines the kinds of events and builds events.

Every event goes to the journal, the log, a metric and, where one is set, a webhook.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from cloudgraft.store.records import Event, MachineRecord, State

# kind -> (log level, meaning)
KINDS: Final[Mapping[str, tuple[int, str]]] = {
    "increase": (logging.INFO, "the autoscaler requested machines"),
    "decrease": (logging.INFO, "the autoscaler cancelled machines that never came"),
    "delete": (logging.INFO, "the autoscaler deleted machines"),
    "state": (logging.INFO, "a machine changed its state; a warning when it has failed"),
    "retry": (logging.INFO, "a call to a cloud failed and will be retried"),
    "unsettled": (logging.WARNING, "the outcome of a call is unknown; a list will show it"),
    "adopted": (logging.INFO, "a machine in a cloud was taken into the journal"),
    "double": (
        logging.WARNING,
        "a cloud made two machines for one intent; one of them is being deleted, or it is unclear which may be",
    ),
    "returned": (
        logging.WARNING,
        "a machine that counted as gone exists: it is deleted, or left alone if it is in use",
    ),
    "unproven": (logging.WARNING, "a machine is not proven to be ours, so it is not touched"),
    "unmarked": (logging.WARNING, "marks of an adopted machine could not be set or removed"),
    "orphan": (logging.WARNING, "a machine with our marks is not in the journal"),
    "orphan_deleted": (logging.WARNING, "an orphan is being deleted, by an operator's order or by the policy"),
    "released": (logging.WARNING, "an operator released a machine: it left the journal and stays in its cloud"),
    "guard": (logging.WARNING, "a guard refused a machine, or holds a deletion back"),
    "removal": (
        logging.INFO,
        "the engine deletes a machine without an order; it counts for guards.maxDeletesPerHour",
    ),
    "observed": (logging.WARNING, "an action was withheld because of observeOnly"),
    "repair": (logging.WARNING, "a broken machine is being replaced"),
    "loss": (
        logging.INFO,
        "a machine counts as gone because lists miss it; it counts for engine.massAbsence, also after a restart",
    ),
    "breaker": (
        logging.ERROR,
        "too many machines are reported broken or missing at once, so the report is not believed yet",
    ),
    "breaker_closed": (logging.WARNING, "a report about many machines at once is over, or is believed now"),
    "drift": (logging.WARNING, "nodes of a group differ from its template"),
    "cloud_down": (logging.ERROR, "a cloud does not answer, or refuses us"),
    "cloud_up": (logging.INFO, "a cloud answers again"),
    "cloud_ready": (logging.INFO, "a cloud was listed for the first time and our machines in it were taken in"),
    "blocked": (logging.ERROR, "a cloud has machines that may be ours under another id; nothing is created there"),
    "paused": (logging.WARNING, "an operator paused a group or a cloud"),
    "resumed": (logging.WARNING, "an operator resumed a group or a cloud"),
    "configured": (logging.INFO, "a group's configuration changed"),
    "draining": (logging.WARNING, "a group is no longer in the configuration but still has machines"),
    "removed": (logging.INFO, "a group that was draining is empty and was removed"),
    "refused_config": (logging.ERROR, "a changed configuration is not valid; the old one stays"),
    "journal_recovered": (logging.WARNING, "the journal can be written again"),
    "undone": (logging.WARNING, "a change had been written although its caller got an error, and was reverted"),
    "clock": (logging.WARNING, "the wall clock was set; durations do not include the jump"),
    "leader": (logging.INFO, "this process became the leader"),
}


def level_of(event: Event) -> int:
    """An event's level for the log and the webhook. A machine's failure has a higher level than other state changes."""
    return logging.WARNING if event.state is State.FAILED else KINDS[event.kind][0]


def about(record: MachineRecord, now: float, message: str, *, kind: str = "state", **data: object) -> Event:
    """Builds an event about one machine; kind ``state`` is a line of its history."""
    return Event(
        at=now,
        kind=kind,
        message=message,
        cloud=record.cloud,
        group=record.group,
        machine=record.name,
        state=record.state if kind == "state" else None,
        data=data,
    )


def happened(kind: str, now: float, message: str, *, cloud: str = "", group: str = "", **data: object) -> Event:
    """Builds an event about a group, a cloud, or the whole engine."""
    return Event(at=now, kind=kind, message=message, cloud=cloud, group=group, data=data)
