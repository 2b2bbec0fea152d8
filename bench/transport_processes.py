"""The Go server, ``cloudgraft serve`` over either transport, and the client in Go, as child processes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, Final, NamedTuple

import yaml

from bench.engine_fleet import CLOUD, Seed, group_names
from bench.engine_processes import cloud_process
from bench.load import Block
from bench.processes import ServerProcess
from cloudgraft.certs.authority import Bundle
from cloudgraft.certs.defaults import DEFAULT_CLIENT
from e2e.build import cache_directory

GO, NATIVE, GRPCIO = "go", "native", "grpcio"
_ROOT: Final = Path(__file__).resolve().parent.parent
_MODULE: Final = Path(__file__).resolve().parent / "go_peer"
_PATIENCE: Final = 60.0  # seconds to start
_SECONDS_TO_STOP: Final = 30
_CALLS: Final = re.compile(r"^cloudgraft_rpcs_total\{.*\} (\S+)", re.MULTILINE)
_LOOKUPS: Final = "cloudgraft_ready_reply_lookups_total"


@dataclass(frozen=True, slots=True)
class Programs:
    """What was built of ``bench/go_peer``."""

    server: Path
    load: Path

    @classmethod
    def at(cls, directory: Path) -> Programs:
        """Where ``go build`` puts them."""
        return cls(directory / "server", directory / "load")


def build_programs() -> Programs:
    """Builds them with the Go toolchain, once, into a cache outside the tree. SystemExit where it cannot be done."""
    if (found := find_programs()) is not None:
        return found
    if shutil.which("go") is None:
        raise SystemExit("the Go server cannot be built here: there is no Go toolchain (https://go.dev/dl)")
    # A toolchain that is too old says so instead of fetching another one.
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off"}
    command = ["go", "build", "-trimpath", "-o", f"{_target()}/", "./server", "./load"]
    if subprocess.run(command, cwd=_MODULE, env=environment, check=False).returncode:
        raise SystemExit("the Go server cannot be built here: the message of the go command is above")
    return Programs.at(_target())


def find_programs() -> Programs | None:
    """Those that were built before."""
    programs = Programs.at(_target())
    return programs if programs.server.exists() and programs.load.exists() else None


def _target() -> Path:
    """Named after the sources: others are built anew."""
    digest = hashlib.sha256()
    for file in sorted([*_MODULE.glob("go.*"), *_MODULE.glob("*/*.go")]):
        digest.update(file.read_bytes())
    return cache_directory().parent / "bench" / digest.hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A server that is up, and what belongs to it."""

    server: ServerProcess
    beside: Sequence[int] = ()  # process ids: its cloud
    ops: str = ""  # address of its metrics
    asked: Popen[str] | None = None  # the Go server, which counts its calls when it is asked to

    def rest(self) -> None:
        """Stops it in its tracks, so that whoever is measured has the machine for itself."""
        self._signal(signal.SIGSTOP)

    def work(self) -> None:
        """Lets it go on, and waits until its event loop does: while that is silent, ready replies are not sent."""
        self._signal(signal.SIGCONT)
        deadline = time.monotonic() + _PATIENCE
        while self.ops and not self._is_healthy():
            if time.monotonic() > deadline:
                raise RuntimeError(f"the {self.server.kind} server did not go on")
            time.sleep(0.02)

    def lookups(self) -> tuple[float, float]:
        """How often a ready reply was there, and how often not, so far."""
        if self.server.kind != NATIVE:
            return 0.0, 0.0
        found = dict(line.rsplit(" ", 1) for line in self.metrics().splitlines() if line.startswith(_LOOKUPS))
        hits, misses = (float(found[f'{_LOOKUPS}{{result="{result}"}}']) for result in ("hit", "miss"))
        return hits, misses

    def calls(self) -> float:
        """How many calls it has answered so far."""
        if self.asked is None:
            return sum(map(float, _CALLS.findall(self.metrics())))
        assert self.asked.stdin is not None
        assert self.asked.stdout is not None
        self.asked.stdin.write("\n")
        self.asked.stdin.flush()
        return float(self.asked.stdout.readline())

    def metrics(self) -> str:
        """All that cloudgraft tells of itself."""
        with urllib.request.urlopen(f"http://{self.ops}/metrics", timeout=_PATIENCE) as answer:
            return str(answer.read().decode())

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.ops}/healthz", timeout=_PATIENCE) as answer:
                return bool(answer.read())
        except urllib.error.HTTPError:  # its event loop was silent for too long
            return False

    def _signal(self, number: signal.Signals) -> None:
        for pid in (self.server.pid, *self.beside):
            os.kill(pid, number)


