"""A driver for hosts of a fake controller, and machines to order."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.drivers.redfish.bmc import _OnceEach
from cloudgraft.drivers.redfish.driver import RedfishDriver
from cloudgraft.drivers.redfish.options import RedfishHost, RedfishOptions
from cloudgraft.sdk.driver import Machine, MachineSpec
from tests.drivers.redfish.redfish_fake import PASSWORD, ROOT, USER, FakeRedfish


def redfish_hosts(fake: FakeRedfish, **more: Any) -> list[RedfishHost]:
    return [
        RedfishHost(id=system, url=fake.url, system=f"{ROOT}/Systems/{system}", addresses=[f"10.0.0.{index}"], **more)
        for index, system in enumerate(fake.systems)
    ]


def redfish_options(fake: FakeRedfish, directory: Path, **options: Any) -> RedfishOptions:
    """Options by which a host is off at once, and a request ends soon."""
    secret = directory / "password"
    if "password_file" not in options:
        secret.write_text(f"{PASSWORD}\n", "utf-8")
    given: dict[str, Any] = {
        "username": USER,
        "password_file": secret,
        "state_file": directory / "account.json",
        "graceful_time": timedelta(0),
        "timeout": timedelta(seconds=10),
    }
    if "hosts_file" not in options:
        given["hosts"] = redfish_hosts(fake)
    return RedfishOptions(**{**given, **options})


def redfish_driver(fake: FakeRedfish, directory: Path, **options: Any) -> RedfishDriver:
    return RedfishDriver(redfish_options(fake, directory, **options))


def hurry(monkeypatch: pytest.MonkeyPatch, fake: FakeRedfish, part: str = "") -> None:
    """What hangs is given up soon: those faults, and what has this part in its address. All else has its time."""
    request = _OnceEach.request

    def hurried(session: _OnceEach, method: str, url: str, *args: Any, **more: Any) -> Any:
        hangs = [one.part for one in fake.faults if one.kind == "hang" and one.times]
        is_short = any(one in url for one in (*hangs, *([part] if part else [])))
        session._timeout = (10.0, 0.3 if is_short else 30.0)
        return request(session, method, url, *args, **more)

    monkeypatch.setattr(_OnceEach, "request", hurried)


def spec(
    name: str, *, group: str = "pool", cluster: str = "c1", user_data: str = "", **settings: object
) -> MachineSpec:
    tags = {"cloudgraft-cluster": "lab", "cloudgraft-cluster-id": cluster, "cloudgraft-name": name}
    return MachineSpec(name=name, group=group, settings=settings, tags=tags, user_data=user_data)


async def only(driver: RedfishDriver) -> Machine:
    (machine,) = await driver.list()
    return machine


def images_in(directory: Path) -> list[str]:
    return [file.name for file in directory.glob("*.iso")]
