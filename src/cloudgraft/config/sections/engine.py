"""Defines the `engine` and `guards` sections: time limits, limits on cost, and what the engine does beyond them."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StrictBool, StrictInt, StrictStr, field_validator

from cloudgraft.config.fields import Duration, Kind, MoneyPerDay, PositiveDuration, ReadableFile, Share, Text, refuse
from cloudgraft.config.kubernetes import LabelKey
from cloudgraft.config.section import Section
from cloudgraft.sdk.hosts import is_loopback_host


class Repair(Section):
    """Replaces a running machine that its cloud reports dead, or whose node has not been ready for long."""

    enabled: StrictBool = Field(True, description="Whether machines are replaced.")
    after: Duration = Field(timedelta(minutes=5), description="How long a machine must have been dead.")
    not_ready_after: Duration = Field(
        timedelta(minutes=30),
        description="How long a machine's node must not have been ready, where that can be seen. The autoscaler itself "
        "removes such nodes after 20 minutes, but not from a group at its minimum; 0 leaves all of them to it.",
    )
    max_share: Share = Field(
        0.2, description="The largest share of a group that is replaced at once; one machine always may be."
    )


class MassAbsence(Section):
    """Doubts a list that misses many machines at once, until that has lasted or an operator accepts it.

    Until then the machines count as present. A machine whose node is not ready counts as gone.
    """

    share: Share = Field(0.2, description="The share of a cloud's machines that may be missing at once.")
    few: Annotated[StrictInt, Field(ge=0), Kind("whole number")] = Field(
        2, description="This number of machines may always be missing, whatever their share."
    )
    hold: Duration = Field(
        timedelta(minutes=10),
        description="For how long more than that must be missing. Keep it below the autoscaler's 15 minutes "
        "(`--max-node-provision-time`): it takes held machines without nodes for machines that still boot.",
    )
    lists: Annotated[StrictInt, Field(ge=1), Kind("whole number")] = Field(
        5, description="How many lists in a row must miss them."
    )


class Orphans(Section):
    """Machines in a cloud that carry our marks and are not in the journal."""

    delete: StrictBool = Field(
        False, description="Delete them automatically. Otherwise they are only reported: see `cloudgraft orphans`."
    )


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        host = parts.hostname if parts.scheme in {"http", "https"} and value.isprintable() else None
    except ValueError:
        host = None
    if not host or " " in value:
        raise refuse("must be a URL", "for example https://alerts.example/cloudgraft")
    if "@" in value.split("/")[2]:
        raise refuse("must not hold a user or password", "write the secret to a file and name it in tokenFile")
    if value.startswith("http:") and not is_loopback_host(host):
        raise refuse("must be https unless it is on this host", "for example https://alerts.example/cloudgraft")
    return value


_Url = Annotated[StrictStr, AfterValidator(_url), Kind("URL")]


class Webhook(Section):
    """A URL that gets warnings and errors, as JSON in a POST. Delivery is retried a few times and delays nothing."""

    url: _Url = Field(description="Where to.", examples=["https://alerts.example/cloudgraft"])
    token_file: ReadableFile | None = Field(
        None, description="A file with a token that is sent as `Authorization: Bearer …`."
    )
    headers_file: ReadableFile | None = Field(
        None, description="A file with other headers, one `Name: value` per line, for secret values."
    )
    kinds: tuple[Text, ...] = Field(
        (),
        description="Kinds of events that are sent too although they are no warnings; the reference of events "
        "lists all kinds.",
        examples=["[increase, delete]"],
    )


class Engine(Section):
    """Rules for the machines of all clouds. They apply to `nodeGroups` only, not to the groups of `providers`."""

    create_deadline: PositiveDuration = Field(
        timedelta(minutes=10), description="How long a machine may take until it runs; then it counts as failed."
    )
    join_deadline: PositiveDuration = Field(
        timedelta(minutes=15),
        description="How long the node of a running machine may take to join the cluster, where that can be seen; then "
        "it counts as failed.",
    )
    failed_ttl: Duration = Field(
        timedelta(minutes=20),
        alias="failedTTL",
        description="How long a failed machine is shown to an autoscaler that does not delete it.",
    )
    node_memory: Duration = Field(
        timedelta(minutes=30),
        description="How long the node of a machine that is gone still belongs to its group, where cloudgraft cannot "
        "see that the node is gone too; at most a day.",
    )
    first_list_timeout: PositiveDuration = Field(
        timedelta(minutes=2),
        description="How long calls are refused after a start while a cloud that is new to the journal has not been "
        "listed; then they are answered without that cloud's groups. Less than 5m. A restart with a good journal "
        "waits for nothing.",
    )
    repair: Repair = Field(Repair(), description="When dead machines are replaced.")
    mass_absence: MassAbsence = Field(
        MassAbsence(), description="When to doubt a list that misses many machines at once."
    )
    orphans: Orphans = Field(Orphans(), description="What to do with machines that carry our marks but have no record.")
    gpu_label: LabelKey | None = Field(
        None, description="The label that nodes with a GPU carry.", examples=["example.com/gpu"]
    )
    webhook: Webhook | None = Field(None, description="A URL that gets warnings and errors.")

    @field_validator("first_list_timeout")
    @classmethod
    def _check_first_list(cls, value: timedelta) -> timedelta:
        if value >= timedelta(minutes=5):
            raise refuse("must be less than 5 minutes: no group is served meanwhile", "for example 2m")
        return value

    @field_validator("node_memory")
    @classmethod
    def _check_memory(cls, value: timedelta) -> timedelta:
        if value > timedelta(days=1):
            raise refuse(
                "must be at most a day, for as long as machines that are gone are kept at least", "for example 1h"
            )
        return value


# -- guards ------------------------------------------------------------------------------------------------------------


_Count = Annotated[StrictInt, Kind("whole number")]


class Guards(Section):
    """Limits that are checked before a machine is created or deleted.

    A group that reaches a limit on creation reports its machines as failed, so that the autoscaler tries other groups.
    """

    max_machines: _Count | None = Field(None, ge=0, description="Machines at a time.")
    max_creates_per_hour: _Count | None = Field(None, ge=0, description="Machines created in any 60 minutes.")
    max_deletes_per_hour: _Count | None = Field(
        None,
        ge=0,
        description="Machines deleted in any 60 minutes without a request of the autoscaler or an operator: failed, "
        "broken, duplicate and orphaned ones. More wait.",
    )
    max_spend_per_day: MoneyPerDay | None = Field(
        None, description="What all machines may cost in any 24 hours. Every group then needs a price."
    )
