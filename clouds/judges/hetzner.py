"""Hetzner Cloud: a fake of its API, as a process. No server of Hetzner's can be had here, and it is said so."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from cloudgraft.conformance.driver import DriverSettings, Trouble
from cloudgraft.sdk.blocking import BlockingDriver
from cloudgraft.sdk.common.extras import install_command
from clouds.judge import Case, Judge, Tell
from e2e.cloudgraft_process import CloudgraftServer
from e2e.processes import Program, free_ports
from e2e.waiting import until

__all__ = ["JUDGE", "HetznerJudge"]

_SECONDS: Final = 60.0
_MACHINE: Final = {"shape": "cx23", "image": "ubuntu-24.04", "networks": ["nodes"], "firewalls": ["nodes"]}


class FakeProcess(Program):
    """The fake, and ways to look behind its API."""

    def __init__(self, directory: Path) -> None:
        (port,) = free_ports(1)
        self._base = f"http://127.0.0.1:{port}"
        self.url = f"{self._base}/v1"
        self.token = ""
        command = [sys.executable, "-m", "clouds.servers.hetzner_fake", "--port", str(port)]
        root = str(Path(__file__).resolve().parents[2])
        super().__init__("hetzner fake", command, directory / "fake.log", environment={"PYTHONPATH": root})

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        super().start()
        until(self._has_token, "the fake answers", seconds=_SECONDS, check=self.check)

    def books(self) -> dict[str, Any]:
        """What is alive, and what ever was."""
        return self.call("GET", f"{self._base}/fake/state")

    def alive(self) -> Sequence[str]:
        """The names of the servers that there are."""
        return list(self.books()["alive"])

    def order(self, *faults: Mapping[str, object]) -> None:
        """What goes wrong from now on."""
        self.call("PUT", f"{self._base}/fake/faults", list(faults))

    def call(self, method: str, url: str, body: object = None) -> dict[str, Any]:
        """A request with the token, as anybody may make it who works on the project by hand."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(url, data=data, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=10.0) as answer:
            return dict(json.loads(answer.read()))

    def _has_token(self) -> bool:
        self.token = (self.log.read_text("utf-8").split() or [""])[-1]
        return bool(self.token)


class HetznerJudge(Judge):
    """The fake, and cloudgraft with it."""

    driver = "hetzner"

    def missing(self) -> str:
        """The vendor's client is all that it needs."""
        return "" if find_spec("hcloud") else install_command("hetzner")

    @contextmanager
    def open(self, directory: Path, tell: Tell) -> Iterator[Case]:
        """Starts the fake."""
        fake = FakeProcess(directory)
        fake.start()
        try:
            token = directory / "token"
            token.write_text(fake.token, "utf-8")
            cloud = {
                "driver": "hetzner",
                "tokenFile": str(token),
                "location": "fsn1",
                "endpoint": fake.url,
                "listDelay": "0s",
            }
            tell(f"the fake is at {fake.url}")
            yield Case(
                judged_by=f"a fake of its API (ours), by way of hcloud {version('hcloud')}",
                cloud=cloud,
                settings=DriverSettings(
                    machine=_MACHINE,
                    page_size=50,
                    secrets=(fake.token,),
                    troubled=lambda trouble: _troubled(trouble, fake.url, token),
                ),
                alive=fake.alive,
                boot_time=timedelta(seconds=_SECONDS),
                more=_more(fake, cloud, directory),
            )
        finally:
            fake.stop()


def _troubled(trouble: Trouble, url: str, token: Path) -> BlockingDriver | None:
    """The trouble that needs another driver, and not another cloud."""
    # Here and not above: missing() is asked first.
    from cloudgraft.drivers.hetzner.driver import HetznerDriver  # noqa: PLC0415
    from cloudgraft.drivers.hetzner.options import HetznerOptions  # noqa: PLC0415

    if trouble is Trouble.AWAY:
        return HetznerDriver(HetznerOptions(token_file=token, location="fsn1", endpoint="http://127.0.0.1:9/v1"))
    if trouble is Trouble.AUTHENTICATION:
        wrong = token.with_name("wrong-token")
        wrong.write_text("w" * 64, "utf-8")
        return HetznerDriver(HetznerOptions(token_file=wrong, location="fsn1", endpoint=url))
    return None


def _more(fake: FakeProcess, cloud: Mapping[str, Any], directory: Path) -> Mapping[str, Callable[[], None]]:
    checks = {
        "a lost answer makes one server": _lost_answer,
        "a server deleted by hand is seen to be gone": _deleted_by_hand,
        "two clusters of one name in one project": _two_clusters,
        "a stock-out is told as one": _stock_out,
    }
    return {
        name: _check_in(check, fake, cloud, directory / f"more-{index}")
        for index, (name, check) in enumerate(checks.items())
    }


