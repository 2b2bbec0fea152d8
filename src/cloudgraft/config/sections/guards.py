"""Defines the `guards` section, of the whole file and of one cloud: limits on what a mistake may cost."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictInt

from cloudgraft.config.fields import Kind, MoneyPerDay
from cloudgraft.config.section import Section

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
