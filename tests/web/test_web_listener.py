"""A server over real TLS: who is let in, what a stranger may see, and what is written down."""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import httpx2
import pytest
from fastapi import APIRouter, Depends, FastAPI
from prometheus_client import CollectorRegistry
from pydantic import BaseModel

from cloudgraft.certs.authority import Bundle, create_bundle, issue_client
from cloudgraft.sdk.errors import (
    AuthenticationError,
    ConflictError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfStockError,
    PermissionDeniedError,
    UnavailableError,
)
from cloudgraft.web.app import make_app
from cloudgraft.web.authentication import AuditLog, Caller, ClientRule, Gatekeeper, allowed, audited, unaudited
from cloudgraft.web.client import ClientTls, WebClient
from cloudgraft.web.listener import WebListener, WebTls
from cloudgraft.web.problems import EditedMeanwhileError

PATIENCE = 60.0  # seconds for a request, on a machine that is busy with other things
TOKEN = "a-token-that-is-long-enough"


class Thing(BaseModel):
    size: int


def things() -> APIRouter:
    router = APIRouter()

    @router.get("/things/{name}", operation_id="thing")
    async def thing(name: str, caller: Annotated[Caller, allowed("operator", "read-only")]) -> Thing:
        if name == "bug":
            raise RuntimeError("only the log may see this")
        if name == "taken":
            raise OutOfStockError("nothing is left", retry_after=7)
        if name == "old":
            raise EditedMeanwhileError("it is not what you saw")
        if name != "one":
            raise NotFoundError(f"there is no thing {name!r}; GET /things lists them")
        return Thing(size=len(caller.name))

    @router.put("/things/{name}", operation_id="putThing")
    async def put(name: str, thing: Thing, caller: Annotated[Caller, allowed("operator")]) -> Thing:
        return thing

    @router.get("/secret", operation_id="secret", dependencies=[Depends(audited)])
    async def secret(caller: Annotated[Caller, allowed("operator")]) -> Thing:
        return Thing(size=0)

    @router.post("/beat", operation_id="beat", dependencies=[Depends(unaudited)])
    async def beat(caller: Annotated[Caller, allowed("operator")]) -> Thing:
        return Thing(size=0)

    return router


class World:
    """A server with an operator by certificate and a reader by token."""

    def __init__(self, directory: Path) -> None:
        self.certs: Bundle = create_bundle(directory / "certs", hosts=["127.0.0.1"], client_name="boss")
        self.token_file = directory / "token"
        self.token_file.write_text(TOKEN)
        self.rules = [
            ClientRule(name="boss", role="operator", certificate="boss"),
            ClientRule(name="eye", role="read-only", token_file=self.token_file),
        ]
        self.gatekeeper = Gatekeeper(self.rules, secure=True, look_every=0)
        self.audit_file = directory / "audit.log"
        self.reason = ""
        self.app: FastAPI = make_app(
            title="things",
            version="1",
            routers=[things()],
            gatekeeper=self.gatekeeper,
            audit=AuditLog(self.audit_file),
            ready=self._ready,
            metrics=CollectorRegistry(),
            max_body=1000,
        )
        tls = WebTls(cert=self.certs.server_cert, key=self.certs.server_key, client_ca=self.certs.ca_cert)
        self.listener = WebListener(self.app, listen="127.0.0.1:0", tls=tls)

    async def _ready(self) -> str:
        return self.reason

    def operator(self) -> WebClient:
        tls = ClientTls(ca=self.certs.ca_cert, cert=self.certs.client_cert, key=self.certs.client_key)
        return WebClient(self.listener.url, tls=tls, timeout=PATIENCE)

    def reader(self) -> WebClient:
        return WebClient(
            self.listener.url, tls=ClientTls(ca=self.certs.ca_cert), token_file=self.token_file, timeout=PATIENCE
        )

    def stranger(self) -> WebClient:
        return WebClient(self.listener.url, tls=ClientTls(ca=self.certs.ca_cert), timeout=PATIENCE)

    def audited(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.audit_file.read_text().splitlines()]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    await world.listener.open()
    yield world
    await world.listener.close(1)


async def test_who_has_a_known_certificate_or_token_is_known_by_its_name(world: World) -> None:
    async with world.operator() as operator, world.reader() as reader:
        assert (await operator.request("GET", "/things/one")).json == {"size": len("boss")}
        assert (await reader.request("GET", "/things/one")).json == {"size": len("eye")}


async def test_a_refused_caller_learns_which_role_is_needed(world: World) -> None:
    async with world.reader() as reader:
        with pytest.raises(PermissionDeniedError, match="has the role read-only; this needs operator"):
            await reader.request("PUT", "/things/one", json={"size": 1})


