"""Decides whether a group may be tortured at all. Pure: it is given what is known, and returns every reason against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cloudgraft.config import Config
from cloudgraft.config.sections.clouds import EntryPointCloud
from cloudgraft.config.sections.groups import NodeGroupConfig
from cloudgraft.engine.machines.identity import Identity
from cloudgraft.engine.machines.states import is_released
from cloudgraft.sdk.driver import DriverTraits, Machine, MachineState, Ownership, PartialList
from cloudgraft.store.records import MachineRecord, State
from cloudgraft.torture.journal_view import OwnJournal

_SHOWN = 5  # machines in a message


def config_refusals(config: Config, group: NodeGroupConfig) -> Iterator[str]:
    """Reasons in the configuration."""
    cloud = config.clouds[group.cloud]
    if config.observe_only or cloud.engine.observe_only:
        yield f"cloud {group.cloud} has observeOnly, and torture creates machines there; remove that key"
    if not isinstance(cloud, EntryPointCloud):
        return
    if cloud.driver == "dock" and not cloud.options.get("address"):
        yield (
            f"the driver of cloud {group.cloud} dials in at this server's own dock, where a second server cannot use "
            "it; let it dial in at a `cloudgraft dock`, and write that address in the cloud's option address"
        )
    if cloud.driver == "simulated" and not cloud.options.get("url"):
        yield (
            f"the simulated cloud {group.cloud} lives in the server's process and dies with it; "
            "start `cloudgraft simcloud`, and write its address in the cloud's option url"
        )


def journal_refusals(own: OwnJournal, group: NodeGroupConfig) -> Iterator[str]:
    """Reasons in the journal of the user's own server."""
    if own.trouble:
        yield f"the journal of this configuration cannot be read, so the group may be in use: {own.trouble}"
    if own.server:
        yield f"a server of this configuration is running ({own.server}); stop it, or use a file with another store"
    if own.view is None:
        return
    used = [r.name for r in own.view.machines.values() if r.group == group.id and _is_in_use(r)]
    if used:
        yield (
            f"group {group.id} is in use: the journal has {_counted(used)}; "
            "take a group without machines, made for this test"
        )


def traits_refusals(traits: DriverTraits, own: OwnJournal, group: NodeGroupConfig, yes_use: str) -> Iterator[str]:
    """Reasons in what the driver declares. ``yes_use`` is the group whose own machines may be switched."""
    if not traits.complete_list:
        yield "the driver declares that its list is not complete, so nothing can be concluded from it"
    if traits.ownership is not Ownership.INVENTORY:
        return
    if yes_use != group.id:
        yield (
            f"the machines of cloud {group.cloud} are an inventory: torture would take real machines, switch them on "
            f"and off, and may erase them; if no machine of it is in use, say --yes-use {group.id}"
        )
    machines = own.view.machines.values() if own.view is not None else ()
    used = [record.name for record in machines if record.cloud == group.cloud and _is_in_use(record)]
    if used:
        yield (
            f"the inventory of cloud {group.cloud} is in use by other groups: the journal has {_counted(used)}, and a "
            "second server would not know which machines are taken"
        )


def list_refusals(
    machines: Sequence[Machine], config: Config, own: OwnJournal, group: NodeGroupConfig
) -> Iterator[str]:
    """Reasons in the cloud's list: machines of this group of the user's cluster."""
    if isinstance(machines, PartialList):
        yield "the cloud's list is incomplete at present; try again when all of it answers"
    known = own.view.cluster_id if own.view is not None else config.cluster_id or ""
    user = Identity(config.cluster, known)
    used = [
        f"{machine.name} ({machine.machine_id})"
        for machine in machines
        if machine.state is not MachineState.DELETING and _is_of_group(machine, user, group.id)
    ]
    if used:
        yield (
            f"group {group.id} is in use: the cloud's list has {_counted(used)} of cluster {config.cluster}; "
            "take a group without machines, made for this test"
        )


def _is_of_group(machine: Machine, user: Identity, group: str) -> bool:
    """Whether a machine was created for this group of the user's cluster, even under another id of the cluster."""
    other = user.stranger(machine)
    owner = user if other is None else Identity(user.cluster, other)
    return owner.looks_ours(machine) and owner.group_of(machine, [group]) == group


def _is_in_use(record: MachineRecord) -> bool:
    return record.state is not State.GONE or is_released(record)


def _counted(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{len(names)} machine{'' if len(names) == 1 else 's'}: {', '.join(names[:_SHOWN])}{more}"
