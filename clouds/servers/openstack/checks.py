"""What is to be seen on the real control plane beside conformance: through the engine, as its users see it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from clouds.servers.openstack.control_plane import ControlPlane
from clouds.servers.openstack_fake_state import Project
from e2e.cloudgraft_process import CloudgraftServer
from e2e.waiting import eventually, until

__all__ = ["Checks"]

_SECONDS: Final = 240.0
_GROUP: Final = "judged"


@dataclass(frozen=True, slots=True)
class Checks:
    """On one control plane."""

    directory: Path
    plane: ControlPlane
    cloud: Mapping[str, Any]
    machine: Mapping[str, object]

    def all(self) -> dict[str, Callable[[], None]]:
        """By name."""
        return {
            "quota is told": self.quota_is_told,
            "no valid host is told as out of stock": self.no_host_is_told,
            "renamed and deleted by hand": self.hands,
            "two clusters in one project": self.two_clusters,
            "the fake looks like this": self.the_fake_is_faithful,
        }

    def quota_is_told(self) -> None:
        """One server of two is allowed. They come one after the other: of two at once Nova may refuse both."""
        self.plane.set_quota(1)
        try:
            with self._server("quota") as server:
                for wanted in ({"running": 1}, {"running": 1, "failed": 1}):
                    server.call("NodeGroupIncreaseSize", {"id": _GROUP, "delta": 1})
                    until(
                        lambda: server.states() == {_GROUP: wanted},  # noqa: B023 - it is over before the next
                        f"there is {wanted}",
                        seconds=_SECONDS,
                        check=server.check,
                    )
                error = self._error(server)
                assert error["code"] == "quota_exceeded", error
                assert "Quota exceeded for instances" in error["message"], error
                self._empty(server)
        finally:
            self.plane.set_quota(-1)

    def no_host_is_told(self) -> None:
        """Nova accepts it, finds no host, and the autoscaler hears that the cloud is full."""
        with self._server("full", {**self.machine, "shape": "judge.huge"}) as server:
            server.call("NodeGroupIncreaseSize", {"id": _GROUP, "delta": 1})
            wanted = {_GROUP: {"failed": 1}}
            until(lambda: server.states() == wanted, "it failed", seconds=_SECONDS, check=server.check)
            error = self._error(server)
            assert error["code"] == "out_of_stock", error
            assert "No valid host" in error["message"], error
            until(lambda: not self.plane.names(), "what is left of it is deleted", seconds=_SECONDS)
            self._empty(server)

    def hands(self) -> None:
        """One that was renamed is still known by its marks; one that was deleted is gone."""
        with self._server("hands") as server:
            machine = self._one_more(server)
            self.plane.user.compute.update_server(machine["machineId"], name="renamed-by-hand")
            self._delete(server, machine)
            machine = self._one_more(server)
            self.plane.user.compute.delete_server(machine["machineId"])
            until(lambda: not server.states(), "it is seen to be gone", seconds=_SECONDS, check=server.check)
            assert not server.targets(), "what is gone does not count"

    def two_clusters(self) -> None:
        """Of one name, and in one project: neither touches the other's."""
        with self._server("first") as first, self._server("second") as second:
            other = self._one_more(second)
            self._delete(first, self._one_more(first))
            assert self.plane.names() == [other["name"]]
            assert second.states() == {_GROUP: {"running": 1}}
            self._empty(second)

    def the_fake_is_faithful(self) -> None:
        """What the fake of ``make test`` tells of a server, this one tells too."""
        with self._server("fake") as server:
            self._one_more(server)
            real = self.plane.user.compute.get("/servers/detail", microversion="2.69").json()["servers"][0]
            fake = Project(flavors=Project().flavors, boot_time=0.0)
            order = {"name": "x", "flavorRef": "1", "imageRef": next(iter(fake.images)), "networks": "none"}
            fake.create_server({"server": order})
            body = fake.list_servers({}, "").body
            assert body is not None
            strange = set(body["servers"][0]) - set(real)
            assert not strange, f"this control plane tells nothing of {strange}: {json.dumps(real)}"
            assert real["status"] == body["servers"][0]["status"] == "ACTIVE"
            self._empty(server)

    # -- how -----------------------------------------------------------------------------------------------------------

    @contextmanager
    def _server(self, name: str, machine: Mapping[str, object] | None = None) -> Iterator[CloudgraftServer]:
        home = self.directory / name
        home.mkdir()
        group = {"id": _GROUP, "cloud": "judged", "minSize": 0, "maxSize": 3, "machine": dict(machine or self.machine)}
        cloud = {**self.cloud, "engine": {"observeEvery": "1s"}}
        server = CloudgraftServer(home, {"cluster": "judged", "clouds": {"judged": cloud}, "nodeGroups": [group]})
        server.start()
        try:
            yield server
        finally:
            server.stop()

    def _one_more(self, server: CloudgraftServer) -> dict[str, Any]:
        """A machine that runs."""
        server.call("NodeGroupIncreaseSize", {"id": _GROUP, "delta": 1})
        running = {_GROUP: {"running": 1}}
        until(lambda: server.states() == running, "it runs", seconds=_SECONDS, check=server.check)
        (machine,) = server.groups()[_GROUP]["machines"]
        return dict(machine)

    def _delete(self, server: CloudgraftServer, machine: Mapping[str, Any]) -> None:
        node = {"providerID": machine["providerId"], "name": machine["name"]}
        server.call("NodeGroupDeleteNodes", {"id": _GROUP, "nodes": [node]})
        until(lambda: not server.states(), "it is gone", seconds=_SECONDS, check=server.check)
        ids = [machine["machineId"]]
        until(lambda: not {s.id for s in self.plane.servers()} & set(ids), "Nova has it no more", seconds=_SECONDS)

    def _empty(self, server: CloudgraftServer) -> None:
        """Deletes all of a group, as the autoscaler does with what failed too."""
        machines = server.groups()[_GROUP]["machines"]
        nodes = [{"providerID": one["providerId"], "name": one["name"]} for one in machines]
        server.call("NodeGroupDeleteNodes", {"id": _GROUP, "nodes": nodes})
        until(lambda: not server.states(), "all are gone", seconds=_SECONDS, check=server.check)
        until(lambda: not self.plane.names(), "Nova has none of them", seconds=_SECONDS)

    def _error(self, server: CloudgraftServer) -> dict[str, Any]:
        def failed() -> list[dict[str, Any]]:
            return [one["error"] for one in server.groups()[_GROUP]["machines"] if one["error"]]

        (error,) = eventually(failed, bool, "the error is told", seconds=30)
        return error
