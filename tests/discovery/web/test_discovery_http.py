"""Discovery over real TLS: who may do what, and what is answered."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from cloudgraft.config.programs.discovery import load_discovery
from cloudgraft.discovery.client import DiscoveryClient
from cloudgraft.discovery.model import (
    ClusterSpec,
    ClusterState,
    Heartbeat,
    Need,
    Network,
    NetworkMode,
    PriceList,
    ReservationState,
    Strategy,
)
from cloudgraft.sdk.errors import (
    AuthenticationError,
    CloudgraftError,
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    OutOfStockError,
    PermissionDeniedError,
    PreconditionError,
    UnavailableError,
)
from cloudgraft.sdk.quantity import Quantity
from tests.conditions import until
from tests.discovery.web.discovery_server import STRANGER, ServedDiscovery

KUBECONFIG = "apiVersion: v1\nusers: [{name: x, user: {token: very-secret-token}}]\n"


def amounts(**texts: str) -> dict[str, Quantity]:
    return {name: Quantity(text) for name, text in texts.items()}


def turin(**more: Any) -> ClusterSpec:
    spec: dict[str, Any] = {"id": "turin", "labels": {"country": "italy"}, "capacity": amounts(cpu="8", memory="32Gi")}
    return ClusterSpec(**{**spec, **more})


async def test_a_cluster_goes_there_and_back_unchanged(town: ServedDiscovery) -> None:
    network = Network(mode=NetworkMode.ADDRESS_OVERRIDE, address="192.0.2.1", port=51840, node_port=30000)
    spec = turin(display_name="Torino", max_nodes=3, network=network, resource_slice_class="gold", cordoned=True)
    async with town.as_("boss") as boss:
        put = await boss.put_cluster(spec)
        assert put.spec == spec
        assert put.state is ClusterState.CORDONED
        assert await boss.cluster("turin") == put
        assert list(await boss.clusters()) == [put]


async def test_an_agent_announces_its_own_cluster_and_no_other(town: ServedDiscovery) -> None:
    beat = Heartbeat(allocatable=amounts(cpu="8"), free=amounts(cpu="6"), agent_version="1")
    async with town.as_("turin") as agent:
        await agent.put_cluster(turin())
        await agent.heartbeat("turin", beat)
        await agent.set_prices("turin", [PriceList(currency="EUR", unit={"cpu": Decimal("0.02")})])
        await agent.set_credentials("turin", KUBECONFIG)
        found = await agent.cluster("turin")
        assert (found.free, found.state) == (amounts(cpu="6"), ClusterState.READY)
        assert found.last_heartbeat is not None
        for attempt in (
            agent.put_cluster(ClusterSpec(id="milan")),
            agent.heartbeat("milan", beat),
            agent.set_prices("milan", []),
            agent.set_credentials("milan", KUBECONFIG),
            agent.cluster("milan"),
            agent.prices("milan"),
            agent.clusters(),
            agent.search(Need(resources=amounts(cpu="1"))),
            agent.reserve("turin", amounts(cpu="1"), owner="a/b", seconds=60),
            agent.credentials("turin"),
            agent.delete_cluster("turin"),
        ):
            with pytest.raises(PermissionDeniedError):
                await attempt


async def test_credentials_are_for_a_node_manager_only_and_the_reading_is_written_down(town: ServedDiscovery) -> None:
    async with town.as_("boss") as boss, town.as_("manager") as manager, town.as_("viewer") as viewer:
        await boss.put_cluster(turin())
        with pytest.raises(NotFoundError):
            await manager.credentials("turin")
        await boss.set_credentials("turin", KUBECONFIG)
        assert await manager.credentials("turin") == KUBECONFIG
        for other in (boss, viewer):
            with pytest.raises(PermissionDeniedError):
                await other.credentials("turin")
    records = [json.loads(line) for line in town.audit.read_text().splitlines()]
    told = [(r["caller"], r["method"], r["status"]) for r in records if r["path"].endswith("/credentials")]
    expected = [("manager", "GET", 404), ("boss", "PUT", 204), ("manager", "GET", 200), ("boss", "GET", 403)]
    assert told == [*expected, ("viewer", "GET", 403)]
    assert "very-secret" not in town.audit.read_text()
    for file in town.directory.glob("discovery.db*"):  # encrypted at rest
        assert b"very-secret" not in file.read_bytes()


async def test_a_reader_changes_nothing(town: ServedDiscovery) -> None:
    async with town.as_("boss") as boss, town.as_("viewer") as viewer:
        await boss.put_cluster(turin())
        assert [offer.cluster for offer in await viewer.search(free_search())] == ["turin"]
        for attempt in (
            viewer.put_cluster(turin()),
            viewer.delete_cluster("turin"),
            viewer.set_prices("turin", []),
            viewer.reserve("turin", amounts(cpu="1"), owner="a/b", seconds=60),
            viewer.confirm("r-1"),
            viewer.release("r-1"),
        ):
            with pytest.raises(PermissionDeniedError):
                await attempt


def free_search() -> Need:
    return Need(resources=amounts(cpu="2"), strategy=Strategy.FIRST_FIT)


async def test_strangers_are_refused_with_and_without_a_certificate_or_token(town: ServedDiscovery) -> None:
    bad = town.directory / "bad.token"
    bad.write_text("not-one-of-the-tokens-that-are-known")
    clients = [
        town.as_(STRANGER),
        DiscoveryClient(town.url, tls=town.tls()),
        DiscoveryClient(town.url, tls=town.tls(), token_file=bad),
    ]
    for client in clients:
        async with client:
            with pytest.raises(AuthenticationError, match="certificate or token is unknown"):
                await client.clusters()


async def test_no_route_answers_without_authentication_but_health(town: ServedDiscovery) -> None:
    """All of them, as the description lists them; also the description itself and what does not exist."""
    async with town.web("boss") as boss, town.web() as nobody:
        description = (await boss.request("GET", "/openapi.json")).json
        paths = {path: list(methods) for path, methods in description["paths"].items()}
        assert len(paths) >= 12
        for path, methods in [*paths.items(), ("/openapi.json", ["get"]), ("/docs", ["get"]), ("/nowhere", ["get"])]:
            real = path.replace("{cluster}", "turin").replace("{reservation}", "r-1")
            for method in {*methods, "get", "post", "put", "delete", "patch", "options", "head"}:
                if path in ("/healthz", "/readyz"):
                    continue
                with pytest.raises(AuthenticationError):
                    await nobody.request(method.upper(), real)
        for path in ("/healthz", "/readyz"):
            assert (await nobody.request("GET", path)).json == {"status": "ok"}


async def test_an_agent_is_refused_everywhere_outside_its_own_cluster(town: ServedDiscovery) -> None:
    """All routes, as the description lists them, before anything is said about what was sent."""
    async with town.web("turin") as web:
        description = (await web.request("GET", "/openapi.json")).json
        for path, methods in description["paths"].items():
            if path in ("/healthz", "/readyz", "/metrics"):
                continue
            for method in methods:
                real = path.replace("{cluster}", "other").replace("{reservation}", "r-1")
                with pytest.raises(PermissionDeniedError):
                    await web.request(method.upper(), real)


async def test_a_client_that_is_taken_out_of_the_file_is_refused_from_then_on(town: ServedDiscovery) -> None:
    async with town.as_("viewer") as viewer, town.as_("boss") as boss:
        await viewer.clusters()
        town.write(without="viewer")
        town.server.replace(load_discovery(town.path))
        with pytest.raises(AuthenticationError):  # on the connection that was open already
            await viewer.clusters()
        await boss.clusters()


async def test_a_token_that_is_taken_out_of_its_file_is_good_no_more(town: ServedDiscovery) -> None:
    async with town.as_("boss") as boss:
        await boss.put_cluster(turin())
    old = town.directory / "old.token"
    old.write_text((town.directory / "turin.token").read_text())
    async with DiscoveryClient(town.url, tls=town.tls(), token_file=old) as agent:
        await agent.cluster("turin")
        (town.directory / "turin.token").write_text("another-token-0123456789")

        async def is_refused() -> bool:
            try:
                await agent.cluster("turin")
            except AuthenticationError:
                return True
            return False

        await until(is_refused)


async def test_two_who_edit_the_same_cluster_do_not_overwrite_each_other(town: ServedDiscovery) -> None:
    async with town.as_("boss") as boss:
        first = await boss.put_cluster(turin())
        second = await boss.put_cluster(turin(max_nodes=1), revision=first.revision)
        with pytest.raises(ConflictError):
            await boss.put_cluster(turin(max_nodes=2), revision=first.revision)
        assert (await boss.cluster("turin")).spec.max_nodes == 1
        assert second.revision != first.revision


async def test_tags_and_statuses_are_those_of_http(town: ServedDiscovery) -> None:
    body = {"capacity": {"cpu": "4"}}
    async with town.web("boss") as web:
        made = await web.request("PUT", "/v1/clusters/turin", json=body)
        again = await web.request("PUT", "/v1/clusters/turin", json=body, headers={"If-Match": made.headers["etag"]})
        assert (made.status, again.status) == (201, 200)
        with pytest.raises(InvalidArgumentError, match="if-match"):
            await web.request("PUT", "/v1/clusters/turin", json=body, headers={"If-Match": "W/7"})
        with pytest.raises(ConflictError, match="there is no cluster milan"):
            await web.request("PUT", "/v1/clusters/milan", json=body, headers={"If-Match": "*"})
        prices = await web.request("GET", "/v1/clusters/turin/prices")
        new = {"items": [{"currency": "EUR", "unit": {"cpu": "0.02"}}]}
        tag = {"If-Match": prices.headers["etag"]}
        changed = await web.request("PUT", "/v1/clusters/turin/prices", json=new, headers=tag)
        assert changed.headers["etag"] != prices.headers["etag"]
        with pytest.raises(ConflictError):
            await web.request("PUT", "/v1/clusters/turin/prices", json=new, headers=tag)
        gone = await web.request("DELETE", "/v1/clusters/turin")
        assert (gone.status, gone.json) == (204, None)


async def test_prices_decide_over_http_and_change_their_mind(town: ServedDiscovery) -> None:
    need = Need(resources=amounts(cpu="2", memory="4Gi"), peered=["milan"], horizon_hours=Decimal(10))
    day = timedelta(days=1)
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    async with town.as_("boss") as boss, town.as_("manager") as manager:
        for id_, price in (("turin", "0.05"), ("milan", "0.01")):
            await boss.put_cluster(turin(id=id_))
            prices = PriceList(
                currency="EUR", unit={"cpu": Decimal(price)}, valid_from=begin, valid_to=begin + 9999 * day
            )
            await boss.set_prices(id_, [prices])
            assert list(await boss.prices(id_)) == [prices]
        offers = await manager.search(need)
        assert [(offer.cluster, offer.price_per_hour) for offer in offers] == [
            ("milan", Decimal("0.02")),
            ("turin", Decimal("0.10")),
        ]
        assert offers[0].peered
        assert offers[0].reasons
        await boss.set_prices("milan", [PriceList(currency="EUR", fixed_per_node=Decimal(9))])
        assert [offer.cluster for offer in await manager.search(need)] == ["turin", "milan"]
        huge = Need(resources=amounts(cpu="100"))
        assert list(await manager.search(huge)) == []
        assert set(await manager.why_not(huge)) == {"turin", "milan"}


async def test_a_reservation_lives_by_its_owner_and_ends_as_it_should(town: ServedDiscovery) -> None:
    async with town.as_("boss") as boss, town.as_("manager") as manager:
        await boss.put_cluster(turin())
        first = await manager.reserve("turin", amounts(cpu="6"), owner="prod/m-1", seconds=60)
        again = await manager.reserve("turin", amounts(cpu="6"), owner="prod/m-1", seconds=120)
        assert first.id == again.id
        with pytest.raises(OutOfStockError):
            await manager.reserve("turin", amounts(cpu="6"), owner="prod/m-2", seconds=60)
        confirmed = await manager.confirm(first.id)
        assert (confirmed.state, confirmed.expires_at) == (ReservationState.CONFIRMED, None)
        assert [one.id for one in await manager.reservations("prod/")] == [first.id]
        assert list(await manager.reservations("other/")) == []
        with pytest.raises(PreconditionError):
            await boss.delete_cluster("turin")
        await manager.release(first.id)
        await manager.release(first.id)
        await boss.delete_cluster("turin")
        with pytest.raises(NotFoundError):
            await manager.confirm(first.id)
        with pytest.raises(NotFoundError):
            await manager.cluster("turin")


async def test_an_idempotency_key_is_for_one_request(town: ServedDiscovery) -> None:
    body = {"clusterId": "turin", "resources": {"cpu": "1"}, "owner": "prod/m-1"}
    async with town.as_("boss") as boss, town.web("manager") as web:
        await boss.put_cluster(turin())
        headers = {"Idempotency-Key": "k-1"}
        one = await web.request("POST", "/v1/reservations", json=body, headers=headers)
        two = await web.request("POST", "/v1/reservations", json=body, headers=headers)
        assert (one.status, one.json["id"]) == (201, two.json["id"])
        with pytest.raises(PreconditionError, match="Idempotency-Key"):
            await web.request("POST", "/v1/reservations", json={**body, "owner": "prod/m-2"}, headers=headers)


async def test_long_lists_come_in_pages(town: ServedDiscovery) -> None:
    async with town.as_("boss") as boss, town.web("boss") as web:
        for number in range(5):
            await boss.put_cluster(turin(id=f"c{number}", labels={"even": str(number % 2 == 0).lower()}))
        first = (await web.request("GET", "/v1/clusters", query={"limit": "2"})).json
        rest = (await web.request("GET", "/v1/clusters", query={"limit": "9", "cursor": first["cursor"]})).json
        assert [item["id"] for item in [*first["items"], *rest["items"]]] == [f"c{n}" for n in range(5)]
        assert rest["cursor"] == ""
        assert len(await boss.clusters(selector="even=true")) == 3
        assert list(await boss.clusters(state="Stale")) == []
        for cursor in ("%%%", "a", "\u00e9"):
            with pytest.raises(InvalidArgumentError, match="cursor"):
                await web.request("GET", "/v1/clusters", query={"cursor": cursor})
        with pytest.raises(InvalidArgumentError, match="label selector"):
            await boss.clusters(selector="a in (")


async def test_the_old_list_has_the_old_shape_and_kubeconfigs_for_a_node_manager_only(town: ServedDiscovery) -> None:
    """The original wrote the text "no clusters found" with status 200, and gave every kubeconfig to anybody."""
    async with town.as_("boss") as boss, town.web("manager") as manager, town.web("viewer") as viewer:
        assert (await viewer.request("GET", "/v1/list")).json == []
        await boss.put_cluster(turin(network=Network(mode=NetworkMode.CONSUMER_GATEWAY)))
        await boss.put_cluster(turin(id="milan", cordoned=True))
        await boss.set_credentials("turin", KUBECONFIG)
        expected = {
            "name": "turin",
            "kubeconfig": KUBECONFIG,
            "resources": {"cpu": "8", "memory": "32Gi"},
            "labels": {"country": "italy"},
            "hasNat": True,
        }
        assert (await manager.request("GET", "/v1/list")).json == [expected]
        assert (await viewer.request("GET", "/v1/list")).json == [{**expected, "kubeconfig": ""}]


async def test_the_old_list_is_off_by_default(certs: Any, tmp_path: Any) -> None:
    town = ServedDiscovery(certs, tmp_path, more="")
    async with town.running(), town.web("boss") as web:
        with pytest.raises(NotFoundError):
            await web.request("GET", "/v1/list")


BAD_BODIES: tuple[object, ...] = (
    {"capacity": {"cpu": 4}},
    {"capacity": {"cpu": "-1"}},
    {"capacity": {"cpu": "1e999999999"}},
    {"labels": {"a b": "c"}},
    {"labels": {"a": "x" * 64}},
    {"maxNodes": -1},
    {"maxNodes": True},
    {"network": {"mode": "magic"}},
    {"network": {"mode": "addressOverride"}},
    {"id": "milan"},
    {"displayName": "\u0000"},
    [],
    None,
)


async def test_a_body_that_makes_no_sense_is_refused(town: ServedDiscovery) -> None:
    async with town.web("boss") as web:
        for body in BAD_BODIES:
            with pytest.raises(InvalidArgumentError):
                await web.request("PUT", "/v1/clusters/turin", json=body)
        assert (await web.request("GET", "/v1/clusters")).json["items"] == []


async def test_a_body_that_is_too_large_is_refused(town: ServedDiscovery) -> None:
    async with town.web("boss") as web:
        with pytest.raises(CloudgraftError) as caught:
            await web.request("PUT", "/v1/clusters/turin/credentials", json={"kubeconfig": "x" * (2 << 20)})
        assert "larger" in caught.value.message


async def test_what_cannot_be_said_is_not_even_sent() -> None:
    async with DiscoveryClient("http://127.0.0.1:9") as client:
        with pytest.raises(InvalidArgumentError, match="owner"):
            await client.reserve("turin", amounts(cpu="1"), owner="a b", seconds=1)
        with pytest.raises(UnavailableError):
            await client.clusters()


async def test_metrics_and_readiness_tell_how_it_stands(town: ServedDiscovery) -> None:
    async with town.as_("boss") as boss, town.web("viewer") as web:
        await boss.put_cluster(turin())
        assert (await web.request("GET", "/metrics")).status == 200
        await town.server.core.close()
        with pytest.raises(UnavailableError):
            await web.request("GET", "/readyz")