def _check_in(
    check: Callable[[FakeProcess, Engines], None], fake: FakeProcess, cloud: Mapping[str, Any], home: Path
) -> Callable[[], None]:
    def run() -> None:
        with ExitStack() as stack:
            stack.callback(fake.order)
            check(fake, Engines(stack, cloud, home))

    return run


class Engines:
    """Servers of cloudgraft for the same project, each with a journal of its own, all for a cluster named alike."""

    def __init__(self, stack: ExitStack, cloud: Mapping[str, Any], home: Path) -> None:
        self._stack = stack
        self._cloud = {**cloud, "engine": {"observeEvery": "1s"}}
        self._home = home

    def start(self, name: str) -> CloudgraftServer:
        """One that runs until the check has ended."""
        directory = self._home / name
        directory.mkdir(parents=True)
        group = {"id": "pool", "cloud": "hetzner", "minSize": 0, "maxSize": 5, "machine": dict(_MACHINE)}
        document = {"cluster": "twins", "clouds": {"hetzner": self._cloud}, "nodeGroups": [group]}
        server = CloudgraftServer(directory, document)
        server.start()
        self._stack.callback(server.stop)
        return server


def _wait(server: CloudgraftServer, what: str, condition: Callable[[], object]) -> None:
    until(condition, what, seconds=_SECONDS, check=server.check)


def _grow(server: CloudgraftServer, count: int) -> list[dict[str, Any]]:
    server.call("NodeGroupIncreaseSize", {"id": "pool", "delta": count})
    _wait(server, "the machines run", lambda: server.states() == {"pool": {"running": count}})
    return list(server.groups()["pool"]["machines"])


def _shrink(server: CloudgraftServer, machines: Sequence[Mapping[str, Any]]) -> None:
    nodes = [{"providerID": machine["providerId"], "name": machine["name"]} for machine in machines]
    server.call("NodeGroupDeleteNodes", {"id": "pool", "nodes": nodes})
    _wait(server, "the engine sees them gone", lambda: not server.states())


def _lost_answer(fake: FakeProcess, engines: Engines) -> None:
    """The server is made, and the answer never comes: once by a broken connection, once by an error of a proxy."""
    server = engines.start("one")
    for fault in ({"kind": "reset after"}, {"kind": "error after", "status": 502}):
        before = len(fake.books()["ever"])
        fake.order({**fault, "method": "POST", "path": "/servers"})
        machines = _grow(server, 1)
        made = fake.books()["ever"][before:]
        assert made == [machines[0]["name"]], f"made: {made}"
        _shrink(server, machines)


def _deleted_by_hand(fake: FakeProcess, engines: Engines) -> None:
    server = engines.start("one")
    machines = _grow(server, 2)
    fake.call("DELETE", f"{fake.url}/servers/{machines[0]['providerId'].removeprefix('hcloud://')}")
    _wait(server, "one is left", lambda: server.states() == {"pool": {"running": 1}})
    assert fake.alive() == [machines[1]["name"]]
    _shrink(server, machines[1:])


def _two_clusters(fake: FakeProcess, engines: Engines) -> None:
    """Each sees and deletes its own servers, and leaves the other's alone."""
    one, two = engines.start("one"), engines.start("two")
    ones, twos = _grow(one, 2), _grow(two, 1)
    assert len(fake.alive()) == 3
    _shrink(one, ones)
    assert fake.alive() == [twos[0]["name"]]
    assert two.states() == {"pool": {"running": 1}}
    _shrink(two, twos)
    assert not fake.alive()


def _stock_out(fake: FakeProcess, engines: Engines) -> None:
    """The machine that could not be had says why, in the words of the API and with what to do."""
    server = engines.start("one")
    fault = {"kind": "error", "status": 412, "code": "resource_unavailable", "message": "error during placement"}
    fake.order({**fault, "method": "POST", "path": "/servers", "times": -1})
    server.call("NodeGroupIncreaseSize", {"id": "pool", "delta": 1})
    _wait(server, "it failed", lambda: server.states() == {"pool": {"failed": 1}})
    (machine,) = server.groups()["pool"]["machines"]
    told = json.dumps(machine)
    assert "out_of_stock" in told, told
    assert "another server type or location may have room" in told, told
    assert not fake.alive()


JUDGE: Final = HetznerJudge()
