"""What the ready-made user data does on a machine: its scripts run in real shells, with programs that fail on order."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from cloudgraft.certs.issue import Validity, new_authority
from cloudgraft.joining.claims import JoinPlan, NewMachine, ready_made
from cloudgraft.joining.user_data import UserDataMaker
from tests.needs import needs_programs

SECRET: Final = "0123456789abcdef"
CA: Final = new_authority(Validity.days(3)).certificate_pem.decode()
KUBEADM_CONFIG: Final = "/etc/kubernetes/cloudgraft-join.yaml"
KUBELET_CERTIFICATE: Final = "/var/lib/kubelet/pki/kubelet-client-current.pem"
LOG: Final = "/var/log/cloudgraft-join.log"
FAILED: Final = "/var/lib/cloudgraft/join-failed"
_OF_THE_MACHINE: Final = re.compile("/(?:etc|var|proc)/")
_SHELLS: Final = ["sh", pytest.param("bash", marks=needs_programs("bash"))]

_NOTED: Final = """#!/bin/sh
echo "${0##*/} $*" >>"$CALLS"
"""
_PROGRAMS: Final = {
    # Succeeds, for the others to fail, while there is a number above zero in the file of this name.
    "fails": """#!/bin/sh
read -r left <"$STATE/$1" && [ "$left" -gt 0 ] && echo $((left - 1)) >"$STATE/$1"
""",
    "kubeadm": f"""{_NOTED}
echo made >"$STATE/made"
if [ -n "$ENDLESS" ]; then
  echo "waits for an API server that says nothing"
  exec tail -f /dev/null
fi
if [ "$1" = join ] && fails join; then
  echo "error: the API server does not answer"
  exit 7
fi
""",
    # The only way in which time passes here.
    "sleep": f"""{_NOTED}
read -r up _ <"$UPTIME"
echo "$((${{up%.*}} + $1)).25 7.00" >"$UPTIME"
""",
    # Really stops what does not end, but does not let the test wait so long.
    "timeout": f"""{_NOTED}
if fails ending; then
  ENDLESS=yes "$REAL_TIMEOUT" "$1" "$2" 1 sh -c 'shift 3; "$@"' sh "$@"
  status=$?
  sleep "$3"
  exit "$status"
fi
shift 3
exec "$@"
""",
    "journalctl": f"""{_NOTED}
echo "the server does not take the token"
""",
    "curl": f"""{_NOTED}
if fails download; then
  echo "curl: (6) Could not resolve host"
  exit 6
fi
while [ "$1" != -o ]; do shift; done
cat >"$2" <<'END'
if fails install; then
  echo "the installer finds no release"
  exit 1
fi
echo "installer $(env | grep ^INSTALL_ | sort | xargs)" >>"$CALLS"
END
""",
    # The agent that was started asks its server by itself, and gets its certificate when the server is there.
    "systemctl": f"""{_NOTED}
if [ "$1" = is-active ] && fails running; then
  exit 3
fi
if [ "$1" = start ] && [ -n "$CERTIFICATE" ] && ! fails server; then
  mkdir -p "${{CERTIFICATE%/*}}"
  echo certificate >"$CERTIFICATE"