async def test_a_stranger_learns_nothing_but_health(world: World) -> None:
    """Not even whether a path exists, or what the API looks like."""
    async with world.stranger() as stranger:
        for path in ("/things/one", "/nowhere", "/openapi.json", "/metrics", "/healthz/", "//healthz", "/docs"):
            with pytest.raises(AuthenticationError, match="clients in the server's configuration"):
                await stranger.request("GET", path)
        assert (await stranger.request("GET", "/healthz")).json == {"status": "ok"}
        world.reason = "this process does not lead"
        with pytest.raises(UnavailableError, match="does not lead"):
            await stranger.request("GET", "/readyz")


async def test_a_certificate_of_another_authority_is_refused_in_the_handshake(world: World, tmp_path: Path) -> None:
    other = create_bundle(tmp_path / "other", hosts=["127.0.0.1"], client_name="boss")
    tls = ClientTls(ca=world.certs.ca_cert, cert=other.client_cert, key=other.client_key)
    async with WebClient(world.listener.url, tls=tls, timeout=PATIENCE) as client:
        with pytest.raises((DeadlineError, UnavailableError)):
            await client.request("GET", "/things/one")


async def test_a_certificate_without_a_rule_is_a_stranger(world: World) -> None:
    issue_client(world.certs.directory, "somebody")
    directory = world.certs.directory
    tls = ClientTls(ca=world.certs.ca_cert, cert=directory / "somebody.crt", key=directory / "somebody.key")
    async with WebClient(world.listener.url, tls=tls, timeout=PATIENCE) as client:
        with pytest.raises(AuthenticationError):
            await client.request("GET", "/things/one")


