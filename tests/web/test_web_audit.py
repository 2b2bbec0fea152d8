"""The audit log and its disk: one that hangs holds up nobody else, one that is full stops nothing; order is kept."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
from fastapi import APIRouter

from cloudgraft.sdk.errors import PreconditionError
from cloudgraft.web.app import make_app
from cloudgraft.web.authentication import AuditLog, AuditRecord, ClientRule, Gatekeeper
from cloudgraft.web.client import WebClient
from cloudgraft.web.listener import WebListener
from tests.conditions import until


def record(number: int) -> AuditRecord:
    return AuditRecord(
        caller="boss", role="operator", method="PUT", path="/", status=200, request_id=str(number), peer="::1"
    )


@contextmanager
def hanging(path: Path) -> Iterator[None]:
    """Whoever opens the file to write waits until somebody reads: it is a pipe."""
    path.unlink()
    os.mkfifo(path)
    try:
        yield
    finally:  # a thread that waits for ever would keep this process from ending
        end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        path.unlink()
        os.close(end)


class Pipe:
    """What comes out at the other end, once somebody looks."""

    def __init__(self, end: int) -> None:
        self._end = end
        self._text = ""

    def lines(self) -> list[dict[str, object]]:
        with suppress(BlockingIOError):  # nothing yet
            self._text += os.read(self._end, 1 << 16).decode()
        return [json.loads(line) for line in self._text.splitlines()]


@contextmanager
def reading(path: Path) -> Iterator[Pipe]:
    """The disk hangs no more."""
    end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield Pipe(end)
    finally:
        os.close(end)


class Server:
    """One route that changes something, and an audit log."""

    def __init__(self, path: Path, *rules: ClientRule) -> None:
        self.changed = asyncio.Event()
        router = APIRouter()

        @router.put("/thing", operation_id="put")
        async def put() -> int:
            self.changed.set()
            return 1

        async def ready() -> str:
            return ""

        app = make_app(
            title="things",
            version="1",
            routers=[router],
            gatekeeper=Gatekeeper(rules, secure=False),
            audit=AuditLog(path),
            ready=ready,
        )
        self.listener = WebListener(app, listen="127.0.0.1:0", tls=None)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[WebClient]:
        await self.listener.open()
        try:
            async with WebClient(self.listener.url, timeout=60) as client:
                yield client
        finally:
            await self.listener.close(1)


async def test_a_disk_that_hangs_holds_up_only_what_is_to_be_written_down(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    server = Server(path)
    async with server.running() as client:
        with hanging(path):
            changing = asyncio.create_task(client.request("PUT", "/thing"))
            await server.changed.wait()
            for _ in range(3):
                assert (await client.request("GET", "/healthz")).status == 200
            assert not changing.done(), "who has an answer can count on the record"
            with reading(path) as pipe:
                assert (await changing).status == 200
                assert [(line["method"], line["path"], line["status"]) for line in pipe.lines()] == [
                    ("PUT", "/thing", 200)
                ]


async def test_a_disk_that_is_full_stops_nothing_and_the_record_goes_to_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit.log"
    server = Server(path)
    async with server.running() as client:
        path.unlink()
        path.symlink_to("/dev/full")
        assert (await client.request("PUT", "/thing")).status == 200
        (told,) = [one for one in caplog.records if one.name == "cloudgraft.audit"]
        assert told.levelno == logging.ERROR
        assert "No space left on device; PUT /thing: 200" in told.message
        assert (vars(told)["caller"], vars(told)["status"]) == ("local", 200)
        path.unlink()
        assert (await client.request("PUT", "/thing")).status == 200
    assert len(path.read_text().splitlines()) == 1, "with room again it goes on"


async def test_records_are_written_in_the_order_in_which_they_come_also_when_their_requests_are_cut_off(
    tmp_path: Path,
) -> None:
    path = tmp_path / "audit.log"
    audit = AuditLog(path)
    with hanging(path):
        writing = [asyncio.create_task(audit.write(record(number))) for number in range(100)]
        await asyncio.sleep(0)  # they have all begun
        for task in writing[1::2]:
            task.cancel()
        await asyncio.wait(writing[1::2])
        with reading(path) as pipe:
            await asyncio.wait(writing)
            await until(lambda: len(pipe.lines()) == 100, what="a line each")
            assert [line["request_id"] for line in pipe.lines()] == [str(number) for number in range(100)]
    assert [task.cancelled() for task in writing] == [False, True] * 50


def test_a_server_whose_audit_log_cannot_be_written_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(PreconditionError, match=r"the audit log .* cannot be written: No such file or directory"):
        AuditLog(tmp_path / "nowhere" / "audit.log")


async def test_unknown_callers_cannot_fill_the_disk(tmp_path: Path) -> None:
    path, token = tmp_path / "audit.log", tmp_path / "token"
    token.write_text("a-token-of-the-boss-0123\n")
    server = Server(path, ClientRule(name="boss", role="operator", token_file=token))
    async with server.running() as client:
        for _ in range(5):
            assert (await client.request("PUT", "/thing")).status == 401
    (line,) = [json.loads(text) for text in path.read_text().splitlines()]
    assert (line["status"], line["caller"], line["more"]) == (401, "", 0)
