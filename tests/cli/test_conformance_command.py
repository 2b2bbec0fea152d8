"""`cloudgraft conformance` against real servers: what it prints, what it writes, how it ends."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from cloudgraft.cli.conformance import command
from cloudgraft.conformance.checks import CHECKS
from cloudgraft.conformance.rules import RULES
from cloudgraft.sdk import InstanceState, NodeRef, NotFoundError, Provider
from cloudgraft.testing import MemoryGroup, MemoryOptions, MemoryProvider, serving
from tests.conditions import until

SECONDS = 50
PROGRAM = [sys.executable, "-m", "cloudgraft.cli", "conformance"]
QUICK = "R10"  # a rule whose checks make no machine


class StrictProvider(MemoryProvider):
    """A common mistake: deleting a machine for the second time is an error (R55)."""

    async def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        alive = {each.id for each in await self.instances(group) if each.state is not InstanceState.DELETING}
        if gone := [node.name for node in nodes if node.provider_id not in alive]:
            raise NotFoundError(f"there is no machine {gone[0]}")
        await super().delete_nodes(group, nodes)


def memory(boot_seconds: float = 0.0) -> MemoryProvider:
    return MemoryProvider(options(boot_seconds))


def options(boot_seconds: float = 0.0) -> MemoryOptions:
    labels = {"topology.kubernetes.io/zone": "a", "node.kubernetes.io/instance-type": "m"}
    group = MemoryGroup(id="small", max_size=12, hourly_price=0.2, labels=labels, boot_seconds=boot_seconds)
    return MemoryOptions(groups=[group])


@contextmanager
def served(provider: Provider) -> Iterator[str]:
    """The address of a server that runs in a thread of its own, so that the command can have the main one."""
    address, end = Future[str](), threading.Event()

    async def serve() -> None:
        async with serving(provider) as server:
            address.set_result(server.address)
            await asyncio.to_thread(end.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        yield address.result(SECONDS)
    finally:
        end.set()
        thread.join(SECONDS)


@pytest.fixture
def address() -> Iterator[str]:
    with served(memory()) as found:
        yield found


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


# -- judging -----------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_good_server_passes_every_check(address: str, tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    result = run("--address", address, "--junit", str(junit), "-o", "json")
    data = json.loads(result.stdout)
    assert data["failures"] == []
    assert result.exit_code == 0, result.output
    assert data["passed"] is True
    assert data["leftBehind"] == []
    assert [each["check"] for each in data["results"]] == [check.name for check in CHECKS]
    lines = result.stderr.splitlines()
    assert [line.split()[2] for line in lines] == [check.name for check in CHECKS]
    root = ET.fromstring(junit.read_text())
    assert root.attrib["tests"] == str(len(CHECKS))
    assert root.attrib["failures"] == root.attrib["errors"] == "0"


def test_a_mistake_is_listed_first_with_its_rule_and_its_remedy() -> None:
    """The table begins with the failure; the exit code says that there is one."""
    with served(StrictProvider(options())) as address:
        result = run("--address", address, "--only", "R55")
    assert result.exit_code == 1
    assert result.stdout.startswith("FAILED must ")
    assert f"R55: {RULES['R55'].title}" in result.stdout
    assert RULES["R55"].fix in result.stdout
    assert "NodeGroupDeleteNodes" in result.stdout
    assert "there is no machine" in result.stdout
    assert "The server does not pass" in result.stdout.splitlines()[-1]


def test_a_page_can_be_had(address: str) -> None:
    result = run("--address", address, "--only", QUICK, "-o", "html")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("<!DOCTYPE html>")
    assert result.stdout.endswith("</html>\n")


def test_only_what_is_asked_for_is_judged(address: str) -> None:
    result = run("--address", address, "--only", "r10,R11", "--only", "R10", "-o", "json")
    judged = [set(each["rules"]) for each in json.loads(result.stdout)["results"]]
    assert judged
    assert all(rules & {"R10", "R11"} for rules in judged)


def test_calls_are_made_as_the_release_makes_them(address: str) -> None:
    result = run("--address", address, "--only", QUICK, "--release", "v1.29", "-o", "json")
    assert json.loads(result.stdout)["release"].startswith("1.29")


def test_the_file_says_where_and_options_say_more(address: str, tmp_path: Path) -> None:
    kit, cloud_config = tmp_path / "kit.yaml", tmp_path / "cloud-config.yaml"
    kit.write_text("address: 127.0.0.1:1\ngroup: other\n")
    cloud_config.write_text(f"address: {address}\n")
    result = run("--config", str(kit), "--cloud-config", str(cloud_config), "--group", "small", "--only", QUICK)
    assert result.exit_code == 0, result.output
    assert "The server keeps the contract" in result.stdout


# -- refusing ----------------------------------------------------------------------------------------------------------


def test_a_group_with_machines_is_left_alone_unless_allowed() -> None:
    provider = memory()
    asyncio.run(provider.increase_size("small", 1))
    with served(provider) as address:
        refused = run("--address", address, "--only", QUICK)
        assert refused.exit_code == 2
        assert "error: " in refused.stderr
        assert "small" in refused.stderr
        allowed = run("--address", address, "--only", QUICK, "--allow-existing")
        assert allowed.exit_code == 0, allowed.output
    assert asyncio.run(provider.target_size("small")) == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "say where the server is"),
        (("--address", "a:1", "--cloud-config", "c.yaml"), "say where the server is"),
        (("--address", "127.0.0.1:1", "--only", "R1,X1,nothing_like_it"), "X1, nothing_like_it"),
        (("--address", "127.0.0.1:1", "--only", "R14"), RULES["R14"].unobservable),
        (("--address", "127.0.0.1:1", "--release", "1.12"), "1.12"),
        (("--config", "not-there.yaml"), "not-there.yaml"),
        (("--list", "-o", "html"), "--list"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_is_wrong(arguments: tuple[str, ...], told: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert told in result.stderr


def test_a_group_that_is_not_there_is_wrong_usage(address: str) -> None:
    result = run("--address", address, "--group", "large")
    assert result.exit_code == 2
    assert "large" in result.stderr


def test_a_server_that_is_not_there_is_reported_in_one_line() -> None:
    result = run("--address", "127.0.0.1:1", "--only", QUICK)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert result.stdout == ""


def test_a_file_that_cannot_be_written_is_reported(address: str, tmp_path: Path) -> None:
    result = run("--address", address, "--only", QUICK, "--junit", str(tmp_path / "no" / "junit.xml"))
    assert result.exit_code == 1
    assert "cannot write" in result.stderr


# -- listing -----------------------------------------------------------------------------------------------------------


def test_the_list_shows_every_rule_with_its_checks_or_the_reason_why_there_is_none() -> None:
    result = run("--list")
    assert result.exit_code == 0
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if line.split()}
    assert set(RULES) <= set(rows)
    for check in CHECKS:
        assert check.name in rows[check.rules[0]]
    assert RULES["R14"].unobservable in rows["R14"]


def test_the_list_can_be_narrowed_and_read_by_programs() -> None:
    data = json.loads(run("--list", "--only", "T6,R49", "-o", "json").stdout)
    assert [row["rule"] for row in data] == ["R49", "T6"]
    assert all(row["checks"] for row in data)


# -- interrupted -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.thorough), signal.SIGTERM])
async def test_an_interrupted_run_deletes_what_it_made_and_says_so(number: signal.Signals) -> None:
    """The machines never boot: the kit waits for them until it is interrupted."""
    provider = memory(boot_seconds=3600)

    async def is_grown() -> bool:
        return await provider.target_size("small") > 0

    async with serving(provider) as server:
        process = await asyncio.create_subprocess_exec(
            *PROGRAM,
            "--address",
            server.address,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            await until(is_grown, seconds=SECONDS)
            process.send_signal(number)
            async with asyncio.timeout(SECONDS):
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        assert process.returncode == 128 + number, err.decode()
        assert out == b""
        said = err.decode().splitlines()
        assert said[-2:] == [
            "interrupted: deleting what the kit made ...",
            f"interrupted after {len(said) - 2} checks; what it made is deleted",
        ]
        assert await provider.target_size("small") == 0
        assert await provider.instances("small") == []
