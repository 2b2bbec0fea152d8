"""Creates one machine, measures when the list shows it, and deletes it again: what traits declare, compared.

The machine has the mark of a cluster that does not exist, so no engine takes it for its own. It gets no user data and
never joins. It is deleted whatever happens, also after Ctrl-C; its name is known before it is created.
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


class Trial:
    """One machine of one group."""

    def __init__(
        self, driver: Driver, caller: Caller, settings: CloudSettings, group: GroupDeclaration, *, cluster: str
    ) -> None:
        """``caller`` makes the lists; ``settings`` are those of the file, with its time limits."""
        self._driver = driver
        self._caller = caller
        self._settings = settings
        mark = Identity(f"check-of-{cluster}", "".join(secrets.choice(_ALPHABET) for _ in range(10)))
        name = mark.new_name(group.id)
        self._spec = MachineSpec(name=name, group=group.id, settings=group.machine, tags=mark.tags(name, group.id))
        self._created: Machine | None = None
        self.result = TrialResult(group=group.id, machine=name)

    async def run(self, tell: Callable[[str], None]) -> TrialResult:
        """Creates, waits, deletes. Errors are in the result; a cancellation deletes the machine first."""
        tell(f"create {self.result.machine}")
        creating = asyncio.create_task(self._create())
        may_exist = True
        try:
            # A call that was sent cannot be taken back, so it ends even when this task is cancelled.
            may_exist, ended = await asyncio.shield(creating)
            if not self.result.errors:
                tell(f"wait for {self.result.machine} in the list")
                await self._appear(ended)
        finally:
            if not creating.done():
                tell(f"wait for the end of create {self.result.machine}")
                may_exist, _ = await asyncio.shield(creating)
            if may_exist:
                tell(f"delete {self.result.machine}")
                await self._remove()
        return self.result

    async def _create(self) -> tuple[bool, float]:
        """Whether the machine may exist, and when the call ended."""
        began = time.monotonic()
        limit = create_limit(self._settings, self._driver.traits)
        try:
            answer = await self._limited("create", limit, lambda: self._driver.create(self._spec))
            self._created = check_created(answer, self._spec.name)
        except CloudgraftError as error:
            self.result.errors.append(f"create failed: {error.message}")
            return error.leaves_open, time.monotonic()
        ended = time.monotonic()
        self.result.create_seconds = ended - began
        return True, ended

    async def _appear(self, ended: float) -> None:
        """Waits for the machine in the list, and compares what the list shows with the traits."""
        declared = self._driver.traits.list_delay.total_seconds()
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
            if began - ended > declared + _PATIENCE:
                self.result.errors.append(
                    f"no list shows the machine {began - ended:.0f} s after it was created: does list() read all pages?"
                )
                return
            await asyncio.sleep(pause.next())
        self.result.shown_after = time.monotonic() - ended
        self._compare(found, declared)

    def _compare(self, found: Sequence[Machine], declared: float) -> None:
        traits, errors = self._driver.traits, self.result.errors
        if self.result.missing_for > declared:
            errors.append(
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
        return [machine for machine in await self._caller.list() if machine.name == self._spec.name]

    async def _limited(self, verb: str, seconds: float, call: Callable[[], Awaitable[T]]) -> T:
        late = f"no answer to {verb} within {seconds:g} s"

        def failed(error: Exception) -> CloudgraftError:
            return InternalError(f"the driver failed in {verb} with {cause(error)}")

        return await within(seconds, call, late=lambda: DeadlineError(late), failed=failed)
