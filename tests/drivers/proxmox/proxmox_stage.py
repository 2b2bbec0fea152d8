"""A driver for a fake cluster, and machines to order."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from cloudgraft.drivers.proxmox.api import Api
from cloudgraft.drivers.proxmox.driver import ProxmoxDriver
from cloudgraft.drivers.proxmox.options import ProxmoxOptions, ShapeOptions
from cloudgraft.sdk.driver import MachineSpec
from clouds.servers.proxmox_fake import FakeProxmox
from clouds.servers.proxmox_fake.data import LOCAL

T = TypeVar("T")
MACHINE = {"shape": "small", "template": LOCAL}
SHAPES = {
    "small": ShapeOptions(cpu=2, memory="2Gi", disk="20Gi"),
    "plain": ShapeOptions(cpu=1, memory="1Gi"),
    "tiny": ShapeOptions(cpu=1, memory="1Gi", disk="5Gi"),
    "huge": ShapeOptions(cpu=4, memory="40Gi"),
}


def proxmox_driver(fake: FakeProxmox, directory: Path, *, secret: str = "", **options: Any) -> ProxmoxDriver:
    file = directory / "secret"
    by_password = "!" not in options.get("user", fake.token_user)
    file.write_text(f"{secret or (fake.password if by_password else fake.token)}\n", "utf-8")
    given: dict[str, Any] = {
        "url": fake.url,
        "user": fake.token_user,
        "region": "lab",
        "shapes": SHAPES,
        "list_delay": timedelta(0),
        "password_file" if by_password else "token_file": file,
        **options,
    }
    return ProxmoxDriver(ProxmoxOptions(**given))


def soon(read: Callable[[], T], what: str) -> T:
    """What is read, once there is something; never a time that is waited for."""
    deadline = time.monotonic() + 20.0
    while not (found := read()):
        assert time.monotonic() < deadline, f"it did not happen: {what}"
        time.sleep(0.005)
    return found


def hurry(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """Requests to this path, which hang, are given up soon; all others have their time."""
    call = Api._call

    def hurried(api: Api, verb: str, where: str, *more: Any, **others: Any) -> Any:
        api._network["timeout"] = (10.0, 0.3 if re.search(path, where) else 60.0)
        return call(api, verb, where, *more, **others)

    monkeypatch.setattr(Api, "_call", hurried)


def aged(fake: FakeProxmox, name: str) -> None:
    """A machine that has no tags, and was made so long ago that no create can be at work on it."""
    with fake.cluster.lock:
        guest = next(one for one in fake.cluster.guests.values() if one.config.get("name") == name)
        guest.config.pop("tags", None)
        guest.config["description"] = re.sub(r'"made": \d+', '"made": 1000', guest.config["description"])


def spec(
    name: str, *, group: str = "pool", cluster: str = "c1", user_data: str = "", **settings: object
) -> MachineSpec:
    tags = {
        "cloudgraft-cluster": "lab",
        "cloudgraft-cluster-id": cluster,
        "cloudgraft-group": group,
        "cloudgraft-name": name,
    }
    return MachineSpec(name=name, group=group, settings={**MACHINE, **settings}, tags=tags, user_data=user_data)
