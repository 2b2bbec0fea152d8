"""What a stranger, or a client gone mad, can keep busy: little, and not for long."""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from cloudgraft.certs.authority import Bundle, create_bundle
from cloudgraft.sdk.errors import DeadlineError
from cloudgraft.web import client as client_module
from cloudgraft.web import listener as listener_module
from cloudgraft.web.app import make_app
from cloudgraft.web.authentication import AuditLog, ClientRule, Gatekeeper
from cloudgraft.web.client import ClientTls, WebClient
from cloudgraft.web.listener import WebListener, WebTls
from cloudgraft.web.problems import Problem

HEAD = b"POST /metrics HTTP/1.1\r\nHost: x\r\n"


class Place:
    """A server with one operator, and strangers at the door."""

    def __init__(self, directory: Path) -> None:
        self.certs: Bundle = create_bundle(directory / "certs", hosts=["127.0.0.1"], client_name="boss")
        rules = [ClientRule(name="boss", role="operator", certificate="boss")]

        async def ready() -> str:
            return ""

        app = make_app(
            title="things",
            version="1",
            routers=[],
            gatekeeper=Gatekeeper(rules, secure=True),
            audit=AuditLog(directory / "audit.log"),
            ready=ready,
            metrics=CollectorRegistry(),
        )
        tls = WebTls(cert=self.certs.server_cert, key=self.certs.server_key, client_ca=self.certs.ca_cert)
        self.listener = WebListener(app, listen="127.0.0.1:0", tls=tls)

    @functools.cached_property
    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.certs.ca_cert))
        context.load_cert_chain(self.certs.client_cert, self.certs.client_key)
        return context

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = self.listener.address.rpartition(":")
        return await asyncio.open_connection(host, int(port), ssl=self.context)

    def operator(self) -> WebClient:
        files = ClientTls(ca=self.certs.ca_cert, cert=self.certs.client_cert, key=self.certs.client_key)
        return WebClient(self.listener.url, tls=files, timeout=60)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path)
    await place.listener.open()
    yield place
    await place.listener.close(1)


async def _end(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the server closes the connection."""
    try:
        async with asyncio.timeout(30):
            return await reader.read()
    except ConnectionError:
        return b""


@pytest.mark.parametrize(
    "sent",
    [b"", HEAD, HEAD + b"Content-Length: 100\r\n\r\nhalf"],
    ids=["nothing", "half a head", "half a body"],
)
async def test_who_does_not_get_on_with_its_request_is_cut_off(
    place: Place, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(listener_module, "_ARRIVAL", 0.2)
    reader, writer = await place.connect()
    writer.write(sent)
    told = await _end(reader)
    assert not told or told.startswith(b"HTTP/1.1 40")  # what nobody reads the rest of may be answered before
    writer.close()


async def test_who_keeps_a_connection_for_later_is_not_cut_off(place: Place) -> None:
    reader, writer = await place.connect()
    for _ in range(2):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = await reader.readuntil(b'{"status":"ok"}')
        assert answer.startswith(b"HTTP/1.1 200")
        (connection,) = place.listener._server.server_state.connections  # type: ignore[union-attr]  # it is open
        assert connection._arriving is None, "nothing ends it but the limit of all connections that are idle"  # type: ignore[union-attr]
    assert not reader.at_eof()
    writer.close()


@pytest.mark.parametrize(
    "sent",
    [
        HEAD + b"X: " + b"x" * 1_000_000 + b"\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        HEAD + b"Content-Length: 5x\r\n\r\nhello",
        HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"GET /metrics\r\n\r\n",
        HEAD + b"Transfer-Encoding: =\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nno length\r\n",
        b"\x16\x03\x01 nonsense\r\n\r\n",
    ],
)
async def test_a_request_with_two_meanings_is_refused_and_the_connection_ends(place: Place, sent: bytes) -> None:
    reader, writer = await place.connect()
    writer.write(sent + b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    told = await _end(reader)
    head, _, body = told.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"content-type: application/problem+json" in head.lower()
    assert Problem.model_validate_json(body).code == "invalid_argument"  # one problem, and nothing behind it
    writer.close()


async def test_silent_connections_keep_no_client_out(place: Place) -> None:
    idle = [await place.connect() for _ in range(30)]
    async with place.operator() as client:
        assert (await client.request("GET", "/metrics")).status == 200
    for _, writer in idle:
        writer.close()


async def test_an_answer_without_end_does_not_fill_the_memory_of_a_client(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_MOST_BYTES", 3)
    async with place.operator() as client:
        with pytest.raises(DeadlineError, match="not one of our servers"):
            await client.request("GET", "/healthz")


async def test_who_came_before_has_to_show_its_certificate_again(place: Place) -> None:
    """No tickets: a session that is taken up again would outlive the authority that vouched for it."""
    reader, writer = await place.connect()
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readline()
    connection = writer.get_extra_info("ssl_object")
    assert connection.session is None or not connection.session.has_ticket
    writer.close()


async def test_new_files_of_a_client_do_not_break_what_it_waits_for(place: Place, tmp_path: Path) -> None:
    """A change whose connection is closed under it has an outcome that nobody knows."""
    async with place.operator() as client:
        async with client._client() as before:  # as a request has it
            place.certs.client_key.write_text("nonsense")  # half of a new pair
            assert (await client.request("GET", "/metrics")).status == 200
            new = create_bundle(tmp_path / "new", hosts=["127.0.0.1"], client_name="boss")
            place.certs.client_key.write_bytes(new.client_key.read_bytes())
            place.certs.client_cert.write_bytes(new.client_cert.read_bytes())
            async with client._client() as after:
                assert after is not before
            assert not before.is_closed
        assert before.is_closed
