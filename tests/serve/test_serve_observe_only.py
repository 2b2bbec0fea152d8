"""The first day: a whole server that only looks, until a reload lets it act."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from cloudgraft.sdk import PreconditionError
from tests.serve.served_clouds import Cloud
from tests.serve.servers import Server, running
from tests.serve.settings import configuration, simulated, small


async def test_a_server_that_only_observes_calls_its_cloud_for_lists_alone(tmp_path: Path) -> None:
    with Cloud(tmp_path) as cloud:
        clouds = {"sim": simulated(cloud.url)}
        with Server(tmp_path / "c.yaml", configuration(clouds, [small()], observeOnly=True)) as server:
            async with server.connected() as provider:
                with pytest.raises(PreconditionError, match="observeOnly of cloud sim is set"):
                    await provider.increase_size("small", 2)
                assert await provider.target_size("small") == 0
                assert (cloud.made(), cloud.calls("create"), cloud.calls("delete")) == (0, 0, 0)
                assert len(await server.events("small", "observed")) == 1
                assert "observeOnly" in (await server.admin("Explain", subject="small"))["verdict"]
                assert await server.metric("cloudgraft_cloud_observe_only", cloud="sim") == 1
                assert await server.metric("cloudgraft_events_total", kind="observed") == 1
                server.file.write_text(configuration(clouds, [small()]))
                server.send(signal.SIGHUP)
                server.says("the configuration was read again")
                await provider.refresh()
                await provider.increase_size("small", 2)
                await running(provider, "small", 2)
        assert cloud.made() == 2
