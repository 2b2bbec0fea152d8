"""Machines boot with the user data of k3s and RKE2, down to their installers and agents, which are replaced.

One machine of each template gets no installer at first, then one that fails, then one that works. Another one has an
installer that always fails, and must show that it has failed.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import yaml

from cloudgraft.certs.issue import Validity, new_authority
from cloudgraft.joining.claims import JoinPlan, NewMachine, ready_made
from cloudgraft.joining.user_data import UserDataMaker
from cloudgraft.sdk.types import Taint
from e2e.build import Tell
from e2e.join.host import Host
from e2e.join.installers import CALLS, CONFIG_SEEN, NO_RELEASE, RECORD, failing, working
from e2e.join.machine_image import MachineImage
from e2e.join.reports import Report, ReportedFile, check_cloud_init
from e2e.waiting import until

__all__ = ["AGENTS", "check_agents"]

_PATIENCE: Final = 45 * 60.0  # seconds to a report; two machines boot in software at a time
_SECRET: Final = "0123456789abcdef"
_TOKEN: Final = f"abcdef.{_SECRET}"
_AUTHORITY: Final = new_authority(Validity.days(3)).certificate_pem.decode()
_LOG: Final = "/var/log/cloudgraft-join.log"
_FAILED: Final = "/var/lib/cloudgraft/join-failed"
_GAVE_UP: Final = "gave up after "
_STUMBLES: Final = ("returned error: 503", NO_RELEASE, "joined in try ")
_COMMAND: Final = "a command of the configuration"
_ENDS_SOON: Final = timedelta(minutes=3)  # of a token; time for more than one try


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """What a template must come to on a machine."""

    server: str
    version: str
    installer: str  # its variables

    @property
    def call(self) -> str:
        """As the installer notes it."""
        return f"installer: 0 arguments, {self.installer}"


AGENTS: Final[Mapping[str, Agent]] = {
    "k3s": Agent(
        server="https://10.0.0.1:6443",
        version="v1.34.1+k3s1",
        installer="INSTALL_K3S_EXEC=agent INSTALL_K3S_SKIP_START=true INSTALL_K3S_VERSION=v1.34.1+k3s1",
    ),
    "rke2": Agent(
        server="https://10.0.0.1:9345",
        version="v1.34.1+rke2r1",
        installer="INSTALL_RKE2_TYPE=agent INSTALL_RKE2_VERSION=v1.34.1+rke2r1",
    ),
}


def check_agents(template: str, directory: Path, image: MachineImage, tell: Tell) -> None:
    """Raises AssertionError when something is not as the template promises."""
    from clouds.servers.libvirt_driving import driver_of, spec_of  # noqa: PLC0415 - it needs libvirt

    directory.mkdir()
    host = Host(directory, image)
    joins, fails = f"{template}-joins", f"{template}-fails"
    try:
        host.start()
        host.reports.answer(f"/{joins}.sh", "", failing(), working(template))
        host.reports.answer(f"/{fails}.sh", failing())
        with closing(driver_of(host.cloud())) as driver:
            driver.start()
            for name in (joins, fails):
                data = asyncio.run(_user_data(template, name, host.address))
                driver.create(spec_of(name, data, **host.machine()))
                tell(f"{name} boots")
            for name, report in _reported(host, (joins, fails), tell).items():
                tell(f"{name} has reported\n{_shown(report)}")
                _keep(report, directory / name)
                _check_config(template, name, report)
                if name == joins:
                    _check_joined(template, report)
                    _wait_for_console(host, name, _STUMBLES)
                else:
                    _wait_for_console(host, name, [_GAVE_UP, "this is its end:"])
                    _check_failed(template, report, host.console(name))
                assert _SECRET not in host.console(name), f"the console of {name} shows a token"
            for machine in driver.list():
                driver.delete(machine)
            left = host.left()
            assert not left, f"{left} are left"
    finally:
        host.stop()


async def _user_data(template: str, name: str, address: str) -> str:
    plan = JoinPlan(
        template=ready_made(template),
        file=f"the template {template}",
        server=AGENTS[template].server,
        ca_cert=_AUTHORITY,
        values={
            "token": _TOKEN,
            "version": AGENTS[template].version,
            "installer": f"{address}/{name}.sh",
            "commands": [f"mkdir -p {RECORD}", f"echo {_COMMAND} >>{CALLS}"],
        },
        token_ttl=_ENDS_SOON if name.endswith("fails") else timedelta(minutes=30),
    )
    machine = NewMachine(
        name=name,
        group="small",
        cloud="lab",
        provider_id=f"libvirt:///{name}",
        labels={"pool": "x", "zone": "y"},
        taints=(Taint(key="dedicated", value="batch"),),
    )
    return await UserDataMaker({"small": plan}, cluster="prod").make(machine)


def _reported(host: Host, names: Sequence[str], tell: Tell) -> Mapping[str, Report]:
    """Waits for the reports of machines, and shows meanwhile what their scripts say."""
    shown: set[str] = set()  # some lines are printed once more, as the end of the log
    found: dict[str, Report] = {}

    def look() -> bool:
        for name in names:
            for line in re.findall(r"\S+ cloudgraft: .*(?=\n)", host.console(name)):
                if f"{name}: {line}" not in shown:
                    tell(f"{name}: {line.strip()}")
                    shown.add(f"{name}: {line}")
            report = host.reports.of(name)
            if report is not None:
                found[name] = report
        return len(found) == len(names)

    until(look, f"{' and '.join(names)} report", seconds=_PATIENCE)
    return found


def _check_config(template: str, name: str, report: Report) -> None:
    path = f"/etc/rancher/{template}/config.yaml"
    bundle = hashlib.sha256(_AUTHORITY.encode()).hexdigest()
    wanted: dict[str, Any] = {
        "server": AGENTS[template].server,
        "token": f"K10{bundle}::{_TOKEN}",
        "node-name": name,
        "node-label": ["pool=x", "zone=y"],
        "node-taint": ["dedicated=batch:NoSchedule"],
        "kubelet-arg": [f"provider-id=libvirt:///{name}"],
    }
    found = report[path]
    assert yaml.safe_load(found.text) == wanted, f"{path} has {_masked(found.text)}"
    _check_private(path, found, 0o600)
    for script in ("join.sh", "keep-trying.sh"):
        _check_private(script, report[f"/var/lib/cloudgraft/{script}"], 0o700)
    _check_private(_LOG, report[_LOG], 0o600)
    assert _SECRET not in report[_LOG].text, f"{_LOG} shows a token"


def _check_private(path: str, file: ReportedFile, mode: int) -> None:
    assert (file.owner, file.mode) == ("root:root", mode), f"{path} is {file.owner}'s with mode {file.mode:o}"


def _wait_for_console(host: Host, name: str, texts: Sequence[str]) -> None:
    """What a machine prints gets there by way of its journal, which may be later than its report."""
    for text in texts:
        until(lambda: text in host.console(name), f"the console of {name} says {text!r}", seconds=60.0)  # noqa: B023


def _check_joined(template: str, report: Report) -> None:
    check_cloud_init(report)
    call = AGENTS[template].call
    assert _calls(report) == [_COMMAND, call, call, f"agent: {template} agent"], f"called were {_calls(report)}"
    assert report[CONFIG_SEEN].text == report[f"/etc/rancher/{template}/config.yaml"].text
    assert _FAILED not in report, f"{_FAILED} is there"
    assert _unit(template, report) == {"ActiveState": "active", "UnitFileState": "enabled"}
    for text in _STUMBLES:
        assert text in report[_LOG].text, f"the log does not say {text!r}"


def _check_failed(template: str, report: Report, console: str) -> None:
    check_cloud_init(report, status="error")
    tries = re.search(rf"{_GAVE_UP}(\d+) tries", console)
    assert tries is not None, "the console does not say how often the machine tried"
    command, *calls = _calls(report)
    assert command == _COMMAND
    assert set(calls) == {AGENTS[template].call}, f"called were {calls}"
    assert 1 < len(calls) <= int(tries[1]), f"{len(calls)} calls in {tries[1]} tries"  # in a try it may not be reached
    assert NO_RELEASE in report[_FAILED].text
    _check_private(_FAILED, report[_FAILED], 0o600)
    assert CONFIG_SEEN not in report, "an agent has run"
    assert _unit(template, report) == {"ActiveState": "inactive", "UnitFileState": ""}


def _calls(report: Report) -> list[str]:
    return report[CALLS].text.splitlines()


def _unit(template: str, report: Report) -> dict[str, str]:
    """As systemd has it."""
    for block in report["/run/report/units"].text.split("\n\n"):
        found = dict(line.split("=", 1) for line in block.splitlines())
        if found.pop("Id", "") == f"{template}-agent.service":
            return found
    return {}


def _shown(report: Report) -> str:
    """What a person wants to see of it."""
    shown = {path: file for path, file in report.items() if not path.endswith(".sh") and path != CONFIG_SEEN}
    lines = []
    for path, file in sorted(shown.items()):
        lines += [f"{path} ({file.owner}, {file.mode:o})", *(f"  | {line}" for line in _masked(file.text).splitlines())]
    return "\n".join(lines)


def _masked(text: str) -> str:
    return text.replace(_SECRET, "…")


def _keep(report: Report, directory: Path) -> None:
    for path, file in report.items():
        target = directory / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_masked(file.text), "utf-8")
