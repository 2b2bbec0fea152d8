"""What must hold of the image, each by running it: every program of the manifests starts and does its work."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.processes import Program, free_ports
from e2e.waiting import until
from tests.image.box import Box
from tests.image.files import surprises
from tests.kube_api import KubeApi

__all__ = ["CHECKS", "Trial"]

_PATIENCE: Final = 60.0  # seconds, for a start; it takes one or two
_SAMPLES: Final = 5  # starts, of which the median counts
_PROGRAMS: Final = ("serve", "node-manager", "discovery serve", "discovery agent", "dock connect", "simcloud", "db")
_ENGINE: Final = {
    "cluster": "image",
    "clouds": {"sim": {"driver": "simulated", "bootTime": "0s"}},
    "nodeGroups": [{"id": "small", "cloud": "sim", "maxSize": 5, "machine": {"shape": "small"}}],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """An image in its box. Each check returns what is worth a word, and raises AssertionError."""

    box: Box
    directory: Path
    has_native: bool

    def write(self, name: str, document: Mapping[str, Any]) -> str:
        """Writes a configuration into the volume; returns its name there."""
        (self.box.data / name).write_text(yaml.safe_dump(dict(document)), "utf-8")
        return name

    def answer(self, *arguments: str) -> str:
        """What a cloudgraft in the image prints. Fails unless it ends with 0."""
        done = self.box.run(*self.box.configuration.entrypoint, *arguments)
        assert done.returncode == 0, f"cloudgraft {' '.join(arguments)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    @contextmanager
    def running(self, name: str, *arguments: str) -> Iterator[Program]:
        """A cloudgraft in the image, as long as the context lasts."""
        program = Program(name, self.box.cloudgraft(*arguments), self.directory / f"{name}.log", whole_group=True)
        program.start()
        try:
            yield program
        finally:
            program.stop()

    def until_answers(self, program: Program, *arguments: str) -> None:
        """Returns once this command in the image succeeds."""
        command = (*self.box.configuration.entrypoint, *arguments)
        what = f"cloudgraft {' '.join(arguments)} succeeds ({program.log})"
        until(lambda: self.box.run(*command).returncode == 0, what, seconds=_PATIENCE, check=program.check)


def _confined(trial: Trial) -> str:
    """Nobody, without rights, and nothing but /tmp and the volume can be written to."""
    rights = "id -u; id -g; grep -hE 'CapEff|NoNewPrivs' /proc/self/status"
    writes = "for place in / /etc /opt/cloudgraft /tmp .; do touch $place/x && echo $place; done"
    lines = trial.box.run("sh", "-c", f"{rights}; {writes}").stdout.split()
    assert lines == ["65532", "65532", "CapEff:", "0" * 16, "NoNewPrivs:", "1", "/tmp", "."], lines
    return "user 65532, no capability, a read-only root"


def _no_surprises(trial: Trial) -> str:
    found = list(surprises(trial.box.root))
    assert not found, "\n".join(f"{kind}: {path}" for kind, path in found[:20])
    return ""


def _size(trial: Trial) -> str:
    done = trial.box.run("du", "--summarize", "--block-size=1M", "--one-file-system", "/opt/cloudgraft", "/usr")
    megabytes = {path: int(size) for size, path in (line.split() for line in done.stdout.splitlines())}
    return f"{megabytes['/opt/cloudgraft']} MB of cloudgraft and its libraries, {megabytes['/usr']} MB of the base"


def _compiled(trial: Trial) -> str:
    """Else every start compiles thousands of lines, and cannot keep the result."""
    package = next((trial.box.root / "opt/cloudgraft/lib").glob("python3.*/site-packages/cloudgraft"))
    sources = [path for path in package.rglob("*.py") if path.name != "__init__.py"]
    missing = [path for path in sources if not list((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"))]
    assert sources, f"no modules in {package}"
    assert not missing, f"not compiled: {missing[:5]}"
    return f"{len(sources)} modules"


def _starts(trial: Trial) -> str:
    assert "Commands:" in trial.answer("--help")
    took = sorted(_seconds(lambda: trial.answer("--version")) for _ in range(_SAMPLES))
    return f"--version in {took[_SAMPLES // 2]:.2f} s"


def _helps(trial: Trial) -> str:
    for program in _PROGRAMS:
        told = trial.answer(*program.split(), "--help")
        assert f"cloudgraft {program}" in told, told
    return f"{len(_PROGRAMS)} programs"


def _drivers(trial: Trial) -> str:
    """Every driver whose library the image is made with can be loaded."""
    listed = json.loads(trial.answer("drivers", "-o", "json"))
    missing = sorted(one["name"] for one in listed if one.get("error"))
    assert missing == ["libvirt"], missing  # built from source, and needs libvirt's own headers
    return f"{len(listed) - len(missing)} of {len(listed)}"


def _serves(trial: Trial) -> str:
    trial.answer("certs", "init", "certs")
    (port,) = free_ports(1)
    tls = {
        "cert": "certs/server.crt",
        "key": "certs/server.key",
        "clientCA": "certs/ca.crt",
        "allowedClients": ["cluster-autoscaler-grpc-client"],
    }
    server: dict[str, Any] = {"listen": f"127.0.0.1:{port}", "ops": None, "tls": tls}
    if trial.has_native:
        server["transport"] = "native"
    file = trial.write("cloudgraft.yaml", {**_ENGINE, "server": server})
    trial.answer("serve", "--config", file, "--check")
    who = ("--cacert", "certs/ca.crt", "--cert", "certs/client.crt", "--key", "certs/client.key")
    where = ("--address", f"127.0.0.1:{port}", *who)
    began = time.monotonic()
    with trial.running("serve", "serve", "--config", file, "--log-format", "json") as serve:
        until(lambda: "serving" in serve.tail(), f"it serves ({serve.log})", seconds=_PATIENCE, check=serve.check)
        took = time.monotonic() - began
        _scale(trial, where)
    transport = next(e["transport"] for e in _entries(serve.log) if e.get("event") == "serving")
    assert transport == ("native" if trial.has_native else "grpcio"), transport
    assert _entries(serve.log)[-1].get("event") == "stopped", serve.tail()
    return f"over {transport} and mTLS; serving {took:.1f} s after its start"


def _demo(trial: Trial) -> str:
    told = trial.answer("demo", "--plain")
    assert "lost 0, doubled 0" in told, told
    return "machines after the crash: lost 0, doubled 0"


def _manages_nodes(trial: Trial) -> str:
    manager_port, front_port = free_ports(2)
    manager = {**_ENGINE, "server": {"ops": None}, "nodeManager": {"listen": f"127.0.0.1:{manager_port}"}}
    address = f"http://127.0.0.1:{manager_port}"
    front = {
        "cluster": "image",
        "server": {"listen": f"127.0.0.1:{front_port}", "ops": None},
        "providers": [{"type": "node-manager", "address": address}],
    }
    manager_file, front_file = trial.write("manager.yaml", manager), trial.write("front.yaml", front)
    with (
        trial.running("node-manager", "node-manager", "--config", manager_file),
        trial.running("front", "serve", "--config", front_file) as serve,
    ):
        where = ("--address", f"127.0.0.1:{front_port}")
        trial.until_answers(serve, "call", "Refresh", *where)
        _scale(trial, where)
    return ""


def _discovers(trial: Trial) -> str:
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    (trial.box.data / "vault.keys").write_text("A" * 43 + "=\n", "utf-8")
    server = trial.write("discovery.yaml", {"listen": f"127.0.0.1:{port}", "vault": {"keyFile": "vault.keys"}})
    with ExitStack() as stack:
        api = KubeApi()
        api.start()
        stack.callback(api.stop)
        api.kubeconfig(trial.box.data)
        agent = {"server": {"address": address}, "kubernetes": {"kubeconfig": "kubeconfig"}, "cluster": {"id": "turin"}}
        agent_file = trial.write("agent.yaml", agent)
        discovery = stack.enter_context(trial.running("discovery", "discovery", "serve", "--config", server))
        where = ("--server", address, "-o", "json")
        trial.until_answers(discovery, "discovery", "clusters", *where)
        running = stack.enter_context(trial.running("agent", "discovery", "agent", "--config", agent_file))
        until(
            lambda: "turin" in trial.answer("discovery", "clusters", *where),
            f"the agent announces its cluster ({running.log})",
            seconds=_PATIENCE,
            check=running.check,
        )
    return ""


def _docks(trial: Trial) -> str:
    port, dock = free_ports(2)
    kind = {"kind": "SimMachineClass", "apiVersion": "sim.example/v1"}
    shape = {**kind, "nodeTemplate": {"instanceType": "small", "capacity": {"cpu": 2, "memory": "4Gi"}}}
    server = {
        **_ENGINE,
        "server": {"listen": f"127.0.0.1:{port}", "ops": None},
        "dock": {"listen": f"127.0.0.1:{dock}", "classes": {"small": shape}},
        "clouds": {"sim": {"driver": "dock", **kind, "machineClass": "small"}},
    }
    driver = {"address": f"127.0.0.1:{dock}", **kind, "driver": "simulated", "options": {"bootTime": "0s"}}
    server_file, driver_file = trial.write("dock.yaml", server), trial.write("driver.yaml", driver)
    with (
        trial.running("dock", "serve", "--config", server_file) as serve,
        trial.running("driver", "dock", "connect", "--config", driver_file),
    ):
        where = ("--address", f"127.0.0.1:{port}")
        trial.until_answers(serve, "call", "Refresh", *where)
        _scale(trial, where)
    return ""


def _scale(trial: Trial, where: Sequence[str]) -> None:
    """One machine, by the autoscaler's calls."""
    trial.answer("call", "--wait", "NodeGroupIncreaseSize", *where, "--data", '{"id": "small", "delta": 1}')
    told = trial.answer("call", "NodeGroupTargetSize", *where, "--data", '{"id": "small"}', "-o", "json")
    assert json.loads(told) == {"targetSize": 1}, told


def _entries(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text("utf-8").splitlines() if line.startswith("{")]


def _seconds(action: Callable[[], object]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


CHECKS: Final[Mapping[str, Callable[[Trial], str]]] = {
    "is confined": _confined,
    "no compiler, no cache, no setuid file": _no_surprises,
    "size": _size,
    "compiled": _compiled,
    "starts": _starts,
    "--help": _helps,
    "drivers load": _drivers,
    "serve": _serves,
    "demo": _demo,
    "node-manager and front": _manages_nodes,
    "discovery and agent": _discovers,
    "dock and driver": _docks,
}
