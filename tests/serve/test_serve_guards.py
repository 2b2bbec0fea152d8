"""Law 10 on a whole server: lost tags, lost journals and an autoscaler that asks again and again cost what they may."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudgraft.client import RemoteProvider
from cloudgraft.sdk import Instance, InstanceState, NodeRef
from tests.conditions import until
from tests.serve.accidents import lose_journal
from tests.serve.served_clouds import Cloud
from tests.serve.servers import Server
from tests.serve.settings import configuration, simulated, small

WANTED = 4  # machines that pending pods need
LIMIT = 6


async def settled(provider: RemoteProvider) -> list[Instance]:
    """All instances of the group, once each of them runs or has failed."""
    found: list[Instance] = []

    async def are_settled() -> bool:
        found[:] = await provider.instances("small")
        return all(i.error or i.state is InstanceState.RUNNING for i in found)

    await until(are_settled, what="every machine runs or has failed")
    return found


async def ask_again_and_again(provider: RemoteProvider) -> int:
    """An autoscaler that takes failed machines away and asks for new ones; how many were refused by a guard."""
    refused = 0
    for _ in range(4):
        await provider.refresh()
        missing = WANTED - await provider.target_size("small")
        if missing > 0:
            await provider.increase_size("small", missing)
        failed = [instance for instance in await settled(provider) if instance.error]
        assert {(i.error.code, i.error.error_class) for i in failed if i.error} <= {("guard", 1)}
        refused += len(failed)
        if failed:
            await provider.delete_nodes("small", [NodeRef(name=i.id, provider_id=i.id) for i in failed])
    return refused


@pytest.mark.parametrize("guard", ["maxMachines", pytest.param("maxCreatesPerHour", marks=pytest.mark.thorough)])
async def test_lost_tags_and_a_retrying_autoscaler_order_no_more_than_the_guard_allows(
    tmp_path: Path, guard: str
) -> None:
    """The incident: what was made is not recognised any more, so it is made again. Here with the journal lost too."""
    with Cloud(tmp_path) as cloud:
        cloud.chaos(losesTags=1.0)
        text = configuration({"sim": simulated(cloud.url)}, [small()], guards={guard: LIMIT})
        refused = 0
        for _ in range(3):
            with Server(tmp_path / "c.yaml", text) as server:
                async with server.connected() as provider:
                    refused += await ask_again_and_again(provider)
                (use,) = (await server.admin("Status"))["guards"]
                assert (use["guard"], use["limit"], use["left"]) == (guard, LIMIT, max(0, LIMIT - cloud.made()))
                if refused:
                    assert f"guards.{guard} is {LIMIT}" in server.says('"kind": "guard"')["event"]
                    assert await server.metric("cloudgraft_events_total", kind="guard") > 0
                server.kill()
            lose_journal(tmp_path)
        assert refused
        assert cloud.made() == LIMIT
