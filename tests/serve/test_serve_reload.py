"""The file is changed while the server runs: what is valid is applied at the next Refresh, what is not is told."""

from __future__ import annotations

import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cloudgraft.client import RemoteProvider
from cloudgraft.sdk import CloudgraftError, InvalidArgumentError, NodeRef
from tests.conditions import until
from tests.serve.served_clouds import Cloud
from tests.serve.servers import Server, running, targets
from tests.serve.settings import configuration, simulated, small

READ = "the configuration was read again"
SETTLED = {"id": "small", "minSize": 0, "maxSize": 20, "label": "", "cpu": 2, "price": 0.02}
CHANGED = {"id": "small", "minSize": 1, "maxSize": 4, "label": "red", "cpu": 4, "price": 0.5}


def change(server: Server, text: str, *, word: str = READ) -> None:
    """Writes the file, says so, and waits until it was read."""
    count = len(server.said(word))
    server.file.write_text(text)
    server.send(signal.SIGHUP)
    server.wait_for(lambda _: len(server.said(word)) > count)


async def told(provider: RemoteProvider) -> dict[str, object]:
    """What the autoscaler is told of the first group."""
    group = (await provider.node_groups())[0]
    template = await provider.template(group.id)
    now = datetime.now(UTC)
    node = NodeRef(name=f"template-node-for-{group.id}-1")
    price = await provider.node_price(node, now, now + timedelta(hours=1))
    return {
        "id": group.id,
        "minSize": group.min_size,
        "maxSize": group.max_size,
        "label": template.labels.get("pool", ""),
        "cpu": template.capacity["cpu"].value,
        "price": round(price, 6),
    }


async def test_sizes_templates_prices_and_machine_settings_change_with_the_next_refresh_and_not_before(
    tmp_path: Path,
) -> None:
    """R4. And a file that is wrong changes nothing, whatever else is in it."""
    with Cloud(tmp_path) as cloud:
        clouds = {"sim": simulated(cloud.url)}
        changed = small(
            minSize=1,
            maxSize=4,
            machine={"shape": "medium"},
            template={"labels": {"pool": "red"}},
            price={"hourly": "0.5", "currency": "EUR"},
        )
        with Server(tmp_path / "c.yaml", configuration(clouds, [small()])) as server:
            async with server.connected() as provider:
                await provider.refresh()
                assert await told(provider) == SETTLED
                await provider.increase_size("small", 1)
                wrong = configuration(clouds, [{**changed, "machine": {"shap": "medium"}}])
                change(server, wrong, word="and the old configuration stays")
                await check_that_the_mistake_is_told(server, provider)
                change(server, configuration(clouds, [changed]))
                assert (await server.admin("Status"))["configTrouble"] == ""
                assert (await server.admin("Status"))["configPending"]
                await provider.increase_size("small", 1)
                assert await told(provider) == SETTLED
                await provider.refresh()
                assert await told(provider) == CHANGED
                assert not (await server.admin("Status"))["configPending"]
                await provider.increase_size("small", 1)
                with pytest.raises(InvalidArgumentError):
                    await provider.increase_size("small", 2)
                await running(provider, "small", 3)
                assert await server.events("small", "configured") == [
                    "a new group: min 0, max 20",
                    "changed: min_size, max_size, machine, template, price",
                ]
        assert sorted(machine["shape"] for machine in cloud.ledger()) == ["medium", "small", "small"]


async def check_that_the_mistake_is_told(server: Server, provider: RemoteProvider) -> None:
    await provider.refresh()
    assert await told(provider) == SETTLED
    line = server.said("and the old configuration stays")[0]
    assert line["level"] == "error"
    assert "did you mean shape?" in line["event"]
    assert "c.yaml:" in (await server.admin("Status"))["configTrouble"]
    assert "did you mean shape?" in (await server.events("small", "refused_config"))[0]
    assert await server.is_ready()


async def test_a_group_that_is_removed_drains_and_vanishes_when_its_last_machine_has_gone(tmp_path: Path) -> None:
    """Noticed without a signal: the file has changed."""
    with Cloud(tmp_path) as cloud:
        clouds = {"sim": simulated(cloud.url)}
        with Server(tmp_path / "c.yaml", configuration(clouds, [small(), small("doomed")])) as server:
            async with server.connected() as provider:
                await provider.increase_size("small", 1)
                await provider.increase_size("doomed", 2)
                nodes = await running(provider, "doomed", 2)
                server.file.write_text(configuration(clouds, [small()]))
                server.says(READ)
                assert await targets(provider) == {"small": 1, "doomed": 2}
                await provider.refresh()
                group = (await provider.node_groups())[1]
                assert (group.id, group.min_size, group.max_size) == ("doomed", 0, 2)
                assert (await server.admin("Status", group="doomed"))["groups"][0]["draining"]
                with pytest.raises(CloudgraftError):
                    await provider.increase_size("doomed", 1)
                assert await provider.node_group_for_node(nodes[0]) is not None
                await provider.delete_nodes("doomed", nodes)

                async def has_vanished() -> bool:
                    await provider.refresh()
                    return await targets(provider) == {"small": 1}

                await until(has_vanished, what="the group has vanished")
                assert server.says("no machine is left in it")["group"] == "doomed"
        assert len(cloud.live()) == 1


async def test_a_signal_does_not_end_a_server_that_starts_and_a_change_made_meanwhile_is_noticed(
    tmp_path: Path,
) -> None:
    with Cloud(tmp_path) as cloud:
        clouds = {"sim": simulated(cloud.url)}
        cloud.chaos(hang=True)
        with Server(tmp_path / "c.yaml", configuration(clouds, [small()])) as server:
            server.says("elected leader")  # and now it waits for the cloud, before it serves
            server.send(signal.SIGHUP)
            server.file.write_text(configuration(clouds, [small(maxSize=3)]))
            cloud.chaos()
            server.says(READ)
            async with server.connected() as provider:
                await provider.refresh()
                assert [group.max_size for group in await provider.node_groups()] == [3]


async def test_a_cloud_that_is_changed_gets_a_new_driver_and_one_that_is_added_works_without_a_restart(
    tmp_path: Path,
) -> None:
    with Cloud(tmp_path) as cloud, Cloud(tmp_path, name="far") as far:
        before = configuration({"sim": simulated(cloud.url)}, [small()])
        after = configuration(
            {"sim": simulated(cloud.url, client="renamed"), "far": simulated(far.url)}, [small(), small("far", "far")]
        )
        with Server(tmp_path / "c.yaml", before) as server:
            async with server.connected() as provider:
                await provider.increase_size("small", 1)
                first = await running(provider, "small", 1)
                change(server, after)
                cloud.chaos(latency=0.2)  # calls of the old driver are under way when it goes

                async def is_there() -> bool:
                    await provider.refresh()
                    return await targets(provider) == {"small": 1, "far": 0}

                await until(is_there, what="the new cloud's group")
                await provider.increase_size("small", 1)
                await provider.increase_size("far", 1)
                assert (await running(provider, "small", 2))[:1] == first
                await running(provider, "far", 1)
                assert await server.is_ready()
        assert [machine["client"] == "renamed" for machine in cloud.ledger()] == [False, True]
        assert far.made() == 1
