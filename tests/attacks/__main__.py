"""Attacks a real server on loopback, and prints its memory and the fate of the autoscaler's calls.

``python -m tests.attacks [--seconds 20] [--connections 1] [--dock] [attack ...]``
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.attacks.attacks import ATTACKS, attack
from tests.attacks.http2 import Target
from tests.attacks.victim import Probes, Setting, descriptors, get, memory, probe
from tests.cli.serve_process import ServeProcess

# connections that each attack opens, unless told otherwise
CONNECTIONS = {"slow-headers": 200, "idle-after-handshake": 1500, "silent": 10_000, "large-headers": 10}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("attacks", nargs="*", metavar="attack")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--connections", type=int, default=0)
    parser.add_argument("--streams", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=0, help="the server's limit of open files")
    parser.add_argument("--dock", action="store_true", help="attack the dock, and call the autoscaler's port meanwhile")
    parser.add_argument("--allowed", action="store_true", help="the attacker has the autoscaler's own certificate")
    parser.add_argument("--server", default="{}", help="more of the server section, as JSON")
    parser.add_argument("--as-attacker", default="")
    given = parser.parse_args()
    if given.as_attacker:
        kinds, target_settings = json.loads(given.as_attacker)
        for name in ("ca", "cert", "key"):
            target_settings[name] = Path(target_settings[name]) if target_settings[name] else None
        print(json.dumps(asyncio.run(_attack(kinds, Target(**target_settings)))))
        return
    for kind in given.attacks or ATTACKS:
        with tempfile.TemporaryDirectory() as directory:
            setting = Setting.at(Path(directory), **json.loads(given.server))
            given_settings: dict[str, Any] = {
                "seconds": given.seconds,
                "connections": given.connections or CONNECTIONS.get(kind, 1),
                "streams": given.streams,
            }
            if given.dock:
                target = setting.dock_target(**given_settings)
            else:
                target = setting.target(allowed=given.allowed, **given_settings)
            run([kind], target, setting, files=given.files, at_dock=given.dock).show()


async def _attack(kinds: Sequence[str], target: Target) -> dict[str, object]:
    async def one(kind: str) -> dict[str, object]:
        return {name: value for name, value in asdict(await attack(kind, target)).items() if value}

    return dict(zip(kinds, await asyncio.gather(*map(one, kinds)), strict=True))


@dataclass
class Outcome:
    """What attacks did to a server."""

    kinds: Sequence[str]
    before: int  # MB
    peak: int
    after: int
    probes: Probes
    descriptors: int
    ready: str
    toll: dict[str, object]
    refused: list[str]

    def show(self) -> None:
        probes = self.probes
        total, new = probes.ok + probes.failed, probes.new_ok + probes.new_failed
        print(
            f"{', '.join(self.kinds)}: memory {self.before} -> peak {self.peak} -> {self.after} MB; "
            f"probes failed {probes.failed}/{total} (slowest {probes.slowest:.2f} s), "
            f"on new connections {probes.new_failed}/{new} (slowest {probes.slowest_new:.2f} s); "
            f"descriptors {self.descriptors}; readyz {self.ready}"
        )
        print("    attacker:", self.toll)
        if probes.reasons:
            print("    failures:", probes.reasons)
        print(*self.refused, sep="\n    ", flush=True)


def run(kinds: Sequence[str], target: Target, setting: Setting, *, files: int = 0, at_dock: bool = False) -> Outcome:
    """Starts a server, attacks it from another process, and calls it as the autoscaler does meanwhile.

    ``at_dock`` attacks the port for drivers. The calls go to the autoscaler's port all the same.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # for the attacker
    with ServeProcess(setting.file, files=files) as server:
        line = server.wait_for(lambda line: line.get("event") == "serving")
        address, ops = line["address"], line["ops"]
        dock = server.wait_for(lambda line: line.get("event") == "serving drivers that dial in")["address"]
        asyncio.run(probe(address, setting, 1.0))
        before = memory(server.pid)
        aimed = replace(target, port=int((dock if at_dock else address).rpartition(":")[2]))
        order = json.dumps([kinds, asdict(aimed)], default=str)
        attacker = subprocess.Popen(
            [sys.executable, "-m", "tests.attacks", "--as-attacker", order], stdout=subprocess.PIPE, text=True
        )
        probes, most, ready = asyncio.run(_meanwhile(address, ops, server.pid, setting, target.seconds))
        toll = json.loads(attacker.communicate()[0] or "{}")
        peak = memory(server.pid, "VmHWM")
        lines = get(f"http://{ops}/metrics")[1].splitlines()
        refused = [
            text for text in lines if text.startswith("cloudgraft_refused_clients_total") and text[-4:] != " 0.0"
        ]
        return Outcome(kinds, before, peak, memory(server.pid), probes, most, ready, toll, ["", *refused])


async def _meanwhile(address: str, ops: str, pid: int, setting: Setting, seconds: float) -> tuple[Probes, int, str]:
    return await asyncio.gather(probe(address, setting, seconds), _most_descriptors(pid, seconds), _ready(ops, seconds))


async def _most_descriptors(pid: int, seconds: float) -> int:
    most = 0
    for _ in range(int(seconds / 0.5)):
        most = max(most, descriptors(pid))
        await asyncio.sleep(0.5)
    return most


async def _ready(ops: str, seconds: float) -> str:
    good = bad = 0
    for _ in range(int(seconds)):
        try:
            status, _ = await asyncio.to_thread(get, f"http://{ops}/readyz")
        except OSError:
            status = 0
        good += status == 200
        bad += status != 200
        await asyncio.sleep(1)
    return f"{good} ok, {bad} failed"


if __name__ == "__main__":
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    main()
