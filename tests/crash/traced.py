"""What the kernel saw: a change is on disk before it is answered, and before the cloud hears of it. Needs strace."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloudgraft.client import Address, CloudConfig, RemoteProvider
from cloudgraft.sdk.types import NodeRef
from tests.conditions import until
from tests.crash.lasting_cloud import LastingCloud
from tests.crash.setting import Variant

_CALL = re.compile(r"(?P<thread>\d+) +(?P<name>\w+)\((?P<rest>.*)")
_RESUMED = re.compile(r"(?P<thread>\d+) +<\.\.\. (?P<name>\w+) resumed>")
_BYTES = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_HEADERS = 1  # the type of an HTTP/2 frame that begins or ends an answer


@dataclass(frozen=True, slots=True)
class _Event:
    """A system call, at the moment when it began or, of a sync, when it was over."""

    name: str
    file: str  # the path or the addresses behind its descriptor
    data: bytes


@dataclass(frozen=True, slots=True)
class Finding:
    """One change: at which places of the trace its three moments are."""

    what: str
    written: int
    synced: int
    told: int  # the answer began to be sent, or the cloud to be called

    def __str__(self) -> str:
        return f"{self.what}: journal written at {self.written}, synced at {self.synced}, told at {self.told}"

    @property
    def is_in_order(self) -> bool:
        return self.written < self.synced < self.told


def has_strace() -> bool:
    """Whether there is a strace, and it may be used here."""
    found = shutil.which("strace")
    return found is not None and subprocess.run([found, "true"], capture_output=True, check=False).returncode == 0


def trace(directory: Path) -> list[Finding]:
    """Runs a server under strace, makes changes, and says in which order things happened."""
    directory.mkdir(parents=True)
    out = directory / "trace"
    with LastingCloud(directory, Variant()) as sky:
        file = directory / "cloudgraft.yaml"
        group = {"id": "web", "cloud": "sim", "maxSize": 10, "machine": {"shape": "small"}}
        cloud = {"driver": "simulated", "url": sky.url, "engine": {"observeEvery": "200ms"}}
        server = {"listen": "127.0.0.1:0"}
        file.write_text(
            json.dumps({"cluster": "traced", "server": server, "clouds": {"sim": cloud}, "nodeGroups": [group]})
        )
        calls = "trace=pwrite64,fdatasync,fsync,sendmsg,sendto,write,writev"  # the transports differ in how they send
        strace = ["strace", "-f", "-yy", "-xx", "-s", "65536", "-e", calls, "-o", str(out)]
        serve = [sys.executable, "-m", "cloudgraft.cli", "serve", "-c", str(file), "--log-format", "json"]
        process = subprocess.Popen([*strace, *serve], stderr=subprocess.PIPE, text=True)
        try:
            address = _address(process)
            asyncio.run(_make_changes(address))
        finally:
            _stop(process)
        return _findings(list(_events(out)), server=address, cloud=sky.url.removeprefix("http://"))


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        said = json.loads(line) if line.startswith("{") else {}
        if said.get("event") == "serving":
            return str(said["address"])
    raise AssertionError("the server did not start under strace")


def _stop(process: subprocess.Popen[str]) -> None:
    """Stops what strace has started: itself it is deaf to signals then."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGTERM)
    process.communicate(timeout=60)


async def _make_changes(address: str) -> None:
    """Every call of one connection is a stream of its own: 1, 3, 5. Those below are the first three."""
    provider = RemoteProvider.connect(CloudConfig(address=Address.parse(address)))
    try:
        await provider.increase_size("web", 3)
        listed = [instance.id for instance in await provider.instances("web")]
        await provider.delete_nodes("web", [NodeRef(name=id_, provider_id=id_) for id_ in listed[:2]])

        async def is_over() -> bool:
            return len(await provider.instances("web")) == 1

        await until(is_over, what="two are deleted")
    finally:
        await provider.close()


# -- reading the trace -----------------------------------------------------------------------------------------------


def _events(out: Path) -> Iterator[_Event]:
    """A sync counts when it is over, everything else when it begins."""
    begun: dict[str, _Event] = {}
    for line in out.read_text(encoding="utf-8", errors="replace").splitlines():
        if resumed := _RESUMED.match(line):
            event = begun.pop(resumed["thread"], None)
            if event is not None and event.name in ("fdatasync", "fsync"):
                yield event
        elif call := _CALL.match(line):
            file, _, rest = call["rest"].partition("<")[2].partition(">")
            if file.startswith("TCP"):  # TCP:[from->to]
                end, _, rest = rest.partition(">")
                file += f">{end}"
            data = b"".join(map(_decoded, _BYTES.findall(rest)))
            event = _Event(call["name"], _decoded(file).decode(errors="replace"), data)
            begun[call["thread"]] = event
            if event.name not in ("fdatasync", "fsync") or "<unfinished" not in line:
                yield event


def _decoded(text: str) -> bytes:
    """What strace has written with -xx."""
    return bytes.fromhex(text.replace("\\x", "")) if text.startswith("\\x") else text.encode()


def _findings(events: Sequence[_Event], *, server: str, cloud: str) -> list[Finding]:
    def answers(stream: int) -> Callable[[_Event], bool]:
        port = server.rpartition(":")[2]  # the address itself may be shown as one of IPv6
        return lambda event: f":{port}->" in event.file and stream in _streams(event.data)

    def creates(event: _Event) -> bool:
        return f"->{cloud}]" in event.file and b"POST /machines" in event.data

    return [
        _finding(events, "IncreaseSize", b"the autoscaler asked for 3 more", answers(1)),
        _finding(events, "DeleteNodes", b"the autoscaler deleted 2", answers(5)),
        _finding(events, "the first create", b"the cloud is asked to create it", creates),
    ]


def _finding(events: Sequence[_Event], what: str, words: bytes, tells: Callable[[_Event], bool]) -> Finding:
    def first(holds: Callable[[_Event], bool], after: int = -1) -> int:
        places = (place for place, event in enumerate(events) if place > after and holds(event))
        found = next(places, None)
        if found is None:
            raise AssertionError(f"{what}: the trace does not show it")
        return found

    written = first(lambda e: e.name == "pwrite64" and e.file.endswith("-wal") and words in e.data)
    synced = first(lambda e: e.name in ("fdatasync", "fsync") and e.file.endswith("-wal"), after=written)
    return Finding(what, written, synced, first(tells))


def _streams(data: bytes) -> set[int]:
    """The calls that these bytes, whole HTTP/2 frames, carry headers for."""
    found, place = set(), 0
    while place + 9 <= len(data):
        length, kind = int.from_bytes(data[place : place + 3], "big"), data[place + 3]
        if kind == _HEADERS:
            found.add(int.from_bytes(data[place + 5 : place + 9], "big"))
        place += 9 + length
    return found
