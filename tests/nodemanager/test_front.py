"""A front: every answer from memory and the same as the engine's own, also while the manager is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from cloudgraft.engine.groups.specs import Money
from cloudgraft.nodemanager.front.provider import NodeManagerProvider
from cloudgraft.sdk.errors import NotFoundError, UnavailableError
from cloudgraft.sdk.provider import Provider
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import AutoscalingOptions, Container, InstanceState, NodeRef, Pod
from tests.conditions import until
from tests.engine.engine_rig import Rig, fake, group, real
from tests.nodemanager.managed import Managed, managed, patient

PRICE = Money(amount=Decimal("0.07"), currency="EUR")
OPTIONS = AutoscalingOptions(scale_down_unneeded_time=timedelta(minutes=5), zero_or_max_node_scaling=True)
GROUPS = (group("g", price=PRICE, options=OPTIONS), group("h", machine={"shape": "large"}, price=PRICE))
START, END = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 3, tzinfo=UTC)


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[Managed]:
    async with managed(Rig(tmp_path, groups=GROUPS), tmp_path) as found:
        yield found


async def _all(provider: Provider) -> dict[str, object]:
    """All that the autoscaler may ask without a node."""
    found: dict[str, object] = {"groups": tuple(await provider.node_groups())}
    for one in await provider.node_groups():
        instances = await provider.instances(one.id)
        found[one.id] = (
            await provider.target_size(one.id),
            sorted(instances, key=lambda instance: instance.id),
            await provider.template(one.id),
            await provider.options(one.id, AutoscalingOptions()),
            await provider.node_price(NodeRef(name=f"template-node-for-{one.id}-123"), START, END),
        )
    requests = {"cpu": Quantity("1500m"), "memory": Quantity("3Gi")}
    found["pod"] = await provider.pod_price(Pod(containers=[Container(requests=requests)]), START, END)
    found["gpu"] = (await provider.gpu_label(), tuple(await provider.gpu_types()))
    return found


async def _same(there: Managed, front: NodeManagerProvider) -> None:
    await until(lambda: front._views.revision == there.manager.feed.revision, what="the front is in step")
    assert await _all(front) == await _all(there.rig.provider)


async def test_a_front_answers_as_the_engine_does_at_every_moment_of_a_machines_life(there: Managed) -> None:
    async with there.fronted() as front:
        await _same(there, front)
        await front.increase_size("g", 3)
        for _ in range(6):
            await there.rig.turn(10)
            await _same(there, front)
        there.rig.chaos(stock={"small": 0})
        await front.increase_size("g", 1)
        await there.rig.settle(2)
        await _same(there, front)
        await front.delete_nodes("g", [real(i) for i in await front.instances("g")])
        await _same(there, front)
        await there.rig.settle()
        await _same(there, front)
        assert await front.instances("g") == ()


async def test_reads_cost_no_request_and_a_loop_costs_few(there: Managed) -> None:
    async with there.fronted(settings=patient(refresh_every=5.0)) as front:
        await front.increase_size("g", 4)
        await there.rig.settle(3)
        await front.refresh()
        await _same(there, front)
        before = front.requests
        await front.refresh()
        await _all(front)
        for instance in await front.instances("g"):
            await front.node_group_for_node(real(instance))
        assert front.requests - before <= 2


async def test_r27_a_change_shows_in_the_very_next_answer(there: Managed) -> None:
    async with there.fronted(settings=patient(refresh_every=60.0)) as front:
        for size in range(1, 6):
            await front.increase_size("g", 1)
            assert await front.target_size("g") == len(await front.instances("g")) == size
        first = (await front.instances("g"))[0]
        await front.delete_nodes("g", [fake(first)])
        assert await front.target_size("g") == 4
        await front.decrease_target_size("g", -1)
        assert await front.target_size("g") == 3


async def test_changes_of_one_front_are_seen_by_the_other_without_asking(there: Managed) -> None:
    async with there.fronted() as one, there.fronted() as other:
        await one.increase_size("g", 2)

        async def is_seen() -> bool:
            return await other.target_size("g") == 2

        await until(is_seen)
        assert sorted(i.id for i in await other.instances("g")) == sorted(i.id for i in await one.instances("g"))


async def test_law_5_a_placeholder_stays_an_alias_and_a_gone_machine_keeps_its_group(there: Managed) -> None:
    async with there.fronted() as front:
        await front.increase_size("g", 1)
        placeholder = (await front.instances("g"))[0]
        assert placeholder.state is InstanceState.CREATING
        await there.rig.settle()
        await _same(there, front)
        running = (await front.instances("g"))[0]
        record = there.rig.records()[0]
        nodes = [fake(placeholder), real(running), NodeRef(name=record.name), NodeRef(name=placeholder.id)]

        async def groups() -> list[str]:
            return [found.id if (found := await front.node_group_for_node(node)) else "" for node in nodes]

        assert running.id != placeholder.id
        assert await groups() == ["g"] * 4
        assert await front.node_group_for_node(NodeRef(name=record.name, provider_id="another")) is None
        await front.delete_nodes("g", [fake(placeholder)])
        await there.rig.settle()
        await _same(there, front)
        assert await front.instances("g") == ()
        assert await groups() == ["g"] * 4  # R24
        there.rig.clock.advance(31 * 60)
        await front.increase_size("g", 1)  # anything: what is told next leaves it out
        await until(lambda: front._views.group_of(nodes[1]) is None)
        assert await groups() == [""] * 4


async def test_r4_groups_come_change_and_go_at_a_refresh_and_not_before(there: Managed) -> None:
    async with there.fronted() as front:
        await there.rig.reconfigure(replace(GROUPS[0], max_size=20), group("new", price=PRICE))
        await until(lambda: front._views.revision == there.manager.feed.revision)
        assert [(one.id, one.max_size) for one in await front.node_groups()] == [("g", 10), ("h", 10)]
        assert await front.target_size("h") == 0
        await front.refresh()
        assert [(one.id, one.max_size) for one in await front.node_groups()] == [("g", 20), ("new", 10)]
        with pytest.raises(NotFoundError):
            await front.target_size("h")


async def test_a_refresh_has_the_manager_take_in_its_configuration(there: Managed) -> None:
    async with there.fronted() as front:
        there.rig.groups = (GROUPS[0],)
        there.rig.engine.reconfigure(there.rig.desired_state())
        await front.refresh()
        assert [one.id for one in await front.node_groups()] == ["g"]


async def test_a_front_goes_on_answering_while_the_manager_is_away_until_that_is_too_long(there: Managed) -> None:
    now = [0.0]
    front = there.front(settings=patient(max_staleness=60.0))
    front._clock = lambda: now[0]
    await front.start()
    try:
        await front.increase_size("g", 2)
        there.manager.feed.close()
        await there.listener.close(1.0)
        await until(lambda: bool(front.trouble))
        assert await front.target_size("g") == len(await front.instances("g")) == 2
        await front.refresh()
        with pytest.raises(UnavailableError):
            await front.increase_size("g", 1)
        now[0] = 61.0
        with pytest.raises(UnavailableError, match="not been heard of for 61 s"):
            await front.refresh()
        assert await front.target_size("g") == 2
        await there.listener.open()
    finally:
        await front.close()


async def test_a_front_starts_before_its_manager_and_finds_it_later(there: Managed) -> None:
    address = there.listener.address
    there.manager.feed.close()
    await there.listener.close(1.0)
    async with there.fronted(url=f"https://{address}") as front:
        with pytest.raises(UnavailableError):
            await front.node_groups()
        there.listener._listen = address
        await there.listener.open()
        await until(lambda: not front.trouble)
        assert len(await front.node_groups()) == 2


async def test_after_a_restart_of_the_manager_a_front_gets_everything(there: Managed) -> None:
    async with there.fronted() as front:
        await front.increase_size("g", 2)
        there.manager.feed._manager = "another"
        there.manager.feed.on_reload()
        await front.increase_size("g", 1)
        assert await front.target_size("g") == len(await front.instances("g")) == 3
        await _same(there, front)


async def test_a_replica_that_does_not_lead_says_so_and_the_front_stops_its_loop(there: Managed) -> None:
    async with there.fronted() as front, there.client("front") as client:
        there.rig.engine._is_serving = False
        with pytest.raises(UnavailableError) as refused:
            await client.request("GET", "/v1/nodegroups")
        assert refused.value.retry_after == 2
        with pytest.raises(UnavailableError):
            await front.refresh()
        assert len(await front.node_groups()) == 2
        there.rig.engine._is_serving = True
        await front.refresh()


class Snip:
    """A relay that loses the answers to changes: the manager has made them, and nobody is told."""

    def __init__(self, there: Managed) -> None:
        self._host, _, port = there.listener.address.rpartition(":")
        self._port = int(port)
        self.losses = 0
        self.connections = 0

    async def serve(self) -> asyncio.Server:
        return await asyncio.start_server(self._relay, "127.0.0.1", 0)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        inner_reader, inner_writer = await asyncio.open_connection(self._host, self._port)
        sent = asyncio.Event()

        async def pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_back: bool) -> None:
            with suppress(ConnectionError):
                while data := await source.read(1 << 16):
                    if is_back and self.losses and sent.is_set():
                        self.losses -= 1
                        break
                    if self.losses and not is_back:
                        sent.set()
                    sink.write(data)
            for one in (writer, inner_writer):
                one.close()

        await asyncio.gather(pass_on(reader, inner_writer, is_back=False), pass_on(inner_reader, writer, is_back=True))
        for one in (writer, inner_writer):
            with suppress(ConnectionError):
                await one.wait_closed()
        self.connections -= 1


async def test_a_change_whose_answer_was_lost_is_asked_for_again_and_made_once(there: Managed) -> None:
    snip = Snip(there)
    server = await snip.serve()
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, there.fronted(url=url, settings=patient(refresh_every=60.0)) as front:
        await front.increase_size("g", 1)  # a connection that stands
        snip.losses = 1
        await front.increase_size("g", 2)
        assert snip.losses == 0
        assert await there.rig.provider.target_size("g") == await front.target_size("g") == 3
    await until(lambda: snip.connections == 0)
