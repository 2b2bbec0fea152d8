"""Proxmox VE: a fake of its API, as a process, with TLS. No Proxmox can be had here, and it is said so."""

from __future__ import annotations

import functools
import json
import ssl
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

__all__ = ["JUDGE", "ProxmoxJudge"]

_SECONDS: Final = 60.0
_LATE: Final = timedelta(seconds=5)  # in which a create has ended that was given up
_MACHINE: Final = {"shape": "small", "template": "ubuntu-24.04", "bridge": "vmbr0", "vlan": 7}
_SHAPES: Final = {"small": {"cpu": 2, "memory": "2Gi", "disk": "20Gi"}}
_USER_DATA: Final = "#!/bin/sh\necho {{ name }}\n"


class FakeProcess(Program):
    """The fake, and ways to look behind its API."""

    def __init__(self, directory: Path) -> None:
        (port,) = free_ports(1)
        self.url = f"https://127.0.0.1:{port}"
        self.user, self.token = "", ""
        self.ca = directory / "ca.crt"
        command = [sys.executable, "-m", "clouds.servers.proxmox_fake", "--port", str(port), "--tls", str(directory)]
        root = str(Path(__file__).resolve().parents[2])
        super().__init__("proxmox fake", command, directory / "fake.log", environment={"PYTHONPATH": root})

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        super().start()
        until(self._has_token, "the fake answers", seconds=_SECONDS, check=self.check)

    def books(self) -> dict[str, Any]:
        """What is alive, what ever was, and what belongs to nobody."""
        return self.call("GET", "/fake/state")

    def alive(self) -> Sequence[str]:
        """The names of the machines that there are, and what is left of others."""
        books = self.books()
        return [*books["alive"], *books["left"]]

    def order(self, *faults: Mapping[str, object]) -> None:
        """What goes wrong from now on."""
        self.call("PUT", "/fake/faults", list(faults))

    def call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """A request with the token, as anybody may make it who works on the cluster by hand."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"PVEAPIToken={self.user}={self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}{path}", data=data, method=method, headers=headers)
        trusted = ssl.create_default_context(cafile=str(self.ca))
        with urllib.request.urlopen(request, timeout=10.0, context=trusted) as answer:
            return dict(json.loads(answer.read()))

    def _has_token(self) -> bool:
        words = self.log.read_text("utf-8").split()
        if len(words) >= 3:
            self.user, self.token = words[-2:]
        return bool(self.token)


class ProxmoxJudge(Judge):
    """The fake, and cloudgraft with it."""

    driver = "proxmox"

    def missing(self) -> str:
        """Two packages are all that it needs."""
        return "" if find_spec("proxmoxer") and find_spec("pycdlib") else install_command("proxmox")

    @contextmanager
    def open(self, directory: Path, tell: Tell) -> Iterator[Case]:
        """Starts the fake."""
        fake = FakeProcess(directory)
        fake.start()
        try:
            secret = directory / "token"
            secret.write_text(fake.token, "utf-8")
            cloud = {
                "driver": "proxmox",
                "url": fake.url,
                "user": fake.user,
                "tokenFile": str(secret),
                "caFile": str(fake.ca),
                "region": "judged",
                "pool": "kubernetes",
                "shapes": _SHAPES,
                "listDelay": "0s",
            }
            tell(f"the fake is at {fake.url}")
            yield Case(
                judged_by=f"a fake of its API (ours), by way of proxmoxer {version('proxmoxer')}",
                cloud=cloud,
                settings=DriverSettings(
                    machine=_MACHINE,
                    secrets=(fake.token,),
                    late=_LATE,
                    troubled=lambda trouble: _troubled(trouble, fake, secret),
                ),
                alive=fake.alive,
                boot_time=timedelta(seconds=_SECONDS),
                more=_more(fake, cloud, directory),
            )
        finally:
            fake.stop()


def _troubled(trouble: Trouble, fake: FakeProcess, secret: Path) -> BlockingDriver | None:
    """The trouble that needs another driver, and not another cloud."""
    # Here and not above: missing() is asked first.
    from cloudgraft.drivers.proxmox.driver import ProxmoxDriver  # noqa: PLC0415
    from cloudgraft.drivers.proxmox.options import ProxmoxOptions, ShapeOptions  # noqa: PLC0415

    shapes = {"small": ShapeOptions(cpu=2, memory="2Gi", disk="20Gi")}
    given: dict[str, Any] = {"user": fake.user, "region": "judged", "shapes": shapes, "ca_file": fake.ca}
    if trouble is Trouble.AWAY:
        return ProxmoxDriver(ProxmoxOptions(url="https://127.0.0.1:9", token_file=secret, **given))
    if trouble is Trouble.AUTHENTICATION:
        wrong = secret.with_name("wrong-token")
        wrong.write_text("w" * 36, "utf-8")
        return ProxmoxDriver(ProxmoxOptions(url=fake.url, token_file=wrong, **given))
    if trouble is Trouble.STOCK_OUT:
        full = {**given, "memory_reserve": "10Ti"}
        return ProxmoxDriver(ProxmoxOptions(url=fake.url, token_file=secret, **full))
    return None


def _more(fake: FakeProcess, cloud: Mapping[str, Any], directory: Path) -> Mapping[str, Callable[[], None]]:
    checks = {
        "a lost answer at any step makes one machine": _lost_answer,
        "a machine deleted by hand is seen to be gone": _deleted_by_hand,
        "two clusters of one name in one Proxmox": _two_clusters,
        "a full storage is told as a stock-out": _stock_out,
        "killed at any step, that very machine is finished": _killed,
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
    """Servers of cloudgraft for the same Proxmox, each with a journal of its own, all for a cluster named alike."""

    def __init__(self, stack: ExitStack, cloud: Mapping[str, Any], home: Path) -> None:
        self._stack = stack
        self._cloud = {**cloud, "engine": {"observeEvery": "1s"}}
        self._home = home

    def start(self, name: str, **options: Any) -> CloudgraftServer:
        """One that runs until the check has ended; a second one of a name goes on with the journal of the first."""
        directory = self._home / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "user-data.j2").write_text(_USER_DATA, "utf-8")
        group = {"id": "pool", "cloud": "proxmox", "minSize": 0, "maxSize": 5, "machine": dict(_MACHINE)}
        document = {
            "cluster": "twins",
            "clouds": {"proxmox": {**self._cloud, **options}},
            "join": {"file": "user-data.j2", "server": "https://10.0.0.1:6443"},
            "nodeGroups": [group],
        }
        server = CloudgraftServer(directory, document)
        server.start()
        self._stack.callback(server.stop)
        return server


def _wait(server: CloudgraftServer, what: str, condition: Callable[[], object]) -> None:
    until(condition, what, seconds=_SECONDS, check=server.check)


def _runs(server: CloudgraftServer, count: int) -> list[dict[str, Any]]:
    _wait(server, "the machines run", lambda: server.states() == {"pool": {"running": count}})
    return list(server.groups()["pool"]["machines"])


def _grow(server: CloudgraftServer, count: int) -> list[dict[str, Any]]:
    server.call("NodeGroupIncreaseSize", {"id": "pool", "delta": count})
    return _runs(server, count)


def _shrink(server: CloudgraftServer, machines: Sequence[Mapping[str, Any]]) -> None:
    nodes = [{"providerID": machine["providerId"], "name": machine["name"]} for machine in machines]
    server.call("NodeGroupDeleteNodes", {"id": "pool", "nodes": nodes})
    _wait(server, "the engine sees them gone", lambda: not server.states())


def _lost_answer(fake: FakeProcess, engines: Engines) -> None:
    """It is done, and the answer never comes: at the clone, at its CD, at its settings, and at its start."""
    server = engines.start("one")
    for step in ("/clone$", "/upload$", "/config$", "/start$"):
        before = len(fake.books()["ever"])
        fake.order({"kind": "reset after", "method": "POST", "path": step})
        machines = _grow(server, 1)
        made = fake.books()["ever"][before:]
        assert made == [machines[0]["name"]], f"{step}: made: {made}"
        _shrink(server, machines)
        assert not fake.alive(), f"{step}: left: {fake.alive()}"


def _deleted_by_hand(fake: FakeProcess, engines: Engines) -> None:
    server = engines.start("one")
    machines = _grow(server, 2)
    vmid = int(machines[0]["providerId"].rpartition("/")[2])
    guests = fake.call("GET", "/api2/json/cluster/resources?type=vm")["data"]
    (node,) = (guest["node"] for guest in guests if guest["vmid"] == vmid)
    base = f"/api2/json/nodes/{node}/qemu/{vmid}"
    fake.call("POST", f"{base}/status/stop", {})
    until(lambda: fake.call("GET", f"{base}/status/current")["data"]["status"] == "stopped", "off", seconds=_SECONDS)
    fake.call("DELETE", base)
    _wait(server, "one is left", lambda: server.states() == {"pool": {"running": 1}})
    assert fake.books()["alive"] == [machines[1]["name"]]
    _shrink(server, machines[1:])
    seed = f"{machines[0]['name']}.iso"  # of the one deleted by hand: it belongs to nobody now, as the page says
    assert fake.alive() == [seed], fake.alive()
    fake.call("DELETE", f"/api2/json/nodes/{node}/storage/local/content/local:iso/{seed}")
    until(lambda: not fake.alive(), "nothing is left", seconds=_SECONDS)


def _two_clusters(fake: FakeProcess, engines: Engines) -> None:
    """Each sees and deletes its own machines, and leaves the other's alone."""
    one, two = engines.start("one"), engines.start("two")
    ones, twos = _grow(one, 2), _grow(two, 1)
    assert len(fake.alive()) == 3
    _shrink(one, ones)
    assert fake.alive() == [twos[0]["name"]]
    assert two.states() == {"pool": {"running": 1}}
    _shrink(two, twos)
    assert not fake.alive()


