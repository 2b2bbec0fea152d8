"""Creates one machine, measures when the list shows it, and deletes it again: what traits declare, compared.

The machine has the mark of a cluster that does not exist, so no engine takes it for its own. It gets no user data and
never joins. It is deleted whatever happens, also after Ctrl-C; its name is known before it is created. No answer of a
driver proves that nothing was created: after every failed create, lists settle whether the machine is there.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from cloudgraft.engine.groups.desired import GroupDeclaration
from cloudgraft.engine.groups.specs import CloudSettings, create_limit
from cloudgraft.engine.machines.identity import Identity
from cloudgraft.engine.machines.outcomes import check_created
from cloudgraft.engine.reconcile.calls import Caller
from cloudgraft.sdk.common.backoff import Backoff
from cloudgraft.sdk.common.causes import cause
from cloudgraft.sdk.common.event_loop import within
from cloudgraft.sdk.driver import Driver, Machine, MachineSpec, Ownership
from cloudgraft.sdk.duration import format_duration
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, InternalError

T = TypeVar("T")
_PATIENCE: Final = 300.0  # seconds, beside the declared delay, for a machine to appear, and to be gone
_MARGIN: Final = 15.0  # seconds, beside the declared delay, for a machine to appear of which create() did not answer
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"


@dataclass(slots=True, kw_only=True)
class TrialResult:
    """What was measured, in seconds; None for what was not reached."""

    group: str
    machine: str
    create_seconds: float | None = None
    missing_for: float = 0.0  # the last list without it began so long after create() ended: the delay is longer
    shown_after: float | None = None  # the first list with it ended so long after create() ended: the delay is shorter
    delete_seconds: float | None = None  # from delete() to the first list without it
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)  # what the check could not settle, and is no fault of the driver


class Trial:
    """One machine of one group."""

    def __init__(
        self, driver: Driver, caller: Caller, settings: CloudSettings, group: GroupDeclaration, *, cluster: str
    ) -> None:
        """``caller`` makes the lists; ``settings`` are those of the file, with its time limits."""
        self._driver = driver
        self._caller = caller
        self._settings = settings
        self._mark = mark = Identity(f"check-of-{cluster}", "".join(secrets.choice(_ALPHABET) for _ in range(10)))
        name = mark.new_name(group.id)
        self._spec = MachineSpec(name=name, group=group.id, settings=group.machine, tags=mark.tags(name, group.id))
        self._created: Machine | None = None
        self._refusal: CloudgraftError | None = None  # why create() did not answer with a machine
        self._was_shown = False  # whether a list has shown the machine
        self._is_absent = False  # create() failed, and the lists showed for long enough that nothing was created
        self.result = TrialResult(group=group.id, machine=name)

    async def run(self, tell: Callable[[str], None]) -> TrialResult:
        """Creates, waits, deletes. Errors are in the result; a cancellation deletes the machine first."""
        tell(f"create {self.result.machine}")
        creating = asyncio.create_task(self._create())
        try:
            # A call that was sent cannot be taken back, so it ends even when this task is cancelled.
            ended = await asyncio.shield(creating)
            tell(f"wait for {self.result.machine} in the list")
            await self._appear(ended)
        finally:
            if not creating.done():
                tell(f"wait for the end of create {self.result.machine}")
                await asyncio.shield(creating)
            if not self._is_absent:
                tell(f"delete {self.result.machine}")
                await self._remove()
            self._judge_refusal()
        return self.result

    async def _create(self) -> float:
        """Returns when the call ended."""
        began = time.monotonic()
        limit = create_limit(self._settings, self._driver.traits)
        try:
            answer = await self._limited("create", limit, lambda: self._driver.create(self._spec))
            self._created = check_created(answer, self._spec.name)
        except CloudgraftError as error:
            self._refusal = error
            return time.monotonic()
        ended = time.monotonic()
        self.result.create_seconds = ended - began
        return ended

    def _judge_refusal(self) -> None:
        """Compares what create() raised with what the lists showed afterwards."""
        refusal, name = self._refusal, self._spec.name
        if refusal is None:
            return
        shown = "the machine is there" if self._was_shown else "no list showed the machine"
        if isinstance(refusal, DeadlineError):  # what a right driver raises when it does not know
            self.result.warnings.append(
                f"create gave no certain answer ({refusal.message}), and {shown}: "
                + (
                    "its time in the list is measured from the end of the call"
                    if self._was_shown
                    else self._unsettled()
                )
            )
        elif refusal.leaves_open:
            more = "" if self._was_shown else f"; {self._unsettled()}"
            self.result.errors.insert(0, f"create failed: {refusal.message}; {shown}{more}")
        elif self._was_shown:
            self.result.errors.insert(
                0,
                f"create failed: {refusal.message}; with {type(refusal).__name__} the driver says that nothing was "
                f"done, but the machine {name} is there: raise DeadlineError unless it is certain that nothing was "
                "done, else a retry buys a second machine",
            )
        else:
            self.result.errors.insert(0, f"create failed: {refusal.message}")

    def _unsettled(self) -> str:
        return f"nothing was measured; look in the cloud's own console whether {self._spec.name} appears later"

    async def _appear(self, ended: float) -> None:
        """Waits for the machine in the list, and compares what the list shows with the traits."""
        declared = self._driver.traits.list_delay.total_seconds()
        patience = declared + (_PATIENCE if self._refusal is None else _MARGIN)
        pause = Backoff(first=0.1, longest=2.0)
        while True:
            began = time.monotonic()
            try:
                found = await self._found()
            except CloudgraftError as error:
                self.result.errors.append(f"a list failed while the machine was awaited: {error.message}")
                return
            if found:
                break
            self.result.missing_for = began - ended
            if began - ended > patience:
                self._is_absent = self._refusal is not None
                if not self._is_absent:
                    self.result.errors.append(
                        f"no list shows the machine {began - ended:.0f} s after it was created: does list() read all "
                        "pages?"
                    )
                return
            await asyncio.sleep(pause.next())
        self.result.shown_after = time.monotonic() - ended
        self._compare(found, declared)

    def _compare(self, found: Sequence[Machine], declared: float) -> None:
        traits, errors = self._driver.traits, self.result.errors
        if self.result.missing_for > declared:
            # A cloud may still be at work when create() ends without an answer, so that proves no wrong delay.
            (errors if self._refusal is None else self.result.warnings).append(
                f"list_delay is {format_duration(traits.list_delay)}, but a list that began "
                f"{self.result.missing_for:.1f} s after create() ended did not show the machine: declare the longest "
                "delay that the cloud can have (traits.list_delay, or the option listDelay), else a lost answer buys a "
                "second machine"
            )
        if len(found) > 1:
            errors.append(f"one create() made {len(found)} machines of the name {self._spec.name}")
        lost = [key for key, value in self._spec.tags.items() if found[0].tags.get(key) != value]
        if traits.ownership is Ownership.TAGS and lost:
            errors.append(
                f"ownership is by tags, but the list does not show {', '.join(lost)}: such a machine is never deleted"
            )
        told, pattern = found[0].provider_id, traits.provider_id
        if pattern and told is not None and told != pattern.replace("{name}", self._spec.name):
            errors.append(f"provider_id is declared as {pattern}, but the list shows {told}")

    # -- removal -------------------------------------------------------------------------------------------------------

    async def _remove(self) -> None:
        """Deletes the machine, and any other of its name, and waits until they are gone."""
        began = time.monotonic()
        delay = self._driver.traits.list_delay.total_seconds()
        if self._refusal is not None and not self._was_shown:
            delay += _MARGIN
        patience = delay + _PATIENCE + self._settings.delete_timeout.total_seconds()
        deleted: dict[str, float] = {}  # the ids for which delete() ended, and when
        pause, trouble = Backoff(first=0.1, longest=5.0), ""
        while (looked := time.monotonic()) - began < patience:
            try:
                found = await self._found()
                if self._created is not None and self._created.machine_id not in deleted:
                    found = [self._created, *found]  # the list may not show it yet
                elif not found and looked >= max(deleted.values(), default=began) + delay:
                    self.result.delete_seconds = looked - min(deleted.values()) if deleted else None
                    return
                for machine in found:
                    if machine.machine_id not in deleted:
                        await self._delete(machine)
                        deleted[machine.machine_id] = time.monotonic()
                trouble = ""
            except CloudgraftError as error:  # it is tried again
                trouble = f" ({error.message})"
            await asyncio.sleep(pause.next())
        self.result.errors.append(
            f"the machine {self._spec.name} may still exist{trouble}: delete it in the cloud's own console"
        )

    async def _delete(self, machine: Machine) -> None:
        seconds = self._settings.delete_timeout.total_seconds()
        await self._limited("delete", seconds, lambda: self._driver.delete(machine))

    async def _found(self) -> list[Machine]:
        """The machines of our name, or with our mark: its id is of this run alone."""
        listed = await self._caller.list()
        found = [machine for machine in listed if machine.name == self._spec.name or self._mark.looks_ours(machine)]
        self._was_shown = self._was_shown or bool(found)
        return found

    async def _limited(self, verb: str, seconds: float, call: Callable[[], Awaitable[T]]) -> T:
        late = f"no answer to {verb} within {seconds:g} s"

        def failed(error: Exception) -> CloudgraftError:
            return InternalError(f"the driver failed in {verb} with {cause(error)}")

        return await within(seconds, call, late=lambda: DeadlineError(late), failed=failed)
