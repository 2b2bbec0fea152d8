"""A cloud with many machines, as a process: ``python -m bench.clouds_server KIND MACHINES DIRECTORY``.

Its first line has the options for its driver, as a configuration file has them, and how many machines a page holds.
Then it tells for each line how many requests there were since the last one; of the simulated cloud also how its calls
came, and ``latency`` sets the milliseconds that its creates take from now on.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from bench.dock_child import obey
from cloudgraft.engine.machines.identity import Identity

_GROUP: Final = "general-purpose"
_LEAST: Final = 19  # priority: in truth a cloud is elsewhere, and must not take the processor from who is measured
_FIRST_VMID: Final = 100_000_000  # where those of the driver begin
_SHAPES: Final = {"small": {"cpu": 2, "memory": "4Gi"}}
Tags = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A cloud that answers."""

    options: Mapping[str, Any]
    page: int  # machines
    requests: Callable[[], int]  # that there were so far
    more: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda _: {}  # what else a line asks for
    close: Callable[[], None] = lambda: None


def _names(count: int) -> list[tuple[str, dict[str, str]]]:
    """As the engine names and marks machines."""
    identity = Identity("bench", "benchbench")
    names = [identity.new_name(_GROUP) for _ in range(count)]
    return [(name, identity.tags(name, _GROUP)) for name in names]


def _secret(directory: Path, name: str, text: str) -> str:
    file = directory / name
    file.write_text(f"{text}\n", "utf-8")
    return str(file)


# Each is imported when it is asked for: an SDK may be missing, and none may weigh on the others.


def _simulated(count: int, directory: Path) -> Served:
    """With the machines of the ledger that is there, else with new ones."""
    from bench.watched_cloud import WatchedCloud  # noqa: PLC0415
    from cloudgraft.simcloud.http.server import HttpServer  # noqa: PLC0415
    from cloudgraft.simcloud.options import SimulatedOptions  # noqa: PLC0415

    ledger = directory / "cloud.db"
    options = SimulatedOptions(state_file=ledger if ledger.exists() else None, boot_time=timedelta(seconds=1))
    cloud = WatchedCloud(options)
    if not ledger.exists():
        cloud.fill(_names(count))
    server = HttpServer(cloud)
    server.start()
    return Served(
        options={"driver": "simulated", "url": server.url},
        page=options.page_size,
        requests=lambda: sum(cloud.calls().values()),
        more=cloud.told,
    )


