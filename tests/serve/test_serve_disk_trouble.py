"""A journal that cannot be written: nothing is ordered, reads go on, and it is told clearly."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudgraft.sdk import CloudgraftError, PreconditionError, UnavailableError
from tests.conditions import until
from tests.serve.accidents import full_disk
from tests.serve.served_clouds import Cloud
from tests.serve.servers import Server, running, targets
from tests.serve.settings import configuration, simulated, small


async def test_on_a_full_disk_nothing_is_ordered_reads_go_on_and_it_recovers_by_itself(tmp_path: Path) -> None:
    with (
        Cloud(tmp_path) as cloud,
        Server(tmp_path / "c.yaml", configuration({"sim": simulated(cloud.url)}, [small()])) as server,
    ):
        async with server.connected() as provider:
            await provider.increase_size("small", 2)
            nodes = await running(provider, "small", 2)
            with full_disk(server):
                changes = (
                    provider.increase_size("small", 1),
                    provider.delete_nodes("small", nodes),
                    provider.refresh(),
                )
                for change in changes:
                    with pytest.raises(UnavailableError, match=r"journal\.db.*the disk"):
                        await change
                status, reason = await server.readyz()
                assert (status, await server.health()) == (503, "NOT_SERVING")
                assert "the journal cannot be written" in reason
                assert "the disk" in (await server.admin("Status"))["journalTrouble"]
                assert await targets(provider) == {"small": 2}
                assert await running(provider, "small", 2) == nodes
                assert await provider.node_group_for_node(nodes[0]) is not None
                (line,) = server.said("the journal cannot be written")
                assert line["level"] == "error"
                assert "goes on by itself" in line["error"]
                (failed,) = server.said("failed: UNAVAILABLE", least="warning")  # one line for all three calls
                assert "the disk" in failed["error"]
            await until(server.is_ready, what="it can be written again")
            assert server.says("the journal can be written again")
            await provider.refresh()
            await provider.increase_size("small", 1)
            assert all(node in nodes for node in (await running(provider, "small", 3))[:2])
        assert (cloud.made(), len(cloud.live())) == (3, 3)
        assert len(server.said("the journal can be written again")) == 1
        assert server.stop() == 0


async def test_a_journal_removed_from_under_a_running_server_is_told_and_a_restart_brings_all_back(
    tmp_path: Path,
) -> None:
    with Cloud(tmp_path) as cloud:
        with Server(tmp_path / "c.yaml", configuration({"sim": simulated(cloud.url)}, [small()])) as server:
            async with server.connected() as provider:
                await provider.increase_size("small", 2)
                nodes = await running(provider, "small", 2)
                (tmp_path / "journal.db").unlink()
                with pytest.raises(PreconditionError, match="restart cloudgraft"):
                    await provider.increase_size("small", 1)
                with pytest.raises(CloudgraftError, match="restart cloudgraft"):
                    await provider.refresh()
                assert await running(provider, "small", 2) == nodes
            status, reason = await server.readyz()
            assert status == 503
            assert "restart cloudgraft" in reason
            cloud.act(nodes[0].name.removeprefix("simulated://"), "vanish")  # something to do, without a journal
            seen = cloud.calls("list")
            await until(lambda: cloud.calls("list") > seen + 4, what="more lists")
            assert len(server.said("was removed or replaced", least="error")) == 1
            assert not server.said("Traceback")
            assert server.stop() == 0
        with Server(tmp_path / "c.yaml") as server:
            async with server.connected() as provider:
                assert await running(provider, "small", 1) == nodes[1:]
        assert cloud.made() == 2
