"""What is to be seen of a router over two clouds, by a real server that is killed, and by the clouds' own ledgers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from clouds.servers.simclouds import SimcloudServer
from e2e.cloudgraft_process import CloudgraftServer
from e2e.waiting import until

__all__ = ["CAPACITY", "RouterChecks", "clouds_of", "router_section"]

CAPACITY: Final = {"cpu": "1", "memory": "1Gi", "pods": "100", "ephemeral-storage": "10Gi"}
_SECONDS: Final = 60.0
_MOMENTS: Final = (0.0, 0.3, 0.6, 0.9, 1.2)  # seconds after the journal says that a cloud is asked; a create takes 1


def clouds_of(rack: SimcloudServer, burst: SimcloudServer) -> dict[str, dict[str, Any]]:
    """The two, as clouds of a configuration."""
    engine = {"observeEvery": "1s", "backoff": {"initial": "100ms", "max": "1s"}}
    return {
        name: {"driver": "simulated", "url": cloud.url, "timeout": "2s", "engine": engine}
        for name, cloud in (("rack", rack), ("burst", burst))
    }


def router_section(**changes: Any) -> dict[str, Any]:
    """The router over them: first the one, then the other."""
    backends = [{"cloud": "rack", "machine": {"shape": "small"}}, {"cloud": "burst", "machine": {"shape": "medium"}}]
    engine = {"observeEvery": "1s", "createTimeout": "4s", "backoff": {"initial": "100ms", "max": "1s"}}
    section = {"driver": "router", "shapes": {"any": backends}, "coolDown": "1s", "listTimeout": "5s"}
    return {**section, "engine": engine, **changes}


@dataclass(slots=True)
class RouterChecks:
    """The checks; each begins and ends with two empty clouds in which nothing goes wrong."""

    directory: Path
    rack: SimcloudServer
    burst: SimcloudServer
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def all(self) -> Mapping[str, Callable[[], None]]:
        """By what each of them shows."""
        return {
            "a stock-out falls through within one create": self.stock_out,
            "an unknown outcome never doubles": self.unknown_outcomes,
            "kill -9 in mid-create in either cloud: one machine": self.killed_in_mid_create,
            "one cloud is away: the other works, nothing is dropped": self.one_is_away,
            "a group of its own in a cloud of the router": self.shared_account,
            "clouds that differ are refused at the start": self.misfits,
        }

    def stock_out(self) -> None:
        """The machine is asked for once, and no error is ever shown."""
        with self._server() as server:
            self.rack.chaos(stock={"small": 0})
            self._grow(server, 2)
            assert len(self.burst.alive()) == 2, self.burst.alive()
            attempts = [int(row["attempts"]) for row in server.journal().alive().values()]
            assert attempts == [1, 1], attempts
            self.rack.chaos()
            self._empty(server)

    def unknown_outcomes(self) -> None:
        """Answers that are lost after the machine was made, before it was, and long after the call."""
        with self._server() as server:
            for cloud, fault in itertools.product((self.rack, self.burst), ("lost", "dropped", "errorsAfter", "late")):
                if cloud is self.burst:
                    self.rack.chaos(stock={"small": 0})
                cloud.chaos(create={fault: {"next": 1}}, lateBy=1.5)
                before = self._made()
                self._grow(server, 1)
                assert self._made() - before == 1, f"{fault} in {cloud.name}: {self._made() - before} machines"
                self._calm()
                self._empty(server)

    def killed_in_mid_create(self) -> None:
        """Before the call, while it is under way, and after it, with the first cloud full or not."""
        for is_full, moment in itertools.product((False, True), _MOMENTS):
            with self._server() as server:
                asked = self.burst if is_full else self.rack
                if is_full:
                    self.rack.chaos(stock={"small": 0})
                asked.chaos(create={"latency": 1.0})
                before = self._made()
                server.call("NodeGroupIncreaseSize", {"id": "any", "delta": 1})
                until(lambda: "creating" in self._states(server), "a cloud is asked", seconds=_SECONDS)
                time.sleep(moment)
                server.kill()
                self._calm()
                server.start()
                self._await_running(server, 1)
                made, alive = self._made() - before, [*self.rack.alive(), *self.burst.alive()]
                assert (made, len(alive)) == (1, 1), f"full: {is_full}, after {moment} s: {made} made, {alive} there"
                self._empty(server)

    def one_is_away(self) -> None:
        """Killed, not stopped: connections are refused. Also over a restart of the server."""
        with self._server() as server:
            self._grow(server, 2)
            assert len(self.rack.alive()) == 2
            self.rack.kill()
            try:
                until(lambda: self._is_down(server, "rack"), "it is told that it is down", seconds=_SECONDS)
                self._grow(server, 3)
                server.kill()
                server.start()
                self._grow(server, 4)
                assert len(self.burst.alive()) == 2
            finally:
                self.rack.start()
            until(lambda: not self._is_down(server, "rack"), "it is back", seconds=_SECONDS)
            assert self._states(server) == {"running": 4}, self._states(server)
            assert (len(self.rack.alive()), len(self.burst.alive())) == (2, 2)
            self._empty(server)

    def shared_account(self) -> None:
        """Machines of the one are no orphans of the other."""
        own = {"id": "own", "cloud": "rack", "maxSize": 5, "machine": {"shape": "small"}}
        with self._server(groups=(own,)) as server:
            self._grow(server, 1)
            server.call("NodeGroupIncreaseSize", {"id": "own", "delta": 1})
            until(lambda: server.states().get("own") == {"running": 1}, "it runs", seconds=_SECONDS, check=server.check)
            time.sleep(3)  # so that each cloud has been listed with all of them in it
            found = [cloud for cloud in server.status()["clouds"] if cloud.get("orphans")]
            assert not found, found
            self._empty(server, "own")
            self._empty(server)

    def misfits(self) -> None:
        """Shape and template: the group is left out, and status says why."""
        less = {**CAPACITY, "memory": "64Gi"}
        with self._server(capacity=less) as server:
            until(lambda: self._group(server).get("leftOut"), "it is left out", seconds=_SECONDS, check=server.check)
            why = self._group(server)["leftOut"]
            assert "template.capacity.memory is 64Gi, but rack/small has" in why, why
            assert "burst/medium has" in why, why

    # -- the server --------------------------------------------------------------------------------------------------

    @contextmanager
    def _server(
        self, *, groups: tuple[Mapping[str, Any], ...] = (), capacity: Mapping[str, str] = CAPACITY
    ) -> Iterator[CloudgraftServer]:
        home = self.directory / f"check-{next(self._numbers)}"
        home.mkdir()
        group = {"id": "any", "cloud": "any", "maxSize": 9, "machine": {"shape": "any"}}
        group["template"] = {"capacity": dict(capacity)}
        clouds = {**clouds_of(self.rack, self.burst), "any": router_section()}
        # A name of its own for each: a journal that is new would not touch what another one left behind.
        document = {"cluster": home.name, "clouds": clouds, "nodeGroups": [group, *groups]}
        server = CloudgraftServer(home, document)
        server.start()
        try:
            yield server
        finally:
            server.stop()
            self._calm()

    def _grow(self, server: CloudgraftServer, wanted: int) -> None:
        """One machine more, or as many as it takes, until so many run."""
        delta = wanted - sum(self._states(server).values())
        server.call("NodeGroupIncreaseSize", {"id": "any", "delta": delta})
        self._await_running(server, wanted)

    def _await_running(self, server: CloudgraftServer, wanted: int) -> None:
        until(lambda: self._states(server) == {"running": wanted}, "they run", seconds=_SECONDS, check=server.check)

    def _empty(self, server: CloudgraftServer, group: str = "any") -> None:
        machines = server.groups()[group]["machines"]
        nodes = [{"providerID": machine["providerId"], "name": machine["name"]} for machine in machines]
        server.call("NodeGroupDeleteNodes", {"id": group, "nodes": nodes})
        names = {machine["name"] for machine in machines}
        until(
            lambda: not names & {*self.rack.alive(), *self.burst.alive()},
            "the clouds have none of them",
            seconds=_SECONDS,
        )
        until(lambda: not server.states().get(group), "the engine sees them gone", seconds=_SECONDS, check=server.check)

    def _states(self, server: CloudgraftServer) -> dict[str, int]:
        return server.states().get("any", {})

    def _group(self, server: CloudgraftServer) -> dict[str, Any]:
        return server.groups().get("any", {})

    def _is_down(self, server: CloudgraftServer, name: str) -> bool:
        return any(cloud["name"] == name and cloud.get("error") for cloud in server.status()["clouds"])

    def _made(self) -> int:
        return len(self.rack.made()) + len(self.burst.made())

    def _calm(self) -> None:
        for cloud in (self.rack, self.burst):
            if cloud.is_running:
                cloud.chaos()
