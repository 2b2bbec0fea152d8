"""What the first port says: a server on a new journal answers nothing before it knows what is its own (R3, R12)."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudgraft.conformance.kit import KitConfig
from cloudgraft.conformance.run import run
from cloudgraft.sdk import UnavailableError
from tests.conditions import until
from tests.serve.accidents import lose_journal
from tests.serve.served_clouds import Cloud
from tests.serve.servers import Server, running, targets
from tests.serve.settings import configuration, simulated, small

WAITS = "waiting for the first list of cloud sim"
LAG = "500ms"


async def test_a_new_journal_keeps_the_port_closed_until_late_lists_have_come(tmp_path: Path) -> None:
    with Cloud(tmp_path, "--list-lag", LAG) as cloud:
        cloud.chaos(list={"unavailable": 1})
        text = configuration({"sim": simulated(cloud.url, listLag=LAG)}, [small()])
        with Server(tmp_path / "c.yaml", text) as server:
            status, reason = await server.readyz()
            assert (status, await server.health()) == (503, "NOT_SERVING")
            assert WAITS in reason
            assert WAITS in (await server.admin("Status"))["openingTrouble"]
            assert WAITS in (await server.admin("Explain", subject="small"))["verdict"]
            cloud.chaos()
            # The kit of `cloudgraft conformance` waits as the autoscaler would, and makes its calls before a Refresh.
            report = await run(KitConfig(address=server.address), only=["calls_work_before_refresh"])
            assert report.is_passed, report.results
            assert await server.readyz() == (200, "")
            async with server.connected() as provider:
                await provider.increase_size("small", 2)
                nodes = await running(provider, "small", 2)
            server.kill()
        lose_journal(tmp_path)
        cloud.chaos(list={"unavailable": 1})
        with Server(tmp_path / "c.yaml") as server:
            async with server.connected() as provider:
                with pytest.raises(UnavailableError, match=WAITS):
                    await provider.node_group_for_node(nodes[0])
                cloud.chaos()
                await until(server.is_ready, what="the cloud was listed")
                found = [await provider.node_group_for_node(node) for node in nodes]
                assert [group.id for group in found if group is not None] == ["small", "small"]
                server.kill()
        cloud.kill()
    with Server(tmp_path / "c.yaml") as server:  # a good journal, and no cloud at all
        async with server.connected() as provider:
            assert await targets(provider) == {"small": 2}
        assert not server.said("calls are refused")
