"""Defines the kit's settings for a driver: what to create, time limits, and how to provoke errors."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from cloudgraft.sdk.blocking import BlockingDriver
from cloudgraft.sdk.driver import Driver
from cloudgraft.sdk.errors import InvalidArgumentError

AnyDriver = Driver | BlockingDriver


class Trouble(enum.Enum):
    """A failure of the cloud, if the author can provoke it: with a fake cloud, or with other options."""

    QUOTA = "quota"  # the account may not have one more machine
    STOCK_OUT = "stock-out"  # the cloud has none of this kind
    RATE_LIMIT = "rate limit"  # it asks for fewer calls
    AUTHENTICATION = "authentication"  # it does not accept the credentials
    AWAY = "away"  # it cannot be reached
    ERROR_AFTER = "5xx after it was done"  # it makes the machine, and answers with 500, 502, 503 or 504
    LOST_ANSWER = "lost answer"  # it makes the machine, and closes the connection without an answer


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSettings:
    """How one driver is judged. Most drivers need only ``machine``."""

    machine: Mapping[str, object] = field(default_factory=dict)  # the `machine:` section of a group
    # One that the cloud must refuse; by default `machine` with a shape that does not exist, if it has one.
    wrong_machine: Mapping[str, object] | None = None
    at_once: int = 10  # machines that are created at the same time; the account must have room for two more
    page_size: int = 0  # of the cloud's list, to have one machine more than a page; 0: unknown
    interruptions: int = 8  # creates that are given up in the middle
    is_lasting: bool = True  # False: the machines live in the driver, and are gone with it
    call_timeout: timedelta = timedelta(seconds=60)  # for each call
    patience: timedelta = timedelta(seconds=60)  # for what should happen soon, but at no time that was declared
    boot_time: timedelta = timedelta(minutes=10)  # from create to RUNNING, at most
    # How much later the cloud may carry out a call that was given up; waited for where create is not idempotent.
    late: timedelta = timedelta(seconds=2)
    secrets: Sequence[str] = field(default=(), repr=False)  # of the options that make_driver uses
    # A driver whose cloud is in this trouble; None when that cannot be had.
    troubled: Callable[[Trouble], AnyDriver | None] | None = None
    # Ends the program that does the driver's work, as kill -9 would; for drivers that are processes of their own.
    crash: Callable[[Driver], Awaitable[None]] | None = None
    seed: int = 0  # of the moments at which calls are given up

    def __post_init__(self) -> None:
        """Refuses settings that cannot work."""
        if self.at_once < 2 or self.interruptions < 1 or self.page_size < 0:
            raise InvalidArgumentError("at_once must be 2 or more, interruptions 1 or more, page_size 0 or more")
        if min(self.call_timeout, self.patience, self.boot_time) <= timedelta(0) or self.late < timedelta(0):
            raise InvalidArgumentError("call_timeout, patience and boot_time must be more than zero, late not negative")

    @property
    def most_machines(self) -> int:
        """The most machines that the kit has at the same time, leaving out those that are being deleted."""
        return max(self.at_once + 2, self.interruptions + 2, self.page_size + 1)

    def within(self, machines: int) -> DriverSettings:
        """The same with at most so many machines at the same time; at least four."""
        room = max(machines, 4) - 2
        page_size = self.page_size if self.page_size < machines else 0
        return replace(
            self, at_once=min(self.at_once, room), interruptions=min(self.interruptions, room), page_size=page_size
        )

    def wrong(self) -> Mapping[str, object] | None:
        """The section that must be refused; None when none is known."""
        if self.wrong_machine is None and "shape" in self.machine:
            return {**self.machine, "shape": "conformance-no-such-shape"}
        return self.wrong_machine