fi
""",
}


class Machine:
    """A directory with a machine's files, and the programs that it finds."""

    def __init__(self, directory: Path, template: str, *, shell: str = "sh") -> None:
        self.root = directory / "root"
        self._bin, self._state, self._calls = directory / "bin", directory / "state", directory / "calls"
        self._uptime = self.root / "proc" / "uptime"
        self._template = template
        self._shell = shell
        for place in (self._uptime.parent, self._bin, self._state):
            place.mkdir(parents=True)
        self._uptime.write_text("100.25 7.00\n")
        for name, text in _PROGRAMS.items():
            path = self._bin / name
            path.write_text(text)
            path.chmod(0o755)
        self.order()

    def order(self, **failures: int) -> None:
        """How often what fails."""
        for name in ("join", "ending", "running", "download", "install", "server"):
            (self._state / name).write_text(f"{failures.get(name, 0)}\n")

    def boot(self, user_data: str) -> subprocess.CompletedProcess[str]:
        """Does as cloud-init does: writes the files, and runs all commands as one script."""
        document = yaml.safe_load(user_data)
        for entry in document["write_files"]:
            path = self.file(entry["path"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._moved(entry["content"]))
            os.utime(path, (time.time() - 60.0,) * 2)  # cloud-init writes files long before it runs commands
        lines = [one if isinstance(one, str) else shlex.join(one) for one in document["runcmd"]]
        certificate = f"/var/lib/rancher/{self._template}/agent/kubelet.kubeconfig"
        environment = {
            "PATH": f"{self._bin}:{os.environ['PATH']}",
            "CALLS": str(self._calls),
            "STATE": str(self._state),
            "REAL_TIMEOUT": str(shutil.which("timeout")),
            "UPTIME": str(self._uptime),
            "CERTIFICATE": str(self.file(certificate)) if self._template in {"k3s", "rke2"} else "",
        }
        script = re.sub("^sh ", f"{self._shell} ", self._moved("\n".join(lines)), flags=re.MULTILINE)
        command = [self._shell, "-c", script]
        return subprocess.run(
            command, env=environment, umask=0o022, capture_output=True, text=True, timeout=60.0, check=False
        )

    @property
    def limits(self) -> list[int]:
        """How long each try might have taken."""
        return [int(call.split()[3]) for call in self.calls("timeout")]

    def made_mode(self) -> int:
        """The mode of a file that the command of a try has made."""
        return mode(self._state / "made")

    @property
    def waited(self) -> list[int]:
        """The pauses of the script between two tries."""
        return [int(call.split()[1]) for call in self.calls("sleep")]

    def calls(self, *names: str) -> list[str]:
        """Of these programs, as they were called."""
        lines = self._calls.read_text().replace(str(self.root), "").splitlines()
        return [line for line in lines if line.split()[0] in names]

    def file(self, path: str) -> Path:
        """Where a file of the machine is."""
        return Path(self._moved(path))

    def _moved(self, text: str) -> str:
        return _OF_THE_MACHINE.sub(lambda found: f"{self.root}{found[0]}", text)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def user_data(template: str, **values: Any) -> str:
    plan = JoinPlan(
        template=ready_made(template),
        file="join.yaml.j2",
        server="https://10.0.0.1:6443",
        ca_cert=CA,
        values={"token": f"abcdef.{SECRET}", **values},
    )
    machine = NewMachine(name="m1", group="small", cloud="lab", provider_id="lab://m1", labels={"pool": "x"})
    return await UserDataMaker({"small": plan}, cluster="prod").make(machine)


def has_joined(machine: Machine, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    assert not machine.file(FAILED).exists()
    assert SECRET not in done.stdout + done.stderr + machine.file(LOG).read_text()


def has_failed(machine: Machine, done: subprocess.CompletedProcess[str], why: str) -> None:
    """The last command has failed, which cloud-init reports; the console and a file say why."""
    assert done.returncode == 1
    assert "gave up after" in done.stdout
    assert why in done.stdout
    assert why in machine.file(FAILED).read_text()
    assert SECRET not in done.stdout + done.stderr + machine.file(LOG).read_text()


# -- kubeadm -----------------------------------------------------------------------------------------------------------

JOIN: Final = f"kubeadm join --config {KUBEADM_CONFIG}"
RESET: Final = "kubeadm reset --force"


@pytest.mark.parametrize("shell", _SHELLS)
async def test_a_join_that_fails_is_tried_again_until_it_works(tmp_path: Path, shell: str) -> None:
    machine = Machine(tmp_path, "kubeadm", shell=shell)
    machine.order(join=3)
    done = machine.boot(await user_data("kubeadm"))
    has_joined(machine, done)
    assert machine.calls("kubeadm") == [JOIN, RESET, JOIN, RESET, JOIN, RESET, JOIN]
    assert machine.waited == [5, 10, 20]
    assert machine.file(LOG).read_text().count("the API server does not answer\n") == 3
    assert "joined in try 4" in done.stdout
    assert not machine.file(KUBEADM_CONFIG).exists()


async def test_a_machine_gives_up_when_its_token_has_ended(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "kubeadm")
    machine.order(join=999)
    done = machine.boot(await user_data("kubeadm"))
    has_failed(machine, done, "the API server does not answer")
    assert machine.waited[:5] == [5, 10, 20, 40, 60]
    assert set(machine.waited[5:]) == {60}
    assert 1800 - 60 <= sum(machine.waited) < 1800
    assert machine.limits[:3] == [1800, 1795, 1785]
    assert min(machine.limits) == machine.limits[-1] == 60, "the last try has a minute"
    assert machine.file(KUBEADM_CONFIG).exists(), "the clean-up is for those that have joined"
    assert mode(machine.file(LOG)) == mode(machine.file(FAILED)) == 0o600
    assert machine.made_mode() == 0o644, "others must be able to read what kubeadm makes"


async def test_what_runs_before_the_join_cannot_hide_that_it_failed(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "kubeadm")
    machine.order(join=999)
    has_failed(machine, machine.boot(await user_data("kubeadm", commands=["true"])), "does not answer")


async def test_a_try_that_does_not_end_is_stopped(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "kubeadm")
    machine.order(ending=1)
    done = machine.boot(await user_data("kubeadm"))
    has_failed(machine, done, "did not end within 1800 s and was stopped")
    assert machine.limits == [1800]


STOP, START, LOOK = "systemctl stop kubelet", "systemctl start kubelet", "systemctl is-active --quiet kubelet"


def made_at(path: str, when: str) -> list[str]:
    """Commands that make a file of the machine."""
    return [f"mkdir -p {path.rpartition('/')[0]}", f"echo text >{path}", f"touch -d '{when}' {path}"]


async def test_a_kubelet_that_got_its_certificate_late_is_left_alone(tmp_path: Path) -> None:
    """By then the token may be gone: a reset would end a node that works."""
    machine = Machine(tmp_path, "kubeadm")
    machine.order(join=999)
    text = await user_data("kubeadm", commands=made_at(KUBELET_CERTIFICATE, "+1 hour"))
    has_joined(machine, machine.boot(text))
    assert machine.calls("kubeadm", "systemctl") == [JOIN, STOP, START, *[LOOK] * 4]
    assert not machine.file(KUBEADM_CONFIG).exists()


async def test_a_kubelet_that_only_asks_for_a_certificate_has_not_joined(tmp_path: Path) -> None:
    """It writes its kubelet.conf first; nobody may ever approve what it asks for."""
    machine = Machine(tmp_path, "kubeadm")
    machine.order(join=1)
    text = await user_data("kubeadm", commands=made_at("/etc/kubernetes/kubelet.conf", "+1 hour"))
    has_joined(machine, machine.boot(text))
    assert machine.calls("kubeadm", "systemctl") == [JOIN, STOP, RESET, JOIN]


async def test_a_kubelet_that_has_its_certificate_and_does_not_keep_running_has_not_joined(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "kubeadm")
    machine.order(join=999, running=1)
    done = machine.boot(await user_data("kubeadm", commands=made_at(KUBELET_CERTIFICATE, "+1 hour")))
    has_joined(machine, done)
    assert machine.calls("kubeadm", "systemctl") == [JOIN, STOP, START, LOOK, STOP, START, *[LOOK] * 4]
    assert machine.calls("journalctl") == ["journalctl --no-pager --lines 5 --output cat --unit kubelet.service"]
    assert "does not keep running" in done.stdout


async def test_what_an_image_has_brought_along_is_no_certificate(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "kubeadm")
    machine.order(join=1)
    older = made_at(KUBELET_CERTIFICATE, "-1 hour")
    text = await user_data("kubeadm", criSocket="unix:///run/c.sock", commands=older)
    has_joined(machine, machine.boot(text))
    assert machine.calls("kubeadm") == [JOIN, f"{RESET} --cri-socket unix:///run/c.sock", JOIN]


# -- k3s and RKE2 ------------------------------------------------------------------------------------------------------

_INSTALLED: Final[Mapping[str, str]] = {
    "k3s": "installer INSTALL_K3S_EXEC=agent INSTALL_K3S_SKIP_START=true INSTALL_K3S_VERSION=v1.34.1",
    "rke2": "installer INSTALL_RKE2_TYPE=agent INSTALL_RKE2_VERSION=v1.34.1",
}


@pytest.mark.parametrize("shell", _SHELLS)
@pytest.mark.parametrize("template", ["k3s", "rke2"])
async def test_an_agent_is_installed_once_and_started_until_its_server_takes_it(
    tmp_path: Path, template: str, shell: str
) -> None:
    machine = Machine(tmp_path, template, shell=shell)
    machine.order(download=1, install=1, server=1)
    done = machine.boot(await user_data(template, version="v1.34.1"))
    has_joined(machine, done)
    assert len(machine.calls("curl")) == 3
    assert "--connect-timeout 15 --max-time 300" in machine.calls("curl")[0]
    assert machine.calls("curl")[0].endswith(f"-o /var/lib/cloudgraft/install.sh https://get.{template}.io")
    assert machine.calls("installer") == [_INSTALLED[template]]
    started = [f"systemctl enable {template}-agent.service", f"systemctl start --no-block {template}-agent.service"]
    stopped = f"systemctl stop {template}-agent.service"
    assert machine.calls("systemctl") == [stopped, *started * 2], "one that runs already must read the configuration"
    log = machine.file(LOG).read_text()
    assert "Could not resolve host" in log
    assert "the installer finds no release" in log
    assert machine.file(f"/etc/rancher/{template}/config.yaml").exists(), "the agent reads it at every start"


@pytest.mark.parametrize("template", ["k3s", "rke2"])
async def test_an_agent_whose_server_never_takes_it_has_failed(tmp_path: Path, template: str) -> None:
    machine = Machine(tmp_path, template)
    machine.order(server=999)
    done = machine.boot(await user_data(template, install=False))
    has_failed(machine, done, "the server does not take the token")
    assert machine.calls("curl", "installer") == []
    assert sum(machine.waited) < 1800 + 60, "no try begins after the token's end"


@pytest.mark.parametrize("template", ["k3s", "rke2"])
async def test_the_certificate_of_an_image_is_not_that_of_its_machine(tmp_path: Path, template: str) -> None:
    machine = Machine(tmp_path, template)
    machine.order(server=1)
    brought = made_at(f"/var/lib/rancher/{template}/agent/kubelet.kubeconfig", "-1 hour")
    done = machine.boot(await user_data(template, install=False, commands=brought))
    has_joined(machine, done)
    assert "joined in try 2" in done.stdout


@pytest.mark.parametrize("template", ["k3s", "rke2"])
@pytest.mark.parametrize(("then", "installs"), [("v1.34.1", 1), ("v1.35.0", 2)])
async def test_an_installation_of_another_version_is_not_enough(
    tmp_path: Path, template: str, then: str, installs: int
) -> None:
    machine = Machine(tmp_path, template)
    for version in ("v1.34.1", then):
        has_joined(machine, machine.boot(await user_data(template, version=version)))
    assert len(machine.calls("installer")) == installs


# -- cloud-init's own word ---------------------------------------------------------------------------------------------


@needs_programs("cloud-init")
@pytest.mark.parametrize("template", ["kubeadm", "k3s", "rke2"])
async def test_cloud_init_finds_nothing_wrong(tmp_path: Path, template: str) -> None:
    path = tmp_path / "user-data"
    path.write_text(await user_data(template, version="v1.34.1", commands=["true"]))
    done = schema_check(path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Valid" in done.stdout


def schema_check(path: Path) -> subprocess.CompletedProcess[str]:
    command = ["cloud-init", "schema", "--config-file", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60.0, check=False)
