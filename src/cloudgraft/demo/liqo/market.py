"""The demo's discovery server: the real one, on a port of loopback, with mTLS and a database on disk."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Final

from cloudgraft.certs.authority import create_bundle, issue_client
from cloudgraft.discovery.api.app import discovery_app
from cloudgraft.discovery.client import DiscoveryClient
from cloudgraft.discovery.model import ClusterSpec, Network, NetworkMode, PriceList
from cloudgraft.discovery.service import Discovery
from cloudgraft.discovery.store.vault import Vault, new_key
from cloudgraft.liqo.options import DiscoveryOptions
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.web.audit import AuditLog
from cloudgraft.web.client import ClientTls
from cloudgraft.web.identity import ClientRule, Gatekeeper
from cloudgraft.web.listener import WebListener, WebTls

__all__ = ["CURRENCY", "DemoMarket", "open_market"]

CURRENCY: Final = "EUR"
_MANAGER, _OPERATOR = "node-manager", "operator"
_SHARED: Final = {"cpu": Quantity("16"), "memory": Quantity("64Gi"), "pods": Quantity("200")}


@dataclass(frozen=True, slots=True)
class DemoMarket:
    """A discovery server, and an operator's hand on it."""

    address: str
    options: DiscoveryOptions  # for the driver
    operator: DiscoveryClient
    manager: DiscoveryClient  # sees reservations

    async def announce(self, cluster: str, price: str, kubeconfig: str) -> None:
        """A cluster shares resources from now on."""
        network = Network(mode=NetworkMode.DISABLED)
        await self.operator.put_cluster(ClusterSpec(id=cluster, capacity=_SHARED, network=network))
        await self.operator.set_credentials(cluster, kubeconfig)
        await self.price({cluster: price})

    async def price(self, prices: Mapping[str, str]) -> None:
        """What clusters ask from now on, for a node and hour."""
        for cluster, price in prices.items():
            told = PriceList(currency=CURRENCY, fixed_per_node=Decimal(price))
            await self.operator.set_prices(cluster, [told])

    async def reserved(self) -> int:
        """Reservations that are alive."""
        return len(await self.manager.reservations(""))


@asynccontextmanager
async def open_market(directory: Path) -> AsyncIterator[DemoMarket]:
    """Serves while the block lasts. Keys and database are in the directory."""
    async with AsyncExitStack() as stack:
        bundle = create_bundle(directory, hosts=["127.0.0.1"], client_name=_MANAGER)
        operator = issue_client(directory, _OPERATOR)
        core = Discovery(Discovery.sqlite(directory / "discovery.db"), vault=Vault.parse(new_key(), where="the demo"))
        await core.open()
        stack.push_async_callback(core.close)
        rules = [ClientRule(name=name, role=name, certificate=name) for name in (_MANAGER, _OPERATOR)]
        app = discovery_app(core, gatekeeper=Gatekeeper(rules, secure=True), audit=AuditLog(directory / "audit.log"))
        files = WebTls(cert=bundle.server_cert, key=bundle.server_key, client_ca=bundle.ca_cert)
        listener = WebListener(app, listen="127.0.0.1:0", tls=files)
        await listener.open()
        stack.push_async_callback(listener.close)
        pairs = (operator, (bundle.client_cert, bundle.client_key))
        clients = [
            DiscoveryClient(listener.url, tls=ClientTls(ca=bundle.ca_cert, cert=cert, key=key)) for cert, key in pairs
        ]
        for client in clients:
            stack.push_async_callback(client.close)
        options = DiscoveryOptions(
            address=listener.url, ca_file=bundle.ca_cert, cert_file=bundle.client_cert, key_file=bundle.client_key
        )
        yield DemoMarket(listener.url, options, *clients)