async def test_a_token_taken_out_of_its_file_is_good_no_more(world: World, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text(TOKEN)
    tls = ClientTls(ca=world.certs.ca_cert)
    async with WebClient(world.listener.url, tls=tls, token_file=mine, timeout=PATIENCE) as client:
        await client.request("GET", "/things/one")
        world.token_file.write_text("another-token-long-enough")
        with pytest.raises(AuthenticationError):
            await client.request("GET", "/things/one")
        mine.write_text("another-token-long-enough")
        await client.request("GET", "/things/one")


async def test_a_client_that_is_removed_is_refused_on_the_connection_that_it_has(world: World) -> None:
    async with world.operator() as operator:
        await operator.request("GET", "/things/one")
        world.gatekeeper.replace(world.rules[1:])
        with pytest.raises(AuthenticationError):
            await operator.request("GET", "/things/one")


async def test_new_certificates_are_used_for_the_next_connection_and_an_authority_that_went_is_not_believed(
    world: World, tmp_path: Path
) -> None:
    new = create_bundle(tmp_path / "new", hosts=["127.0.0.1"], client_name="boss")
    for old, fresh in (
        (world.certs.ca_cert, new.ca_cert),
        (world.certs.server_key, new.server_key),
        (world.certs.server_cert, new.server_cert),
    ):
        old.with_suffix(".new").write_bytes(fresh.read_bytes())
        old.with_suffix(".new").replace(old)
    tls = ClientTls(ca=new.ca_cert, cert=new.client_cert, key=new.client_key)
    async with WebClient(world.listener.url, tls=tls, timeout=PATIENCE) as client:
        assert (await client.request("GET", "/things/one")).status == 200
    tls = ClientTls(ca=new.ca_cert, cert=world.certs.client_cert, key=world.certs.client_key)
    async with WebClient(world.listener.url, tls=tls, timeout=PATIENCE) as client:
        with pytest.raises((DeadlineError, UnavailableError)):
            await client.request("GET", "/things/one")


async def test_files_that_do_not_fit_together_leave_the_old_ones_in_use(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world.certs.server_cert.write_text("nonsense")
    tls = ClientTls(ca=world.certs.ca_cert, cert=world.certs.client_cert, key=world.certs.client_key)
    with caplog.at_level(logging.WARNING):
        async with WebClient(world.listener.url, tls=tls, timeout=PATIENCE) as client:
            assert (await client.request("GET", "/things/one")).status == 200
    assert "the old ones stay" in caplog.text


async def test_changes_refusals_and_reads_of_secrets_are_audited_and_bodies_are_not(world: World) -> None:
    async with world.operator() as operator, world.stranger() as stranger:
        await operator.request("PUT", "/things/one", json={"size": 424242})
        await operator.request("GET", "/things/one")
        await operator.request("GET", "/secret")
        await operator.request("POST", "/beat")
        with pytest.raises(AuthenticationError):
            await stranger.request("GET", "/things/one")
    told = [(r["caller"], r["role"], r["method"], r["path"], r["status"]) for r in world.audited()]
    assert told == [
        ("boss", "operator", "PUT", "/things/one", 200),
        ("boss", "operator", "GET", "/secret", 200),
        ("", "", "GET", "/things/one", 401),
    ]
    assert "424242" not in world.audit_file.read_text()
    assert world.audit_file.stat().st_mode & 0o077 == 0


async def test_errors_come_back_as_what_they_were(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async with world.operator() as operator:
        with pytest.raises(NotFoundError, match="there is no thing 'two'; GET /things lists them"):
            await operator.request("GET", "/things/two")
        with pytest.raises(OutOfStockError) as caught:
            await operator.request("GET", "/things/taken")
        assert caught.value.retry_after == 7
        with pytest.raises(ConflictError, match="not what you saw"):
            await operator.request("GET", "/things/old")
        with pytest.raises(InvalidArgumentError, match=r"body\.size"):
            await operator.request("PUT", "/things/one", json={"size": "huge"})
        with pytest.raises(InternalError, match="a bug") as bug:
            await operator.request("GET", "/things/bug")
    assert "only the log" not in bug.value.message
    assert "only the log may see this" in caplog.text


async def test_a_body_that_is_too_large_is_refused_without_a_content_length(world: World) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield b" " * 1000

    context = ssl.create_default_context(cafile=world.certs.ca_cert)
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    async with httpx2.AsyncClient(verify=context, headers=headers) as client:
        for content in (b" " * 50_000, chunks()):
            answer = await client.put(f"{world.listener.url}/things/one", content=content)
            assert answer.status_code == 413
            assert answer.headers["Content-Type"] == "application/problem+json"


async def test_a_refused_method_is_answered_with_the_allowed_ones(world: World) -> None:
    context = ssl.create_default_context(cafile=world.certs.ca_cert)
    async with httpx2.AsyncClient(verify=context, headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        answer = await client.delete(f"{world.listener.url}/things/one")
    assert answer.status_code == 405
    assert answer.headers["Allow"] == "GET, PUT"
    assert answer.json()["code"] == "unsupported"


async def test_the_description_says_who_may_call_and_what_problems_look_like(world: World) -> None:
    async with world.operator() as operator:
        described = (await operator.request("GET", "/openapi.json")).json
    assert described["openapi"].startswith("3.1")
    assert described["security"] == [{"token": []}, {"certificate": []}]
    assert described["paths"]["/healthz"]["get"]["security"] == []
    answers = described["paths"]["/things/{name}"]["get"]["responses"]
    assert answers["404"]["content"] == {
        "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
    }
    assert "HTTPValidationError" not in json.dumps(described)


async def test_a_server_that_is_not_there_has_done_nothing(tmp_path: Path) -> None:
    async with WebClient("http://127.0.0.1:1") as client:
        with pytest.raises(UnavailableError, match=r"cannot be reached"):
            await client.request("POST", "/things")


def test_a_client_sends_nothing_unencrypted_to_another_host() -> None:
    with pytest.raises(InvalidArgumentError, match="use https"):
        WebClient("http://manager.example:8443")


async def test_an_address_in_use_is_reported(world: World) -> None:
    second = WebListener(world.app, listen=world.listener.address, tls=None)
    with pytest.raises(UnavailableError, match="is it in use"):
        await second.open()


@asynccontextmanager
async def open_to_this_host(rules: list[ClientRule]) -> AsyncIterator[WebListener]:
    async def ready() -> str:
        return ""

    gatekeeper = Gatekeeper(rules, secure=False)
    app = make_app(
        title="things", version="1", routers=[things()], gatekeeper=gatekeeper, audit=AuditLog(), ready=ready
    )
    listener = WebListener(app, listen="127.0.0.1:0", tls=None)
    await listener.open()
    yield listener
    await listener.close(1)


async def test_without_tls_and_clients_any_local_caller_may_do_anything(tmp_path: Path) -> None:
    async with open_to_this_host([]) as listener, WebClient(listener.url, timeout=PATIENCE) as client:
        assert (await client.request("PUT", "/things/one", json={"size": 3})).json == {"size": 3}
    tokens = tmp_path / "token"
    tokens.write_text(TOKEN)
    rules = [ClientRule(name="a", role="operator", token_file=tokens)]
    async with open_to_this_host(rules) as listener, WebClient(listener.url, timeout=PATIENCE) as client:
        with pytest.raises(AuthenticationError):
            await client.request("GET", "/things/one")