def _hetzner(count: int, directory: Path) -> Served:
    from cloudgraft.drivers.common.label_text import HETZNER  # noqa: PLC0415
    from clouds.servers.hetzner_fake import FakeHetzner, Project  # noqa: PLC0415

    class Settled(Project):
        """Nothing changes, so a list is put together once: the fake would do it again for each of a hundred pages."""

        def __init__(self) -> None:
            super().__init__()
            self._answers: dict[str, list[dict[str, Any]]] = {}

        def servers(self, query: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
            key = f"{query.get('label_selector')} {query.get('sort')}"
            if key not in self._answers:
                self._answers[key] = super().servers({one: list(values) for one, values in query.items()})
            return self._answers[key]

    project = Settled()
    asked = {"server_type": "cx23", "image": "ubuntu-24.04", "networks": [], "location": "fsn1"}
    for name, tags in _names(count):
        project._new(  # noqa: SLF001 - to order them one by one looks at all for each
            {"name": name, "labels": {key: HETZNER.encode(value, key) for key, value in tags.items()}},
            _parts(asked),
        )
    time.sleep(project.boot_time)
    fake = FakeHetzner(project)
    fake.start()
    token = _secret(directory, "token", fake.token)
    options = {"driver": "hetzner", "tokenFile": token, "location": "fsn1", "endpoint": fake.url}
    return Served(options=options, page=50, requests=lambda: len(fake.requests))


def _parts(asked: Mapping[str, Any]) -> dict[str, Any]:
    from clouds.servers.hetzner_fake import data  # noqa: PLC0415

    def one(known: list[dict[str, Any]], key: str) -> dict[str, Any]:
        return next(entry for entry in known if entry["name"] == asked[key])

    parts: dict[str, Any] = {"server_type": one(data.SERVER_TYPES, "server_type"), "image": one(data.IMAGES, "image")}
    parts |= {"location": one(data.LOCATIONS, "location"), "placement_group": None}
    return {**parts, "networks": data.NETWORKS[:1], "firewalls": [], "families": ["ipv4", "ipv6"]}


def _openstack(count: int, directory: Path) -> Served:
    from clouds.servers.openstack_fake import PASSWORD, FakeOpenstack  # noqa: PLC0415
    from clouds.servers.openstack_fake_state import Project, Server  # noqa: PLC0415

    project = Project(quota=count)
    for number, (name, tags) in enumerate(_names(count)):
        server = f"6f0f2c0e-6e57-4b62-a4f6-{number:012x}"
        project.servers[server] = Server(
            id=server, order={}, name=name, metadata=tags, since=0.0, created="2026-01-01T00:00:00Z"
        )
    fake = FakeOpenstack(project)
    fake.__enter__()
    options = {"driver": "openstack", "authUrl": fake.auth_url, "username": "judge", "project": "lab"}
    options["passwordFile"] = _secret(directory, "password", PASSWORD)
    return Served(options=options, page=project.page, requests=lambda: len(fake.requests))


def _proxmox(count: int, directory: Path) -> Served:
    from cloudgraft.drivers.proxmox.inventory import Marks  # noqa: PLC0415
    from clouds.servers.proxmox_fake import FakeProxmox  # noqa: PLC0415
    from clouds.servers.proxmox_fake.data import Guest  # noqa: PLC0415

    fake = FakeProxmox()
    for number, (name, tags) in enumerate(_names(count)):
        vmid = _FIRST_VMID + number
        config = {"name": name, "memory": "4096", "cores": "2", "tags": Marks.new(tags, vmid).as_tags()}
        fake.cluster.guests[vmid] = Guest(node=f"pve{number % 3 + 1}", config=config, is_running=True)
    fake.start()
    options = {"driver": "proxmox", "url": fake.url, "user": fake.token_user, "region": "bench", "shapes": _SHAPES}
    options["tokenFile"] = _secret(directory, "token", fake.token)
    return Served(options=options, page=count, requests=lambda: len(fake.requests))


def _ec2(count: int, directory: Path) -> Served:
    from bench.ec2_pages import PAGE, Ec2Pages  # noqa: PLC0415

    server = Ec2Pages([{"Name": name, **tags} for name, tags in _names(count)])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    files = {"accessKeyIdFile": "AKIABENCH", "secretAccessKeyFile": "a-secret-that-opens-nothing"}
    options = {key: _secret(directory, key, text) for key, text in files.items()}
    where = {"driver": "ec2", "region": "eu-central-1", "endpointUrl": server.url}
    return Served(options={**where, **options}, page=PAGE, requests=lambda: server.requests)


def _libvirt(count: int, directory: Path) -> Served:
    from bench.libvirt_host import LibvirtHost  # noqa: PLC0415

    host = LibvirtHost(directory, _names(count))
    options = {"driver": "libvirt", "uri": host.uri, "shapes": _SHAPES}
    return Served(options=options, page=count, requests=lambda: host.requests, close=host.close)


SERVERS: Final[Mapping[str, Callable[[int, Path], Served]]] = {
    "simulated": _simulated,
    "hetzner": _hetzner,
    "openstack": _openstack,
    "proxmox": _proxmox,
    "ec2": _ec2,
    "libvirt": _libvirt,
}


async def main(kind: str, machines: int, directory: Path) -> None:
    """Answers until its input ends."""
    served = SERVERS[kind](machines, directory)
    os.setpriority(os.PRIO_PROCESS, 0, _LEAST)
    before = served.requests()

    async def command(given: dict[str, Any]) -> dict[str, Any]:
        nonlocal before
        now = served.requests()
        since, before = now - before, now
        return {"requests": since, **served.more(given)}

    try:
        await obey({"options": served.options, "page": served.page}, command)
    finally:
        served.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