def _stock_out(fake: FakeProcess, engines: Engines) -> None:
    """The machine that could not be had says why, in the words of Proxmox and with what to do."""
    server = engines.start("one")
    fault = {"kind": "task", "message": "clone failed: No space left on device"}
    fake.order({**fault, "method": "POST", "path": "/clone$", "times": -1})
    server.call("NodeGroupIncreaseSize", {"id": "pool", "delta": 1})
    _wait(server, "it failed", lambda: server.states() == {"pool": {"failed": 1}})
    (machine,) = server.groups()["pool"]["machines"]
    told = json.dumps(machine)
    assert "out_of_stock" in told, told
    assert "make room on the storage" in told, told
    assert not fake.alive()


def _killed(fake: FakeProcess, engines: Engines) -> None:
    """A step was done, and the process dies before it hears of it. Its successor finishes that very machine."""
    for step in ("/clone", "/upload", "/resize", "/config", "/start"):
        name = f"killed-at{step.replace('/', '-')}"
        server = engines.start(name)
        fake.order({"kind": "hang after", "method": "PUT" if step == "/resize" else "POST", "path": f"{step}$"})
        books = fake.books()
        before, seen = len(books["ever"]), len(books["requests"])
        server.call("NodeGroupIncreaseSize", {"id": "pool", "delta": 1})
        _wait(server, f"{step}: it is half made", functools.partial(_was_asked, fake, step, seen))
        server.kill()
        fake.order()
        successor = engines.start(name)
        machines = _runs(successor, 1)
        made = fake.books()["ever"][before:]
        assert made == fake.alive() == [machines[0]["name"]], f"{step}: made: {made}, there: {fake.alive()}"
        _shrink(successor, machines)
        assert not fake.alive(), f"{step}: left: {fake.alive()}"
        successor.stop()


def _was_asked(fake: FakeProcess, step: str, seen: int) -> bool:
    """Whether there was such a change, after so many requests."""
    return any(method != "GET" and path.endswith(step) for method, path in fake.books()["requests"][seen:])


JUDGE: Final = ProxmoxJudge()
