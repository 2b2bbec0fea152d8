"""Defines the options of the driver ``static``: machines, and the commands that switch them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from cloudgraft.drivers.exec.options import Command, CommandOptions
from cloudgraft.drivers.hosts.inventory import Source, refuse_bad_id, refuse_twins
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Ownership, ProviderIdBy, StateFile
from cloudgraft.sdk.flaws import Flaws

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One machine of the list."""

    id: str
    providerID: str = ""  # noqa: N815 - spelt as Kubernetes spells it. Without it: static://ID
    addresses: Sequence[str] = ()  # IP addresses and host names by which its node may be known
    labels: Mapping[str, str] = field(default_factory=dict)  # for the selection by groups; not the node's labels
    group: str = ""  # the only group that it serves; empty: any
    vars: Mapping[str, str] = field(default_factory=dict, repr=False)  # for the commands, such as bmc: 10.0.0.7
    var_files: Mapping[str, Path] = field(default_factory=dict)  # the same from files: for secrets

    def __post_init__(self) -> None:
        """Refuses invalid values."""
        flaws = Flaws()
        with flaws.at("id"):
            refuse_bad_id(self.id)
        for key, names in {"vars": self.vars, "varFiles": self.var_files}.items():
            for name in names:
                is_name = _NAME.fullmatch(name)
                flaws.expect(is_name, key, f"{name!r} is no name for a variable: letters, digits and _")
        flaws.raise_any()

    @property
    def provider_id(self) -> str:
        """The providerID of its node."""
        return self.providerID or f"static://{self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """The ``machine:`` section of a group: which of the machines it may have."""

    select: Mapping[str, str] = field(default_factory=dict)  # labels that a machine must have


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerTimeouts:
    """The timeout of each command. Shorter than the engine's, so that the last output of a command is not lost."""

    power_on: timedelta = timedelta(seconds=110)
    power_off: timedelta = timedelta(seconds=110)
    power_state: timedelta = timedelta(seconds=20)

    def __post_init__(self) -> None:
        """Refuses timeouts of zero or less."""
        flaws = Flaws()
        flaws.expect_positive(powerOn=self.power_on, powerOff=self.power_off, powerState=self.power_state)
        flaws.raise_any()


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticOptions(CommandOptions):
    """A list of machines, and the commands that switch them."""

    power_on: Command
    power_off: Command
    power_state: Command | None = None  # prints `on` or `off` as its last word
    machines: Sequence[Host] = ()
    machines_file: Path | None = None  # the same in a separate file, YAML or JSON; both may be used together
    state_file: StateFile = None  # where the assignments of machines are stored; None: beside the journal
    timeouts: PowerTimeouts = field(default_factory=PowerTimeouts)
    power_on_time: timedelta = timedelta(minutes=2)  # how long a machine that was powered on may still look off
    power_off_time: timedelta = timedelta(minutes=5)  # how long one may still be on; then the order is repeated
    providerIDBy: ProviderIdBy = ProviderIdBy.CLOUDGRAFT  # noqa: N815 - spelt as Kubernetes spells it
    user_data_limit: int | None = None  # bytes that powerOn can pass on; None: no limit

    def flaws(self) -> Flaws:
        """Returns the validation errors."""
        flaws = CommandOptions.flaws(self)  # super() does not work: a dataclass with slots is a new class
        flaws.expect_not_negative(
            powerOnTime=self.power_on_time, powerOffTime=self.power_off_time, userDataLimit=self.user_data_limit
        )
        is_said = self.machines or self.machines_file is not None
        flaws.expect(is_said, "machines", "say here, or in a machinesFile, which machines there are")
        with flaws.at("machines"):
            refuse_twins(self.machines)
        return flaws

    def given(self) -> Mapping[str, Command]:
        """Returns all commands."""
        state = {"powerState": self.power_state} if self.power_state is not None else {}
        return {"powerOn": self.power_on, "powerOff": self.power_off, **state}

    def source(self) -> Source[Host]:
        """Returns the places where machines are listed."""
        return Source(given=self.machines, file=self.machines_file, key="machines", kind=Host)

    def traits(self) -> DriverTraits:
        """Returns the traits. The driver itself stores which name has which machine."""
        return DriverTraits(
            ownership=Ownership.INVENTORY,
            idempotency=Idempotency.TOKEN,
            provider_id_by=self.providerIDBy,
            user_data_limit=self.user_data_limit,
        )
