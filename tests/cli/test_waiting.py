"""`--wait` of commands that ask a server which was started in the background a moment ago."""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import grpc
import pytest
from click.testing import CliRunner, Result

from cloudgraft.admin.server import AdminServer
from cloudgraft.cli import conformance, dock, status
from tests.client.counting import Answer, CountingServer, StatusError


@pytest.fixture
def path() -> Iterator[Path]:
    """Of a socket; that of tmp_path may be too long."""
    with tempfile.TemporaryDirectory(prefix="cg") as directory:
        yield Path(directory) / "admin.sock"


async def asked_too_early(path: Path, answer: Mapping[str, object], command: click.Command, *words: str) -> Result:
    """The result of a command that found nobody who answers; the server is started only then."""
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(path))
        deaf.listen()
        deaf.setblocking(False)
        running = asyncio.create_task(
            asyncio.to_thread(CliRunner().invoke, command, [*words, "--admin", f"unix:{path}"])
        )
        probe, _ = await asyncio.get_running_loop().sock_accept(deaf)
        probe.close()
    path.unlink()  # noqa: ASYNC240 - at once, it is a socket

    async def answered(_request: Mapping[str, Any]) -> Mapping[str, object]:
        return answer

    server = AdminServer({"Status": answered, "DockDrivers": answered}, path)
    await server.start()
    try:
        return await running
    finally:
        await server.stop(1.0)


async def test_status_waits_for_the_server(path: Path) -> None:
    result = await asked_too_early(path, {"cluster": "late"}, status.command, "--wait", "-o", "json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"cluster": "late"})


async def test_the_drivers_of_a_dock_are_shown_when_it_answers(path: Path) -> None:
    result = await asked_too_early(path, {"drivers": []}, dock.command, "drivers", "--wait=50s")
    assert (result.exit_code, result.stdout) == (0, "No driver is connected.\n")


@pytest.mark.parametrize("words", [["--wait", "10ms"], ["--wait=10ms"]])
def test_it_gives_up_when_its_time_is_over(words: list[str]) -> None:
    result = CliRunner().invoke(status.command, [*words, "--admin", "unix:/nowhere/admin.sock"])
    assert result.exit_code == 1
    assert "no cloudgraft server answers" in result.stderr
    assert "--wait" not in result.stderr


def test_who_asks_without_it_is_told_of_it() -> None:
    result = CliRunner().invoke(status.command, ["--admin", "unix:/nowhere/admin.sock"])
    assert (result.exit_code, "add --wait" in result.stderr) == (1, True)


class Starting(dict[str, Answer]):
    """The answers of a server that is away, for the first three calls."""

    left = 3

    def get(self, name: str, default: Answer) -> Answer:  # type: ignore[override]  # as the server calls it
        self.left -= 1
        return StatusError(grpc.StatusCode.UNAVAILABLE, "starting") if self.left >= 0 else default


def test_the_conformance_kit_begins_when_the_server_answers() -> None:
    with CountingServer() as server:
        server.answers = Starting()
        result = CliRunner().invoke(conformance.command, ["--wait", "--address", server.address, "--only", "R49"])
        assert server.calls["NodeGroups"] > 3
        assert "starting" not in result.output
        assert "no node group" in result.output  # that server has none
