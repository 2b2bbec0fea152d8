"""Driving the driver `libvirt` by hand, for what is checked on a real host.

As a program it makes one machine, and may be killed meanwhile: ``python -m clouds.servers.libvirt_driving CLOUD NAME``,
where CLOUD is JSON. It says so when it begins. Without NAME it closes drivers while calls of theirs are under way.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from cloudgraft.config import Where, parse_options
from cloudgraft.drivers.libvirt.driver import LibvirtDriver
from cloudgraft.drivers.libvirt.options import LibvirtOptions
from cloudgraft.sdk.driver import Machine, MachineSpec
from cloudgraft.sdk.errors import CloudgraftError, UnavailableError
from cloudgraft.validation.document import Document

__all__ = ["driver_of", "expect", "is_listed", "only", "outcome", "spec_of"]

_CLOSED: Final = 60  # drivers


def driver_of(cloud: Mapping[str, Any]) -> LibvirtDriver:
    """From a cloud's section of a configuration file."""
    section = {key: value for key, value in cloud.items() if key != "driver"}
    where = Where(document=Document.without_file("options"), base_dir=Path("/"), path=())
    return LibvirtDriver(parse_options(LibvirtOptions, section, where))


def spec_of(name: str, user_data: str = "", cluster: str = "aaaaaaaaaa", **machine: object) -> MachineSpec:
    """As the engine orders a machine, of the shape `tiny` unless another is said."""
    tags = {"cloudgraft-cluster": "lab", "cloudgraft-cluster-id": cluster, "cloudgraft-name": name}
    return MachineSpec(name=name, group="g", settings={"shape": "tiny", **machine}, tags=tags, user_data=user_data)


def only(driver: LibvirtDriver) -> Machine:
    """The one machine that there is."""
    found = driver.list()
    assert len(found) == 1, found
    return found[0]


def outcome(driver: LibvirtDriver, spec: MachineSpec) -> Machine | CloudgraftError:
    """What a create ends with."""
    try:
        return driver.create(spec)
    except CloudgraftError as error:
        return error


def is_listed(driver: LibvirtDriver) -> bool:
    """Whether the host answers."""
    try:
        driver.list()
    except UnavailableError:
        return False
    return True


def expect(kind: type[CloudgraftError], call: Callable[[], object], word: str = "") -> None:
    """The call must raise this error, which must say this word."""
    seen: CloudgraftError | None = None
    try:
        call()
    except CloudgraftError as error:
        seen = error
    assert seen is not None, f"nothing was raised in the place of {kind.__name__}"
    assert type(seen) is kind, f"{seen!r} is not {kind.__name__}"
    assert word in seen.message, f"{seen.message!r} does not say {word!r}"


def close_under_calls(cloud: Mapping[str, Any]) -> None:
    """What libvirt makes of that is seen by who has started this program: it may take it down."""
    for _ in range(_CLOSED):
        driver = driver_of(cloud)
        driver.start()
        callers = [threading.Thread(target=_list_until_closed, args=(driver,)) for _ in range(8)]
        for caller in callers:
            caller.start()
        driver.list()
        driver.close()
        for caller in callers:
            caller.join()


def _list_until_closed(driver: LibvirtDriver) -> None:
    while is_listed(driver):
        pass


def main() -> None:
    """Makes the machine."""
    cloud = json.loads(sys.argv[1])
    if len(sys.argv) == 2:
        close_under_calls(cloud)
        return
    driver = driver_of(cloud)
    driver.start()
    driver.list()  # it is connected from here on
    print("begins", flush=True)
    driver.create(spec_of(sys.argv[2]))


if __name__ == "__main__":
    main()
