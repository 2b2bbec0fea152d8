"""The driver with the real discovery server: HTTPS with certificates, a database, and a vault."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from cloudgraft.discovery.model import ClusterSpec, Network, NetworkMode, PriceList, ReservationState
from cloudgraft.liqo.driver import LiqoDriver
from cloudgraft.liqo.options import DiscoveryOptions
from cloudgraft.sdk.errors import OutOfStockError, UnavailableError
from cloudgraft.sdk.quantity import Quantity
from tests.conditions import until
from tests.discovery.web.discovery_server import ServedDiscovery, certificates
from tests.liqo.liqo_world import World, spec

CAPACITY = {"cpu": Quantity("5"), "memory": Quantity("64Gi"), "pods": Quantity("200")}


async def _declare(town: ServedDiscovery, world: World, name: str, price: str) -> None:
    async with town.as_("boss") as boss:
        network = Network(mode=NetworkMode.DISABLED)
        await boss.put_cluster(ClusterSpec(id=name, capacity=CAPACITY, network=network))
        await boss.set_credentials(name, world.providers[name].kubeconfig_text())
        await boss.set_prices(name, [PriceList(currency="EUR", fixed_per_node=Decimal(price))])


def _driver(town: ServedDiscovery, world: World) -> LiqoDriver:
    tls = town.tls("manager")
    discovery = DiscoveryOptions(address=town.url, ca_file=tls.ca, cert_file=tls.cert, key_file=tls.key)
    return LiqoDriver(world.options(discovery=discovery))


@pytest.mark.thorough
async def test_reserve_act_confirm_and_release_over_https(world: World, tmp_path: Path) -> None:
    home = tmp_path / "town"
    home.mkdir()
    town = ServedDiscovery(certificates(tmp_path / "certs"), home)
    async with town.running(), town.as_("manager") as market:
        await _declare(town, world, "cluster-a", "1")
        await _declare(town, world, "cluster-b", "2")
        driver = _driver(town, world)
        await driver.start()
        try:
            assert {price.shape: price.hourly for price in await driver.prices()}["S"] == Decimal(1)
            machine = await driver.create(spec())
            held = await market.reservations("consumer/")
            assert [(one.cluster, one.owner, one.state) for one in held] == [
                ("cluster-a", "consumer/node-1", ReservationState.CONFIRMED)
            ]
            await driver.create(spec("node-2"))
            await _declare(town, world, "cluster-a", "9")
            await driver.create(spec("node-3"))
            assert world.slices() == ["cluster-a/node-1", "cluster-a/node-2", "cluster-b/node-3"]
            assert {price.shape: price.hourly for price in await driver.prices()}["S"] == Decimal(2)
            with pytest.raises(OutOfStockError, match="cluster-b"):
                await driver.create(spec("node-4", shape="all@cluster-b"))
            await driver.delete(machine)

            async def is_released() -> bool:
                return "consumer/node-1" not in {one.owner for one in await market.reservations("consumer/")}

            await until(is_released)
            assert (await driver.create(spec("node-1"))).machine_id != machine.machine_id
        finally:
            await driver.close()


@pytest.mark.thorough
async def test_a_discovery_that_is_away_is_told_and_lists_go_on(world: World, tmp_path: Path) -> None:
    home = tmp_path / "town"
    home.mkdir()
    town = ServedDiscovery(certificates(tmp_path / "certs"), home)
    async with town.running():
        driver = _driver(town, world)
    await driver.start()
    try:
        with pytest.raises(UnavailableError, match="no remote cluster can be chosen"):
            await driver.create(spec())
        assert await driver.list() == []
    finally:
        await driver.close()
