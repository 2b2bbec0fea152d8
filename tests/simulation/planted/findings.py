"""Takes away what was added after an audit had found ways to lose, double or destroy machines."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from cloudgraft.engine.machines.breaker import Turn
from cloudgraft.store.statements import Owner
from tests.simulation.planted.fault import both, plant, replaced

__all__: list[str] = []

Patch = AbstractContextManager[object]


@plant(
    "deadline-by-the-clock",
    "a booting machine fails by the clock alone, also while its cloud cannot be listed",
    finds="deleted-without-reason",
    seed=6,
    plan="20:nodes-late:east,300,850;47:lists-fail:east,3000,1,0",
)
def deadline_by_the_clock() -> Patch:
    def is_overdue(observation: Any, at: Any) -> bool:
        return bool(at.now - observation.since >= at.settings.create_deadline.total_seconds())

    return replaced("cloudgraft.engine.machines.decide._is_overdue", is_overdue)


@plant(
    "adopted-id-is-proof",
    "an adopted machine's id alone is proof of ownership, also after it is gone",
    finds="foreign-deleted",
    seed=6,
    plan="1000:adopted:a,900",
)
def adopted_id_is_proof() -> Patch:
    return replaced("cloudgraft.engine.machines.identity._is_as_adopted", lambda *_args, **_more: True)


@plant(
    "journal-of-another",
    "the journal of another cluster is believed",
    finds="foreign-deleted",
    seed=7,
    plan="2000:journal-foreign:20,6000",
    hours=8,
)
def journal_of_another() -> Patch:
    def owner_of(_label: str, stored: Owner | None, beside: str | None, configured: Any) -> Owner:
        return stored or Owner(configured.cluster_id or beside or "alphaalpha", configured.cluster)

    return replaced("cloudgraft.store.identity.owner_of", owner_of)


@plant(
    "no-brake",
    "a list that misses all machines is believed",
    finds="mass-absence-believed",
    seed=6,
    plan="3000:lists-empty:east,200,1,0",
)
def no_brake() -> Patch:
    return replaced("cloudgraft.engine.machines.breaker.Breaker.look", lambda *_args, **_kwargs: Turn.NONE)


@plant(
    "clock-of-the-wall",
    "the engine's clock is the wall clock, jumps included",
    finds="stuck",
    seed=6,
    plan="44:clock-jumps:-21600,12000,3",
    hours=8,
)
def clock_of_the_wall() -> Patch:
    return both(
        replaced("cloudgraft.engine.clock.SystemClock.now", lambda self: self._wall()),
        replaced("cloudgraft.engine.clock.SystemClock.go_on", lambda *_args: None),
    )


@plant(
    "no-locks-on-the-journal",
    "a second server may open a live journal, and no epoch is checked",
    finds="two-leaders",
    seed=20,
    plan="3500:second-server:9000",
    hours=6,
)
def no_locks() -> Patch:
    return both(
        replaced("cloudgraft.store.databases.filelock.FileLock._lock", lambda *_args: True),
        replaced("cloudgraft.store.databases.filelock.InodeLock._lock", lambda *_args: None),
        replaced("cloudgraft.store.databases.filelock.InodeLock._ours", _Forgetful()),
        replaced("cloudgraft.store.sql.check_fence", lambda *_args: None),
    )


@plant(
    "checksums-ignored",
    "a record is believed although it does not match its checksum",
    finds="damage-believed",
    seed=6,
    plan="2000:record-flip:20,3",
)
def checksums_ignored() -> Patch:
    return replaced("cloudgraft.store.rows.Seal.is_sound", lambda *_args: True)


@plant(
    "open-before-the-first-list",
    "calls are answered before the clouds were listed",
    finds="group-missing",
    seed=1,
)
def open_before_the_first_list() -> Patch:
    return replaced("cloudgraft.engine.startup_gate.StartupGate.begin", lambda *_, **__: None)


class _Forgetful(set[object]):
    def __contains__(self, _item: object) -> bool:
        return False


@plant(
    "lease-never-ends",
    "a leader that was frozen past its lease still takes itself for the leader",
    finds="two-leaders",
    seed=20,
    plan="".join(f"{at}:freeze:200;" for at in range(3500, 9000, 601)),
    hours=6,
    replicas=2,
)
def lease_never_ends() -> Patch:
    def is_leader(self: Any) -> bool:
        return bool(self._deadline != float("-inf"))

    return replaced("cloudgraft.engine.leadership.Leadership.is_leader", is_leader)
