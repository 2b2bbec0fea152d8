"""`cloudgraft serve` as a user runs it: a file, a process, signals, other servers behind it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from cloudgraft.certs.authority import Bundle, create_bundle
from cloudgraft.client import CloudConfig, Connection, RemoteProvider
from cloudgraft.sdk import NodeRef, UnavailableError
from tests.cli.serve_process import ServeProcess, serving_file
from tests.conditions import until
from tests.plugins.fake_packages import write_package
from tests.plugins.processes import below

MEMORY = """
cluster: test
server: {listen: "127.0.0.1:0", ops: null}
providers:
  - type: memory
    options: {groups: [{id: small, maxSize: 5, hourlyPrice: 0.5}, {id: large, minSize: 1}]}
"""


def front(address: str, *, listen: str = "127.0.0.1:0", tls: str = "", name: str = "backend") -> str:
    return f"""
cluster: test
server: {{listen: "{listen}", ops: null}}
providers:
  - type: externalgrpc
    name: {name}
    address: "{address}"
    timeout: 2s
    {tls}
    snapshot: {{refreshEvery: 100ms, maxStaleness: 1m}}
"""


def connect(address: str) -> Connection:
    return Connection(CloudConfig.parse(f"address: {address}"))


async def ids(address: str) -> list[str]:
    async with connect(address) as connection:
        return [group.id for group in await RemoteProvider(connection).node_groups()]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cloudgraft.cli", "serve", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def test_it_serves_what_the_file_says_and_ends_well_on_sigterm(tmp_path: Path) -> None:
    with serving_file(tmp_path / "c.yaml", MEMORY) as server:
        assert await ids(server.address) == ["small", "large"]
        server.send(signal.SIGTERM)
        assert server.wait() == 0
        assert server.wait_for(lambda line: line["event"] == "stopped")


@pytest.mark.thorough
async def test_every_call_is_logged_at_level_5_as_json(tmp_path: Path) -> None:
    with serving_file(tmp_path / "c.yaml", MEMORY, "-v5") as server:
        await ids(server.address)
        line = server.wait_for(lambda line: line.get("rpc") == "NodeGroups")
        assert (line["event"], line["code"], line["level"]) == ("call", "OK", "debug")


def test_a_bad_file_gives_all_its_problems_at_once_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("clutser: x\nserver: {listen: '0.0.0.0:1'}\nproviders:\n  - type: memroy\n")
    done = run("-c", str(file))
    assert done.returncode == 1
    for expected in ("bad.yaml:1:", "did you mean", "bad.yaml:2:", "bad.yaml:4:", "memory"):
        assert expected in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.thorough
def test_options_of_all_providers_are_checked_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(
        "cluster: x\nproviders:\n"
        "  - {type: memory, name: a, options: {gruops: []}}\n"
        "  - {type: memory, name: b, options: {groups: [{id: 5}]}}\n"
    )
    done = run("-c", str(file), "--check")
    assert done.returncode == 1
    assert "bad.yaml:3:" in done.stderr
    assert "bad.yaml:4:" in done.stderr


@pytest.mark.thorough
def test_check_says_that_a_file_is_good(tmp_path: Path) -> None:
    file = tmp_path / "good.yaml"
    file.write_text(MEMORY)
    done = run("-c", str(file), "--check")
    assert (done.returncode, done.stdout) == (0, f"{file}: good (1 provider)\n")


@pytest.mark.thorough
def test_a_port_that_is_taken_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    with serving_file(tmp_path / "c.yaml", MEMORY) as server:
        done = run("-c", str(server.config), "--listen", server.address)
    assert done.returncode == 1
    assert "is another program using it" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.thorough
def test_other_hosts_are_not_served_without_tls_unless_told_so(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(MEMORY)
    refused = run("-c", str(file), "--listen", "0.0.0.0:0", "--check")
    assert refused.returncode == 1
    assert "loopback" in refused.stderr
    assert run("-c", str(file), "--listen", "0.0.0.0:0", "--insecure", "--check").returncode == 0


def with_tls(bundle: Bundle) -> str:
    return (
        f"tls: {{cert: {bundle.server_cert}, key: {bundle.server_key}, clientCA: {bundle.ca_cert}, "
        "allowedClients: [cluster-autoscaler-grpc-client]}"
    )


@pytest.mark.thorough
async def test_two_fronts_in_a_row_behave_as_the_server_behind_them(tmp_path: Path) -> None:
    """Option 2 of the proposal, chained, the first hop over mTLS."""
    bundle = create_bundle(tmp_path / "tls", hosts=["127.0.0.1"])
    behind = MEMORY.replace("ops: null", f"ops: null, {with_tls(bundle)}")
    to_behind = f"tls: {{cert: {bundle.client_cert}, key: {bundle.client_key}, ca: {bundle.ca_cert}}}"
    with (
        serving_file(tmp_path / "1.yaml", behind) as first,
        serving_file(tmp_path / "2.yaml", front(first.address, tls=to_behind)) as second,
        serving_file(tmp_path / "3.yaml", front(second.address)) as third,
    ):
        async with connect(third.address) as connection:
            provider = RemoteProvider(connection)
            assert [group.id for group in await provider.node_groups()] == ["small", "large"]
            await provider.increase_size("small", 2)
            assert await provider.target_size("small") == 2
            listed = [instance.id for instance in await provider.instances("small")]
            assert len(listed) == 2
            group = await provider.node_group_for_node(NodeRef(name="n", provider_id=listed[0]))
            assert group is not None
            assert (group.id, group.max_size) == ("small", 5)
            assert await provider.node_group_for_node(NodeRef(name="stranger")) is None
            await provider.delete_nodes("small", [NodeRef(name=listed[0], provider_id=listed[0])])
            await provider.delete_nodes("small", [NodeRef(name=listed[0], provider_id=listed[0])])
            assert await provider.target_size("small") == 1
            assert (await provider.template("large")).allocatable["pods"].value == 110
            await provider.refresh()


@pytest.mark.thorough
async def test_a_server_behind_us_that_is_killed_keeps_its_groups_and_is_found_again(tmp_path: Path) -> None:
    """Law 6."""
    with serving_file(tmp_path / "1.yaml", MEMORY) as first:
        address = first.address
        with serving_file(tmp_path / "2.yaml", front(address)) as second:
            first.send(signal.SIGKILL)
            first.wait()
            second.wait_for(lambda line: line["event"] == "a provider cannot be read")
            async with connect(second.address) as connection:
                provider = RemoteProvider(connection)
                assert len(await provider.node_groups()) == 2
                assert await provider.target_size("small") == 0
                await provider.refresh()
                with pytest.raises(UnavailableError):
                    await provider.increase_size("small", 1)
                with ServeProcess(first.config, "--listen", address) as again:
                    assert again.address == address

                    async def works() -> bool:
                        try:
                            await provider.increase_size("small", 1)
                        except UnavailableError:
                            return False
                        return True

                    await until(works)
                    assert await provider.target_size("small") == 1


@pytest.mark.thorough
async def test_two_providers_are_merged_and_one_that_is_away_does_not_matter(tmp_path: Path) -> None:
    text = MEMORY + '  - {type: externalgrpc, address: "127.0.0.1:1", timeout: 500ms}\n'
    with serving_file(tmp_path / "c.yaml", text) as server:
        assert await ids(server.address) == ["small", "large"]
        async with connect(server.address) as connection:
            provider = RemoteProvider(connection)
            await provider.refresh()
            await provider.increase_size("large", 1)
            assert await provider.node_group_for_node(NodeRef(name="control-plane")) is None


PLUGIN = Path(__file__).resolve().parent.parent.parent / "examples" / "plugin_provider.py"


def with_plugin() -> str:
    return f"""
