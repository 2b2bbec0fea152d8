"""What discovery answers, or does not, is never taken for "there are no clusters"."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cloudgraft.discovery.client import DiscoveryClient
from cloudgraft.discovery.model import Need
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, UnavailableError
from cloudgraft.sdk.quantity import Quantity

NEED = Need(resources={"cpu": Quantity(1)})


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """A server that says the same to everybody, and hangs up; its URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def _http(body: bytes, kind: str, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize(
    "answer",
    [
        _http(b"no clusters found", "text/plain"),  # the original's own answer when it knows none
        _http(b"no clusters found", "application/json"),
        _http(b"null", "application/json"),
        _http(b"[]", "application/json"),
        _http(b"{}", "application/json"),
        _http(b"", "application/json"),
        _http(b"<html>", "text/html", "302 Found"),
        _http(b'{"items": [], "offers": []}', "application/json"),  # cut short
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{",
        b"what?\r\n\r\n",
        b"",
    ],
)
async def test_bug_9_an_answer_that_is_none_of_discoverys_is_an_error_and_not_an_empty_list(answer: bytes) -> None:
    """Bug 9 of the original: a broken connection ended its node manager, and no JSON was taken for no clusters."""
    async with answering(answer) as url, DiscoveryClient(url) as client:
        for ask in (client.clusters, lambda: client.search(NEED), lambda: client.reservations("us/")):
            with pytest.raises(DeadlineError) as caught:
                await ask()
            assert caught.value.message


async def test_bug_9_a_server_that_cannot_be_reached_is_an_error_that_says_so() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    async with DiscoveryClient(f"http://127.0.0.1:{port}") as client:
        for ask in (client.clusters, lambda: client.search(NEED), lambda: client.reservations("us/")):
            with pytest.raises(UnavailableError, match="cannot be reached"):
                await ask()


async def test_bug_9_an_error_of_something_in_between_is_an_error() -> None:
    async with answering(_http(b"<html>", "text/html", "502 Bad Gateway")) as url, DiscoveryClient(url) as client:
        with pytest.raises(CloudgraftError, match="502"):
            await client.clusters()
