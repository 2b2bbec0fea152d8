"""A simulated cloud behind a port, which can be made to hang and keeps the ledger."""

from __future__ import annotations

from typing import Self

from cloudgraft.sdk.driver import Idempotency
from cloudgraft.simcloud.chaos import Chaos
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.http.server import HttpServer
from cloudgraft.simcloud.options import SimulatedOptions
from cloudgraft.simcloud.outcomes import Operation, Outcome


class CountingCloud(SimulatedCloud):
    """Counts the creates that have reached it, also those that it keeps waiting."""

    asked = 0

    def outcome(self, operation: Operation) -> Outcome:
        if operation is Operation.CREATE:
            self.asked += 1
        return super().outcome(operation)


class HangingCloud:
    """A simulated cloud behind a port."""

    def __init__(self, idempotency: Idempotency = Idempotency.TOKEN) -> None:
        self.cloud = CountingCloud(SimulatedOptions(idempotency=idempotency))
        self.server = HttpServer(self.cloud)
        self.server.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.hangs(yes=False)
        self.server.stop()
        self.cloud.close()

    @property
    def url(self) -> str:
        return self.server.url

    def hangs(self, *, yes: bool) -> None:
        self.cloud.set_chaos(Chaos(hang=yes))

    def names(self) -> list[str]:
        return [machine.name for machine in self.cloud.machines()]
