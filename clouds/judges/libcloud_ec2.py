"""The driver `libcloud` with EC2: moto, behind the proxy that adds what moto lacks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from cloudgraft.conformance.driver import DriverSettings, Trouble
from cloudgraft.drivers.libcloud.driver import LibcloudDriver
from cloudgraft.drivers.libcloud.options import LibcloudOptions
from clouds.judge import Case, Judge, Tell
from clouds.servers.aws_proxy import Fault, Kind
from clouds.servers.libcloud_ec2 import LibcloudAws
from clouds.servers.moto_server import IMAGE

__all__ = ["JUDGE", "MACHINE", "driver_for", "troubled"]

MACHINE: Final[Mapping[str, object]] = {"shape": "t3.micro", "image": IMAGE}
_FAULTS: Final[Mapping[Trouble, Fault]] = {
    Trouble.QUOTA: Fault(code="VcpuLimitExceeded", message="You have requested more vCPU capacity than your limit"),
    Trouble.STOCK_OUT: Fault(code="InsufficientInstanceCapacity", message="We have no capacity", status=500),
    Trouble.RATE_LIMIT: Fault(code="RequestLimitExceeded", message="Request limit exceeded.", status=503),
    Trouble.ERROR_AFTER: Fault(kind=Kind.HTML, status=503),
    Trouble.LOST_ANSWER: Fault(kind=Kind.LOST),
}


def driver_for(section: Mapping[str, Any]) -> LibcloudDriver:
    """A driver with these options, as they are in a file."""
    return LibcloudDriver(
        LibcloudOptions(
            provider="EC2",
            key=section["key"],
            secret_file=Path(section["secretFile"]),
            region=section["region"],
            endpoint=section["endpoint"],
            list_delay=timedelta(0),
        )
    )


def troubled(cloud: LibcloudAws) -> Callable[[Trouble], LibcloudDriver]:
    """Makes drivers whose cloud is in trouble: each has a key of its own, and only its calls go wrong."""

    def make(trouble: Trouble) -> LibcloudDriver:
        section = cloud.section(trouble.name)
        if trouble is Trouble.AWAY:
            section["endpoint"] = "http://127.0.0.1:9"
        elif trouble is Trouble.AUTHENTICATION:
            section = cloud.section_of(trouble.name, "AKIANOBODY", "not-the-secret")
        else:
            action = "" if trouble is Trouble.RATE_LIMIT else "RunInstances"
            fault = _FAULTS[trouble]
            times = None if fault.kind is Kind.ERROR else 1
            cloud.proxy.order(dataclasses.replace(fault, action=action, key=section["key"], times=times))
        return driver_for(section)

    return make


class LibcloudEc2Judge(Judge):
    """Needs nothing but what is on PyPI."""

    driver = "libcloud"

    def missing(self) -> str:
        """Whether moto is installed."""
        lacking = [name for name in ("moto", "flask", "flask_cors") if find_spec(name) is None]
        return f"{lacking[0]} is not installed: pip install 'moto[ec2]' flask flask-cors" if lacking else ""

    @contextmanager
    def open(self, directory: Path, tell: Tell) -> Iterator[Case]:
        """Starts both."""
        tell(f"moto {version('moto')} is starting ...")
        with LibcloudAws(directory) as cloud:
            section = {**cloud.section(), "listDelay": "0s"}
            yield Case(
                judged_by=f"EC2 by moto {version('moto')} behind a proxy of ours (tokens, signatures, faults)",
                cloud=section,
                settings=DriverSettings(
                    machine=MACHINE,
                    secrets=(Path(section["secretFile"]).read_text("utf-8"),),
                    troubled=troubled(cloud),
                ),
                alive=cloud.alive,
            )


JUDGE: Final = LibcloudEc2Judge()