@contextmanager
def go_peer(programs: Programs, fleet: Path, certificates: Path | None) -> Iterator[Peer]:
    """The autoscaler's own wrapper over a provider in memory."""
    secured = () if certificates is None else ("-certificates", str(certificates))
    with Popen([programs.server, "-fleet", fleet, *secured], stdin=PIPE, stdout=PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            if not address:
                raise RuntimeError("the Go server did not start: its own message is above")
            yield Peer(server=ServerProcess(GO, address, process.pid), asked=process)
        finally:
            process.kill()


@contextmanager
def cloudgraft_peer(transport: str, seed: Seed, observe_every: str, certificates: Path | None) -> Iterator[Peer]:
    """``cloudgraft serve`` on the journal of the seed, with a simulated cloud that has its machines."""
    with cloud_process(seed) as (url, cloud_pid):
        config, log = seed.directory / "cloudgraft.yaml", seed.directory / "cloudgraft.log"
        config.write_text(yaml.safe_dump(_document(transport, seed, url, observe_every, certificates)), "utf-8")
        command = [sys.executable, "-m", "cloudgraft.cli", "serve", "--config", str(config)]
        with log.open("wb") as file, Popen(command, cwd=_ROOT, stderr=file) as process:
            try:
                told = _serving(process, log)
                if told["transport"] != transport:
                    raise RuntimeError(f"asked for {transport}, and {told['transport']} serves")
                server = ServerProcess(transport, told["address"], process.pid)
                yield Peer(server=server, beside=(cloud_pid,), ops=told["ops"])
                process.send_signal(signal.SIGCONT)
                process.terminate()
                process.wait(_SECONDS_TO_STOP)
            finally:
                process.kill()


def _document(
    transport: str, seed: Seed, url: str, observe_every: str, certificates: Path | None
) -> Mapping[str, object]:
    server: dict[str, object] = {"listen": "127.0.0.1:0", "ops": "127.0.0.1:0", "transport": transport}
    server["forceOptions"] = True  # so that both send options, and an answer is not shorter than the other
    if certificates is not None:
        files = Bundle.at(certificates)
        server["tls"] = {
            "cert": str(files.server_cert),
            "key": str(files.server_key),
            "clientCA": str(files.ca_cert),
            "allowedClients": [DEFAULT_CLIENT],
        }
    group = {"cloud": CLOUD, "minSize": 0, "maxSize": 100_000, "machine": {"shape": "small"}}
    return {
        "cluster": "bench",
        "server": server,
        "log": {"format": "json"},
        "store": {"path": str(seed.journal)},
        "clouds": {CLOUD: {"driver": "simulated", "url": url, "engine": {"observeEvery": observe_every}}},
        "nodeGroups": [
            {"id": name, **group, "options": {"scaleDownUnneededTime": "24h"}} for name in group_names(seed.groups)
        ],
        # Guards that are never hit must be counted all the same.
        "guards": {"maxMachines": 100_000, "maxSpendPerDay": {"amount": str(10**9), "currency": "EUR"}},
    }


def _serving(process: Popen[bytes], log: Path) -> dict[str, Any]:
    """The line in which it says where it serves."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        for line in log.read_text("utf-8").splitlines():
            told: dict[str, Any] = json.loads(line) if line.startswith("{") and line.endswith("}") else {}
            if told.get("event") == "serving" and "transport" in told:
                return told
        time.sleep(0.05)
    raise RuntimeError(f"cloudgraft did not start: {log.read_text('utf-8')[-2000:]}")


class Answered(NamedTuple):
    """The times of some calls, and how many failed."""

    block: Block
    errors: int


class Churned(NamedTuple):
    """Machines that were asked for and given back, and steps that failed."""

    created: int
    deleted: int
    errors: int


class GoLoad:
    """The client with grpc-go. It keeps a connection to every server, and makes calls when it is told to."""

    def __init__(self, process: Popen[str]) -> None:
        self._process = process

    @classmethod
    @contextmanager
    def started(cls, programs: Programs, fleet: Path) -> Iterator[GoLoad]:
        """One that runs for as long as the block lasts."""
        with Popen([programs.load, "-fleet", fleet], stdin=PIPE, stdout=PIPE, text=True) as process:
            try:
                yield cls(process)
            finally:
                process.kill()

    def connect(self, server: ServerProcess, certificates: Path | None) -> None:
        """Connects to it."""
        self._order("connect", server, address=server.address, certificates=str(certificates or ""))

    def answer(self, server: ServerProcess, rpc: str) -> Any:
        """One call, to look at what it answers."""
        return self._order("answer", server, rpc=rpc)["answer"]

    def block(self, server: ServerProcess, rpc: str, *, first: int, calls: int, callers: int) -> Answered:
        """So many calls, so many at a time, from that node or group on."""
        told = self._order("calls", server, rpc=rpc, first=first, calls=calls, callers=callers)
        return Answered(Block(told["micros"], told["seconds"]), told["errors"])

    def churn(self, server: ServerProcess, steps_per_second: int) -> Churned:
        """Machines come and go from now on, with 0 no more; what came of the last order."""
        told = self._order("churn", server, churn=steps_per_second)
        return Churned(told["created"], told["deleted"], told["errors"])

    def _order(self, what: str, server: ServerProcess, **details: object) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"do": what, "server": server.kind, **details}) + "\n")
        stdin.flush()
        line = stdout.readline()
        told: dict[str, Any] = json.loads(line) if line else {"error": "the client ended: its own message is above"}
        if "error" in told:
            raise RuntimeError(f"{what}, {server.kind}: {told['error']}")
        return told
