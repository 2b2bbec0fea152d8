"""Defines the `clouds` section: where machines are made.

A driver's own options stand beside `driver`. The engine's settings for the cloud stand under `engine`, so that the two
cannot be confused. A driver therefore has no options named `driver` or `engine`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StrictBool, StrictInt, StrictStr, Tag

from cloudgraft.config.fields import Kind, PositiveDuration, chosen_by, installed
from cloudgraft.config.section import Section
from cloudgraft.config.sections.engine import Guards
from cloudgraft.config.sections.process import Backoff, PluginProcess
from cloudgraft.sdk.list_budget import MOST_BYTES, MOST_MACHINES


class CallBackoff(Backoff):
    """How long to wait before a failed call is retried; the time doubles with each failure."""

    initial: PositiveDuration = Field(timedelta(seconds=1), description="The first wait.")


class CloudEngine(Section):
    """The engine's settings for one cloud."""

    observe_every: PositiveDuration = Field(timedelta(seconds=10), description="How often its machines are listed.")
    list_timeout: PositiveDuration = Field(timedelta(minutes=1), description="The time limit of a list.")
    max_list_machines: Annotated[StrictInt, Kind("whole number")] = Field(
        MOST_MACHINES,
        ge=1,
        le=10_000_000,
        description="The most machines that a list may have. A list with more is an error, and changes nothing.",
    )
    max_list_bytes: Annotated[StrictInt, Kind("whole number")] = Field(
        MOST_BYTES,
        ge=1024,
        le=1 << 36,
        description="The most bytes that may be read from the cloud for one list. A list with more is an error, and "
        "changes nothing.",
    )
    create_timeout: PositiveDuration | None = Field(
        None,
        description="The time limit of one call to create a machine. After it, a list shows the outcome. By default "
        "the time that the driver declares for its cloud (`liqo`: 10m), else 2m.",
    )
    delete_timeout: PositiveDuration = Field(
        timedelta(minutes=2), description="The time limit of one call to delete a machine."
    )
    max_calls: Annotated[StrictInt, Kind("whole number")] = Field(
        8, ge=1, le=1000, description="Concurrent calls to create or delete."
    )
    calls_per_second: Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False), Kind("number")] | None = Field(
        None, description="The rate limit of such calls per second; by default there is none."
    )
    backoff: CallBackoff = Field(CallBackoff(), description="When a failed call is retried.")
    observe_only: StrictBool = Field(
        False,
        description="Only observe: the engine lists this cloud, matches, decides and reports, but creates, deletes and "
        "marks nothing there, and writes nothing to its nodes.",
    )
    guards: Guards = Field(Guards(), description="Limits for this cloud, in addition to those for all clouds.")


class _Cloud(Section):
    engine: CloudEngine = Field(CloudEngine(), description="The engine's settings for this cloud.")


class PluginCloud(_Cloud, PluginProcess):
    """A driver that is a program in any language. cloudgraft starts, restarts and stops it."""

    driver: Literal["plugin"] = Field(description="`plugin`.")


class EntryPointCloud(_Cloud):
    """A driver from a Python package (entry-point group `cloudgraft.drivers`), in this process.

    Every other key is an option of the driver, which checks it.
    """

    model_config = ConfigDict(extra="allow")

    driver: Annotated[StrictStr, installed("driver", "driver_types", {"plugin"}), Kind("string")] = Field(
        description="Its name; `cloudgraft drivers` lists what is installed."
    )

    @property
    def options(self) -> Mapping[str, Any]:
        """The driver's own options."""
        return dict(self.model_extra or {})

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Omits the options, which may contain secrets."""
        return [(name, value) for name, value in super().__repr_args__() if name in type(self).model_fields]


CloudConfig = Annotated[
    Annotated[PluginCloud, Tag("driver=plugin")] | Annotated[EntryPointCloud, Tag("driver=…")],
    chosen_by("driver", {"plugin"}),
]