cluster: test
server: {{listen: "127.0.0.1:0", ops: null}}
providers:
  - type: plugin
    name: example
    command: ["{sys.executable}", "{PLUGIN}"]
    backoff: {{initial: 50ms, max: 1s}}
    snapshot: {{refreshEvery: 100ms, maxStaleness: 1m}}
"""


@pytest.mark.thorough
async def test_a_plugin_that_is_killed_comes_back_and_its_groups_were_never_gone(tmp_path: Path) -> None:
    with serving_file(tmp_path / "c.yaml", with_plugin()) as server:
        groups = await ids(server.address)
        assert groups
        before = below(server.pid)
        plugin = next(process for process in before if "watchdog" not in process.command)
        os.kill(plugin.pid, signal.SIGKILL)
        answers: list[list[str]] = []

        async def is_back() -> bool:
            answers.append(await ids(server.address))
            return server.count("a provider is read") == 2

        await until(is_back)
        assert all(answer == groups for answer in answers)
        assert len(below(server.pid)) == len(before)
        assert not plugin.is_alive
        server.send(signal.SIGTERM)
        assert server.wait() == 0


async def test_after_kill_9_of_the_server_no_child_is_left(tmp_path: Path) -> None:
    with serving_file(tmp_path / "c.yaml", with_plugin()) as server:
        await ids(server.address)
        children = below(server.pid)
        assert children
        server.send(signal.SIGKILL)
        server.wait()
        await until(lambda: not any(child.is_alive for child in children), what="children gone")


@pytest.mark.thorough
async def test_it_is_not_ready_while_no_provider_has_ever_answered(tmp_path: Path) -> None:
    text = front("127.0.0.1:1", name="away").replace("ops: null", 'ops: "127.0.0.1:0"')
    with serving_file(tmp_path / "c.yaml", text) as server:
        ops = server.wait_for(lambda line: line["event"] == "serving")["ops"]
        status, body = await asyncio.to_thread(_get, f"http://{ops}/readyz")
        assert status == 503
        assert "away: answers unavailable" in body
        assert (await asyncio.to_thread(_get, f"http://{ops}/healthz"))[0] == 200
        status, body = await asyncio.to_thread(_get, f"http://{ops}/metrics")
        assert 'cloudgraft_provider_up{provider="away"} 0.0' in body


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


WARNS = """
import logging, warnings
from cloudgraft.sdk import BlockingDriver

class Old(BlockingDriver):
    Options = dict

    def __init__(self, options):
        pass

    def list(self):
        warnings.warn("called with the token hunter2-hunter2", DeprecationWarning)
        logging.getLogger("cloudgraft.old").warning("listed")
        return []

    create = delete = lambda self, *_: None
"""
OLD_CLOUD = """
cluster: test
server: {listen: "127.0.0.1:0", ops: null}
clouds: {old: {driver: old, apiToken: hunter2-hunter2}}
nodeGroups: [{id: g, cloud: old, maxSize: 1, template: {capacity: {cpu: 1, memory: 1Gi}}}]
"""


def test_library_warning_in_a_driver_is_logged_and_never_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_package(tmp_path, "old-cloud", group="cloudgraft.drivers", points={"old": "old_cloud:Old"}, code=WARNS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    with serving_file(tmp_path / "c.yaml", OLD_CLOUD) as server:
        server.wait_for(lambda line: line["event"] == "listed")
        shown = server.wait_for(lambda line: line.get("logger") == "py.warnings")
    assert "DeprecationWarning: called with the token [secret]" in shown["event"]
