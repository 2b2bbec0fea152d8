"""Laws 1 and 6 on a whole server: a cloud that hangs delays no call and no other cloud."""

from __future__ import annotations

from pathlib import Path

from tests.serve.served_clouds import Cloud
from tests.serve.servers import Server, running, targets
from tests.serve.settings import configuration, simulated, small


async def test_while_one_cloud_hangs_calls_are_answered_and_the_other_goes_on(tmp_path: Path) -> None:
    with Cloud(tmp_path) as good, Cloud(tmp_path, name="hanging") as hanging:
        text = configuration(
            {"good": simulated(good.url), "hanging": simulated(hanging.url)},
            [small("a", "good"), small("b", "hanging")],
        )
        with Server(tmp_path / "c.yaml", text) as server:
            async with server.connected() as provider:
                await provider.increase_size("b", 1)
                (kept,) = await running(provider, "b", 1)
                hanging.chaos(hang=True)
                await provider.increase_size("b", 2)
                await provider.delete_nodes("b", [kept])
                await provider.increase_size("a", 2)
                await running(provider, "a", 2)
                await provider.refresh()
                assert await targets(provider) == {"a": 2, "b": 2}
                assert len(await provider.instances("b")) == 3  # the one that goes is still there
                assert await server.is_ready()
                assert hanging.made() == 1
                hanging.chaos()
                assert kept not in await running(provider, "b", 2)
            assert server.stop() == 0
        assert (good.made(), hanging.made(), len(hanging.live())) == (2, 3, 2)
