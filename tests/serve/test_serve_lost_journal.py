"""Law 11 on whole servers: a journal that was lost or damaged is rebuilt from the cloud, and nothing is created."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cloudgraft.sdk import UnavailableError
from tests.conditions import until
from tests.serve.accidents import lose_journal
from tests.serve.served_clouds import Cloud
from tests.serve.servers import Server, running, targets
from tests.serve.settings import configuration, simulated, small

GROUPS = {"small": 3, "other": 2}


async def all_ids(server: Server) -> dict[str, list[str]]:
    """What every group lists once all is at rest; fails when it is not what was there at first."""
    async with server.connected() as provider:
        await provider.refresh()
        assert await targets(provider) == GROUPS
        return {
            group: sorted(node.provider_id for node in await running(provider, group, size))
            for group, size in GROUPS.items()
        }


async def test_a_journal_deleted_under_a_fleet_is_rebuilt_and_so_is_one_that_lost_its_identity_once_that_is_said(
    tmp_path: Path,
) -> None:
    groups = [small(), small("other")]
    with Cloud(tmp_path) as cloud:
        text = configuration({"sim": simulated(cloud.url)}, groups)
        with Server(tmp_path / "c.yaml", text) as server:
            async with server.connected() as provider:
                for group, size in GROUPS.items():
                    await provider.increase_size(group, size)
            before = await all_ids(server)
            cluster_id = (await server.admin("Status"))["clusterId"]
            server.kill()
        lose_journal(tmp_path)
        with Server(tmp_path / "c.yaml") as server:
            assert await all_ids(server) == before
            assert server.says("cloud sim was listed; 5 machines of ours were taken in")
            assert server.stop() == 0
        lose_journal(tmp_path, with_identity=True)
        with Server(tmp_path / "c.yaml") as server:
            await check_that_it_asks_who_it_is(server, cloud, cluster_id)
            server.kill()
        text = configuration({"sim": simulated(cloud.url)}, groups, clusterId=cluster_id)
        with Server(tmp_path / "c.yaml", text) as server:
            assert await all_ids(server) == before
            assert (await server.readyz()) == (200, "")
            assert cloud.made() == 5
            async with server.connected() as provider:
                await provider.increase_size("small", 1)
                await running(provider, "small", 4)
        assert cloud.made() == 6
        assert not cloud.doubles()


async def check_that_it_asks_who_it_is(server: Server, cloud: Cloud, cluster_id: str) -> None:
    """It has a new identity, and finds machines of a cluster of its name: only a person can tell whose they are."""
    advice = f"set `clusterId: {cluster_id}`"
    status, reason = await server.readyz()
    assert (status, await server.health()) == (503, "NOT_SERVING")
    assert advice in reason
    assert advice in server.wait_for(lambda line: line.get("kind") == "blocked")["event"]
    (told,) = (await server.admin("Status"))["clouds"]
    assert advice in told["blocked"]
    async with server.connected() as provider:
        with pytest.raises(UnavailableError, match=advice):
            await provider.refresh()
        with pytest.raises(UnavailableError, match=advice):
            await provider.increase_size("small", 1)
        seen = cloud.calls("list")
        await until(lambda: cloud.calls("list") > seen + 3, what="more lists")
        with pytest.raises(UnavailableError, match=advice):
            await provider.node_groups()
    assert await server.metric("cloudgraft_events_total", kind="blocked") == 1  # it counts from the beginning
    assert (len(server.said("blocked")), cloud.made()) == (1, 5)


async def test_a_damaged_journal_ends_with_instructions_and_following_them_brings_all_back(tmp_path: Path) -> None:
    with Cloud(tmp_path) as cloud:
        with Server(tmp_path / "c.yaml", configuration({"sim": simulated(cloud.url)}, [small()])) as server:
            async with server.connected() as provider:
                await provider.increase_size("small", 2)
                before = await running(provider, "small", 2)
            check_that_nobody_else_can_have_the_journal(server, tmp_path)
            assert server.stop() == 0
        journal = tmp_path / "journal.db"
        whole = journal.read_bytes()
        journal.write_bytes(whole[:4096] + b"\xa5" * 8192 + whole[12288:])
        with Server(tmp_path / "c.yaml") as server:
            assert server.wait() == 1
            (line,) = server.said("error")
        assert "is damaged" in line["text"]
        assert "move it away with its -wal and -shm files, but leave its .cluster-id file" in line["text"]
        journal.rename(tmp_path / "damaged.db")
        with Server(tmp_path / "c.yaml") as server:
            async with server.connected() as provider:
                assert await running(provider, "small", 2) == before
        assert cloud.made() == 2


def check_that_nobody_else_can_have_the_journal(server: Server, directory: Path) -> None:
    with Server(directory / "c.yaml") as second:
        assert second.wait() == 1
        (line,) = second.said("error")
    assert re.search(rf"journal\.db is in use by process {server.pid} on .*: stop that one first", line["text"])
    assert "Traceback" not in line["text"]
