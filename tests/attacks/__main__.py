"""Attacks a real server on loopback, and prints its memory and the fate of the autoscaler's calls.

``python -m tests.attacks [--seconds 20] [--connections 1] [attack ...]``
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
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from tests.attacks.attacks import ATTACKS, Target, attack
from tests.attacks.victim import Probes, Setting, descriptors, get, memory, probe
from tests.cli.serve_process import ServeProcess

# connections that each attack opens, unless told otherwise
_CONNECTIONS = {"slow-headers": 200, "idle-after-handshake": 1500, "silent": 5000, "large-headers": 10}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("attacks", nargs="*", metavar="attack")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--connections", type=int, default=0)
    parser.add_argument("--streams", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=0, help="the server's limit of open files")
    parser.add_argument("--allowed", action="store_true", help="the attacker has the autoscaler's own certificate")
    parser.add_argument("--server", default="{}", help="more of the server section, as JSON")
    parser.add_argument("--as-attacker", default="")
    given = parser.parse_args()
    if given.as_attacker:
        kind, settings = json.loads(given.as_attacker)
        for name in ("ca", "cert", "key"):
            settings[name] = Path(settings[name]) if settings[name] else None
        print(json.dumps(asdict(asyncio.run(attack(kind, Target(**settings))))))
        return
    for kind in given.attacks or ATTACKS:
        with tempfile.TemporaryDirectory() as directory:
            asyncio.run(_run(kind, given, Path(directory)))


async def _run(kind: str, given: argparse.Namespace, directory: Path) -> None:
    setting = Setting.at(directory, **json.loads(given.server))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (given.files or hard, hard))
    with ServeProcess(setting.file) as server:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        line = server.wait_for(lambda line: line.get("event") == "serving")
        address, ops = line["address"], line["ops"]
        await probe(address, setting, 1.0)
        before = memory(server.pid)
        cert, key = (setting.bundle.client_cert, setting.bundle.client_key) if given.allowed else setting.stranger
        target = Target(
            host="127.0.0.1",
            port=int(address.rpartition(":")[2]),
            ca=setting.bundle.ca_cert,
            cert=cert,
            key=key,
            seconds=given.seconds,
            connections=given.connections or _CONNECTIONS.get(kind, 1),
            streams=given.streams,
        )
        order = json.dumps([kind, asdict(target)], default=str)
        attacker = subprocess.Popen(
            [sys.executable, "-m", "tests.attacks", "--as-attacker", order], stdout=subprocess.PIPE, cwd=Path.cwd()
        )
        probes, most, ready = await asyncio.gather(
            probe(address, setting, given.seconds),
            _most_descriptors(server.pid, given.seconds),
            _ready(ops, given.seconds),
        )
        toll = json.loads(await asyncio.to_thread(lambda: attacker.communicate()[0]) or "{}")
        peak = memory(server.pid, "VmHWM")
        await asyncio.sleep(2)
        _print(kind, before, peak, memory(server.pid), probes, most, ready, toll)
        refused = [
            text
            for text in get(f"http://{ops}/metrics")[1].splitlines()
            if "refused_clients_total" in text and text[0] != "#" and not text.endswith(" 0.0")
        ]
        print("   ", *refused, sep="\n    ", flush=True)


async def _most_descriptors(pid: int, seconds: float) -> int:
    most = 0
    for _ in range(int(seconds / 0.5)):
        most = max(most, descriptors(pid))
        await asyncio.sleep(0.5)
    return most


async def _ready(ops: str, seconds: float) -> str:
    good = bad = 0
    for _ in range(int(seconds)):
        with suppress(OSError):
            status, _ = await asyncio.to_thread(get, f"http://{ops}/readyz")
            good += status == 200
            await asyncio.sleep(1)
            continue
        bad += 1
        await asyncio.sleep(1)
    return f"{good} ok, {bad} failed"


def _print(
    kind: str, before: int, peak: int, after: int, probes: Probes, most: int, ready: str, toll: dict[str, object]
) -> None:
    total, new = probes.ok + probes.failed, probes.new_ok + probes.new_failed
    print(
        f"{kind}: memory {before} -> peak {peak} -> {after} MB; probes failed {probes.failed}/{total} "
        f"(slowest {probes.slowest:.2f} s), on new connections {probes.new_failed}/{new} "
        f"(slowest {probes.slowest_new:.2f} s); descriptors {most}; readyz {ready}"
    )
    print("    attacker:", toll)
    if probes.reasons:
        print("    failures:", probes.reasons, flush=True)


if __name__ == "__main__":
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    main()
