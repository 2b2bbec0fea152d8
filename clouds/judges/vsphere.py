"""vSphere, judged by govmomi's simulator of a vCenter (vcsim)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from cloudgraft.conformance.driver import DriverSettings, Trouble
from cloudgraft.drivers.vsphere.driver import VsphereDriver
from cloudgraft.drivers.vsphere.options import ShapeOptions, VsphereOptions
from clouds.judge import Case, Judge, Tell
from clouds.servers import vcsim
from clouds.servers.vsphere_checks import Checks
from clouds.servers.vsphere_trouble_checks import TroubleChecks
from e2e.processes import free_ports

__all__ = ["JUDGE"]

_PASSWORD: Final = "the-password-of-vcsim"
_PAGE: Final = 5
_CLONE_FAULTS: Final = {
    Trouble.STOCK_OUT: "InsufficientMemoryResourcesFault",
    Trouble.QUOTA: "NotEnoughLicenses",
}


class _Vsphere(Judge):
    driver = "vsphere"

    def missing(self) -> str:
        return vcsim.missing()

    @contextmanager
    def open(self, directory: Path, tell: Tell) -> Iterator[Case]:
        password = directory / "password"
        password.write_text(f"{_PASSWORD}\n", "utf-8")
        with vcsim.vcsim(directory, tell, _PASSWORD) as server:
            options = _options(server, password)
            checks: dict[str, Callable[[], None]] = {}
            for each in (Checks(server, options), TroubleChecks(server, options, directory, _document(options))):
                checks |= each.all()
            yield Case(
                judged_by=f"{server.content.about.fullName}: vcsim of govmomi {vcsim.VERSION}",
                cloud=_section(options),
                settings=DriverSettings(
                    machine={"shape": "small"},
                    page_size=_PAGE,
                    boot_time=timedelta(minutes=1),
                    secrets=(_PASSWORD,),
                    troubled=lambda trouble: _troubled(trouble, server, options, directory),
                ),
                alive=server.names,
                boot_time=timedelta(minutes=1),
                more=checks,
            )


def _options(server: vcsim.Vcsim, password: Path) -> VsphereOptions:
    return VsphereOptions(
        server=f"127.0.0.1:{server.port}",
        user=vcsim.USER,
        password_file=password,
        ca_file=server.ca_file,
        datacenter="DC0",
        cluster="DC0_C0",
        datastore="LocalDS_0",
        networks=("DC0_DVPG0",),
        template=vcsim.TEMPLATE,
        shapes={"small": ShapeOptions(cpu=2, memory="4Gi"), "large": ShapeOptions(cpu=8, memory="32Gi", disk="40Gi")},
        page_size=_PAGE,
    )


def _section(options: VsphereOptions) -> Mapping[str, Any]:
    """The same, as a file has it."""
    return {
        "driver": "vsphere",
        "server": options.server,
        "user": options.user,
        "passwordFile": str(options.password_file),
        "caFile": str(options.ca_file),
        "datacenter": options.datacenter,
        "cluster": options.cluster,
        "datastore": options.datastore,
        "networks": list(options.networks),
        "template": options.template,
        "shapes": {"small": {"cpu": 2, "memory": "4Gi"}, "large": {"cpu": 8, "memory": "32Gi", "disk": "40Gi"}},
        "pageSize": options.page_size,
    }


def _document(options: VsphereOptions) -> Mapping[str, Any]:
    group = {"id": "judged", "cloud": "judged", "minSize": 0, "maxSize": 4, "machine": {"shape": "small"}}
    cloud = {**_section(options), "cloneWait": "0s", "engine": {"observeEvery": "1s"}}
    return {"cluster": "judged", "clouds": {"judged": cloud}, "nodeGroups": [group]}


class _Troubled(VsphereDriver):
    """A driver whose vCenter cannot clone anything until it is closed."""

    def __init__(self, options: VsphereOptions, server: vcsim.Vcsim, fault: str) -> None:
        super().__init__(options)
        self._server = server
        server.clones(fault=fault)

    def close(self) -> None:
        """Ends the trouble."""
        self._server.clones()
        super().close()


def _troubled(trouble: Trouble, server: vcsim.Vcsim, options: VsphereOptions, directory: Path) -> VsphereDriver | None:
    if trouble in _CLONE_FAULTS:
        return _Troubled(options, server, _CLONE_FAULTS[trouble])
    if trouble is Trouble.AUTHENTICATION:
        wrong = directory / "wrong-password"
        wrong.write_text("this-is-not-it", "utf-8")
        return VsphereDriver(replace(options, password_file=wrong))
    if trouble is Trouble.AWAY:
        return VsphereDriver(replace(options, server=f"127.0.0.1:{free_ports(1)[0]}"))
    return None  # a vCenter asks nobody for fewer calls


JUDGE: Final = _Vsphere()
