"""An API server that is broken, or hostile: what it sends is bounded in memory and time, and holds nobody up."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from cloudgraft.certs.authority import Bundle, create_bundle
from cloudgraft.certs.defaults import DEFAULT_HOSTS
from cloudgraft.kube import api as api_module
from cloudgraft.kube import client as client_module
from cloudgraft.kube.api import Api, Call
from cloudgraft.kube.client import KubeClient
from cloudgraft.kube.connect import connect, connect_foreign
from cloudgraft.kube.credentials import from_kubeconfig
from cloudgraft.kube.networks import AllowedNetworks
from cloudgraft.kube.objects import NODES
from cloudgraft.sdk.errors import DeadlineError
from tests.drivers.http.misbehaving_server import Rogue, Seen, answers

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
BOOKMARK = b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}\n'
Behaviour = Callable[[socket.socket, Seen], object]


def sends(start: bytes, more: bytes, times: int) -> Behaviour:
    """Much, and then the end: a client that reads on and on is to fail, and not to hang."""

    def behave(connection: socket.socket, _: Seen) -> None:
        connection.sendall(start)
        for _number in range(times):
            connection.sendall(more)
        connection.shutdown(socket.SHUT_RDWR)

    return behave


def kubeconfig(rogue: Rogue) -> str:
    scheme = "https" if rogue.bundle else "http"
    cluster = {"server": f"{scheme}://127.0.0.1:{rogue.port}"}
    if rogue.bundle:
        cluster["certificate-authority-data"] = base64.b64encode(rogue.bundle.ca_cert.read_bytes()).decode()
    return json.dumps(
        {
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": "not-a-secret"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    )


@asynccontextmanager
async def client_of(rogue: Rogue, directory: Path) -> AsyncIterator[KubeClient]:
    path = directory / "kubeconfig"
    path.write_text(kubeconfig(rogue))
    client = connect(path)
    try:
        yield client
    finally:
        await client.close()


async def watched(client: KubeClient) -> int:
    """How many changes there were."""
    count = 0
    async with aclosing(client.watch(NODES, version="1")) as changes:
        async for _ in changes:
            count += 1
    return count


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return create_bundle(tmp_path_factory.mktemp("certs") / "own", hosts=DEFAULT_HOSTS)


async def test_an_event_without_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "_MOST_LINE", 100_000)
    with Rogue(sends(OK, b"x" * 10_000, 1000)) as rogue:
        async with client_of(rogue, tmp_path) as client:
            with pytest.raises(DeadlineError, match="cannot watch nodes: a line of the answer has more than 100000"):
                await watched(client)


async def test_events_without_end_are_not_read_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "_MOST_LISTED", 1 << 20)
    with Rogue(sends(OK, BOOKMARK * 1000, 100)) as rogue:
        async with client_of(rogue, tmp_path) as client:
            with pytest.raises(DeadlineError, match="the answer has more than 1 MiB"):
                await watched(client)


async def test_a_watch_that_never_ends_is_given_up_although_it_talks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that something in between keeps alive must not pass for a fresh view of the cluster."""
    monkeypatch.setattr(client_module, "_LONGEST_WATCH", 0.5)

    def goes_on(connection: socket.socket, _: Seen) -> None:
        connection.sendall(OK)
        connection.settimeout(0.01)
        for _number in range(2000):  # longer than the watch, and not for ever
            connection.sendall(BOOKMARK)
            try:
                if not connection.recv(1):
                    return
            except TimeoutError:
                continue

    with Rogue(goes_on) as rogue:
        async with client_of(rogue, tmp_path) as client:
            with pytest.raises(DeadlineError, match="did not answer in time"):
                await watched(client)


async def test_many_events_in_one_chunk_are_all_delivered(tmp_path: Path) -> None:
    last = BOOKMARK.rstrip(b"\n")  # some servers end without an end of line
    with Rogue(sends(OK + BOOKMARK * 999 + last, b"", 0)) as rogue:
        async with client_of(rogue, tmp_path) as client:
            assert await watched(client) == 1000


async def test_a_packed_answer_is_neither_asked_for_nor_unpacked(tmp_path: Path) -> None:
    packed = gzip.compress(b" " * (1 << 20))
    with Rogue(answers(200, packed, Content_Encoding="gzip")) as rogue:
        async with client_of(rogue, tmp_path) as client:
            with pytest.raises(DeadlineError, match="an encoding that was not asked for"):
                await client.list(NODES)
            with pytest.raises(DeadlineError, match="an encoding that was not asked for"):
                await watched(client)
    assert {seen.headers["accept-encoding"] for seen in rogue.seen} == {"identity"}


async def test_interim_answers_without_end_are_not_read_for_ever(tmp_path: Path) -> None:
    with Rogue(sends(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, 1000)) as rogue:
        async with client_of(rogue, tmp_path) as client:
            with pytest.raises(DeadlineError, match=r"cannot list nodes: .* KiB of headers"):
                await client.list(NODES)


async def own(rogue: Rogue, directory: Path) -> Api:
    path = directory / "kubeconfig"
    path.write_text(kubeconfig(rogue))
    return Api(from_kubeconfig(path), name="it", timeout=15)


async def foreign(rogue: Rogue, _: Path) -> Api:
    networks = AllowedNetworks.of(["127.0.0.0/8"])
    return (await connect_foreign(kubeconfig(rogue), name="it", networks=networks))._api


@pytest.mark.parametrize("connected", [own, foreign])
async def test_others_get_their_turn_while_tiny_pieces_are_read(
    connected: Callable[[Rogue, Path], Awaitable[Api]], tmp_path: Path, bundle: Bundle
) -> None:
    """Between two turns of others no more is handled than one small read may hold: 7 bytes for each line here."""
    turn = 0

    async def others() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    lines: Counter[int] = Counter()
    pieces = b"2\r\n1\n\r\n" * 10_000 + b"0\r\n\r\n"
    with Rogue(sends(CHUNKED, pieces, 1), bundle=bundle if connected is foreign else None) as rogue:
        api = await connected(rogue, tmp_path)
        waiting = asyncio.create_task(others())
        call = Call(what="x", method="GET", path="x")
        async with aclosing(api.stream(call, seconds=60)) as stream:
            async for _ in stream:
                lines[turn] += 1
        waiting.cancel()
        await api.close()
    assert lines.total() == 10_000
    assert max(lines.values()) <= 4096 // 7 + 1
