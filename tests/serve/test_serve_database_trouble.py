"""The journal's PostgreSQL is away, at the start and later: nothing is done without it, and it goes on by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudgraft.sdk import UnavailableError
from tests.conditions import until
from tests.postgres import PostgresServer
from tests.serve.served_clouds import Cloud
from tests.serve.servers import Server, running, targets
from tests.serve.settings import configuration, postgresql, simulated, small


async def check_that_nothing_is_answered(server: Server) -> None:
    status, reason = await server.readyz()
    assert (status, await server.health()) == (503, "NOT_SERVING")
    assert "cannot use the journal postgresql://postgres@" in reason
    assert "it goes on by itself once the server answers" in reason
    assert (await server.admin("Status"))["leaderTrouble"] == reason
    async with server.connected() as provider:
        for call in (provider.refresh(), provider.node_groups(), provider.increase_size("small", 1)):
            with pytest.raises(UnavailableError, match="cannot use the journal"):
                await call


@pytest.mark.thorough
async def test_a_database_that_is_away_is_waited_for_and_meanwhile_nothing_is_answered_or_ordered(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    with postgres.borrowed() as url, Cloud(tmp_path) as cloud:
        text = configuration(
            {"sim": simulated(cloud.url)},
            [small()],
            store=postgresql(url, "2s"),
            admin={"listen": f"unix:{tmp_path}/admin.sock"},
        )
        with postgres.stopped():
            server = Server(tmp_path / "c.yaml", text)
            await check_that_nothing_is_answered(server)
            assert len(server.said("waiting for the journal: cannot use the journal", least="warning")) == 1
        with server:
            await until(server.is_ready, seconds=30)
            async with server.connected() as provider:
                await provider.increase_size("small", 2)
                nodes = await running(provider, "small", 2)
                with postgres.stopped():
                    with pytest.raises(UnavailableError):
                        await provider.increase_size("small", 5)

                    async def has_fenced_itself() -> bool:
                        return "the lease cannot be asked for" in (await server.readyz())[1]

                    await until(has_fenced_itself, seconds=30)
                    await check_that_nothing_is_answered(server)
                await until(server.is_ready, what="it goes on by itself", seconds=30)
            async with server.connected() as provider:
                await provider.refresh()
                assert await targets(provider) == {"small": 2}
                assert await running(provider, "small", 2) == nodes
                assert cloud.made() == 2
                await provider.increase_size("small", 1)
                await running(provider, "small", 3)
            assert cloud.made() == 3
            assert not server.said("Traceback")
            assert server.stop() == 0
