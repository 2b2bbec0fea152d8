"""The simulated cloud of one life, outside of the process under test: what happens there outlives every crash."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Self

from cloudgraft.simcloud.chaos import Chaos
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.http.server import HttpServer
from cloudgraft.simcloud.options import MachineSettings, SimulatedOptions
from cloudgraft.simcloud.records import LedgerEntry, Order
from tests.crash.setting import CLUSTER, Variant

# Machines that are not ours, however much they look like it.
_STRANGERS = (
    Order(name="db-1", settings=MachineSettings(shape="large")),
    Order(name=f"{CLUSTER}-web-1", settings=MachineSettings(shape="small"), tags={"owner": "someone"}),
    Order(
        name="other-web-1",
        settings=MachineSettings(shape="small"),
        tags={"cloudgraft-cluster": "other", "cloudgraft-cluster-id": "zzzzzzzzzz", "cloudgraft-group": "web"},
    ),
)


class LastingCloud:
    """A cloud behind a port, with its ledger in a file and strangers' machines in it."""

    def __init__(self, directory: Path, variant: Variant) -> None:
        lag = timedelta(seconds=variant.list_lag)
        step = timedelta(milliseconds=30)
        self.cloud = SimulatedCloud(
            SimulatedOptions(
                state_file=directory / "ledger.db",
                idempotency=variant.idempotency,
                list_lag=lag,
                boot_time=step,
                delete_time=step,
            )
        )
        if not self.cloud.machines():
            for order in _STRANGERS:
                self.cloud.create(order)
        names = {order.name for order in _STRANGERS}
        self.strangers = [entry.machine_id for entry in self.cloud.ledger() if entry.name in names]
        self._server = HttpServer(self.cloud)
        self._server.start()

    @property
    def url(self) -> str:
        return self._server.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()
        self.cloud.close()

    def chaos(self, **chaos: object) -> None:
        """From now on this goes wrong, and nothing else; keys as in JSON."""
        self.cloud.set_chaos(Chaos.from_json(chaos))

    def ours(self) -> list[LedgerEntry]:
        """Every machine that was ever made in our name, oldest first."""
        return [entry for entry in self.cloud.ledger() if entry.machine_id not in self.strangers]

    def live(self) -> list[LedgerEntry]:
        """Those that are there and not going."""
        return [entry for entry in self.ours() if entry.state not in ("deleting", "gone")]

    def harmed(self) -> Sequence[str]:
        """Strangers' machines that somebody wanted to delete."""
        entries = {entry.machine_id: entry for entry in self.cloud.ledger()}
        return [id_ for id_ in self.strangers if entries[id_].deletes or entries[id_].state != "running"]
