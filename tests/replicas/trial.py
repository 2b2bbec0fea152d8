"""One run: replicas, clients and faults for a while; then what was answered is checked."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.conditions import until
from tests.replicas.checker import UndecidedError, check
from tests.replicas.clients import Notes, calling
from tests.replicas.cluster import Cluster
from tests.replicas.disturbances import FAULTS, Disturbances
from tests.replicas.history import History

_WEIGHTS = {"failover": 0.4}  # each is followed by a copy of the whole database


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What is to be done. The same seed chooses the same faults; processes are never bit by bit the same."""

    seed: int
    seconds: float = 60.0
    lease: float = 4.0  # a busy machine must not lose the lead for that alone
    faults: Sequence[str] = tuple(FAULTS)
    plan: Sequence[str] = ()  # exactly these faults, one after another, for as long as they take
    planted: str = ""  # a fault in the replicas themselves, which the checker is to find
    record: Path | None = None  # where the history is written before it is checked

    async def run(self, directory: Path) -> Result:
        notes, dice = Notes(), random.Random(self.seed)
        async with Cluster.started(directory, self.lease, self.planted) as cluster:
            await cluster.start()
            nemesis = Disturbances(cluster, notes, dice)
            async with calling(cluster, notes, self.seed):
                await self._torment(nemesis, dice)
                await until(cluster.has_leader, what="a replica leads at the end", seconds=120)
                await asyncio.sleep(1.0)
            history = notes.by_name(cluster.names())
            self._record(history)
            return Result(
                trial=self,
                history=history,
                calls=notes.calls,
                injected=nemesis.injected,
                elections=cluster.elections(),
                endings=sum((replica.endings() for replica in cluster.replicas), Counter()),
                wrong=[
                    *notes.wrong,
                    *(wrong for replica in cluster.replicas for wrong in replica.wrongs()),
                    *(f"two machines were made for {name}" for name in cluster.cloud.doubles()),
                    *_violations(history),
                ],
            )

    def _record(self, history: History) -> None:
        if self.record is not None:
            self.record.write_text(json.dumps(asdict(history), default=_plain, indent=1))

    async def _torment(self, nemesis: Disturbances, dice: random.Random) -> None:
        for fault in self.plan or self._chosen(dice):
            await asyncio.sleep(dice.uniform(0.5, 1.0) * self.lease)
            await nemesis.inject(fault)

    def _chosen(self, dice: random.Random) -> Iterator[str]:
        weights = [_WEIGHTS.get(fault, 1.0) for fault in self.faults]
        ends = time.monotonic() + self.seconds
        while time.monotonic() < ends:
            yield dice.choices(self.faults, weights)[0]


def _violations(history: History) -> list[str]:
    try:
        return [str(violation) for violation in check(history)]
    except UndecidedError as error:
        return [f"the history could not be checked: {error}"]


def _plain(value: object) -> object:
    return sorted(value) if isinstance(value, frozenset) else getattr(value, "value", str(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of it."""

    trial: Trial
    history: History
    calls: Counter[str]
    injected: Counter[str]
    elections: int
    endings: Counter[str]  # of reigns, by reason
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        by_outcome = Counter(what.rpartition(" ")[2] for what in self.calls.elements())
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(by_outcome.items()))
        faults = ", ".join(f"{count} {fault}" for fault, count in sorted(self.injected.items()))
        endings = ", ".join(f"{count} because {reason}" for reason, count in self.endings.most_common())
        return (
            f"seed {self.trial.seed}: {self.calls.total()} calls ({outcomes}), {len(self.history.operations)} checked; "
            f"{self.injected.total()} faults ({faults}); {self.elections} elections "
            f"(ended {endings or 'never'}); {len(self.wrong)} violations"
        )
