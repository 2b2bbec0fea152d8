"""Edits over HTTP that must not undo another's, amounts at the edge of what can be said, and what is hidden."""

from __future__ import annotations

from decimal import Decimal

import pytest

from cloudgraft.discovery.checks import hide_kubeconfig
from cloudgraft.discovery.model import ClusterSpec, ClusterState, PriceList
from cloudgraft.sdk.errors import ConflictError, InvalidArgumentError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.secrecy import redacted
from tests.discovery.web.discovery_server import ServedDiscovery


def turin(*, cordoned: bool = False) -> ClusterSpec:
    return ClusterSpec(id="turin", capacity={"cpu": Quantity(8)}, cordoned=cordoned)


async def test_an_agent_uncordons_nothing(town: ServedDiscovery) -> None:
    async with town.as_("boss") as boss, town.as_("turin") as agent:
        await boss.put_cluster(turin(cordoned=True))
        assert (await agent.put_cluster(turin())).state is ClusterState.CORDONED
        assert (await boss.put_cluster(turin())).state is ClusterState.READY


async def test_prices_that_are_added_do_not_undo_what_another_sets(town: ServedDiscovery) -> None:
    first, second = PriceList(currency="EUR"), PriceList(currency="EUR", fixed_per_node=Decimal(1))
    async with town.as_("boss") as boss, town.web("boss") as web:
        await boss.put_cluster(turin())
        await boss.set_prices("turin", [first])
        tag = (await web.request("GET", "/v1/clusters/turin/prices")).headers["etag"]
        await boss.add_prices("turin", second)
        assert list(await boss.prices("turin")) == [first, second]
        with pytest.raises(ConflictError, match="read them again"):
            await web.request("PUT", "/v1/clusters/turin/prices", json={"items": []}, headers={"If-Match": tag})
        assert list(await boss.prices("turin")) == [first, second]


@pytest.mark.parametrize("amount", ["7Ei", "999999999999999.123456789", "1.000000001"])
async def test_the_largest_and_the_finest_amounts_can_be_reserved_and_shown(town: ServedDiscovery, amount: str) -> None:
    async with town.as_("boss") as boss:
        await boss.put_cluster(ClusterSpec(id="turin", capacity={"x.org/y": Quantity("8Ei")}))
        await boss.reserve("turin", {"x.org/y": Quantity(amount)}, owner="us/m", seconds=60)
        shown = (await boss.cluster("turin")).reserved["x.org/y"]
        assert abs(shown.nanos - Quantity(amount).nanos) < 1000 * 10**9


def test_only_the_last_kubeconfigs_are_hidden_and_each_only_once() -> None:
    """Every secret costs time in every log line, and agents renew their tokens for ever."""
    block = "client-key-data: |\n      LS0tLS1CRUdJTi\n      Bsb3QgbW9yZQ==\n"
    for _ in range(3):
        hide_kubeconfig(f"users:\n- user:\n    token: first-token\n    {block}")
    assert redacted("a first-token, LS0tLS1CRUdJTi and Bsb3QgbW9yZQ==") == "a [secret], [secret] and [secret]"
    for number in range(300):
        hide_kubeconfig(f'{{"users": [{{"user": {{"token": "token-number-{number}"}}}}]}}')
    assert redacted("first-token token-number-299") == "first-token [secret]"


def test_a_kubeconfig_with_thousands_of_secrets_is_refused() -> None:
    """It would slow every log line of the process."""
    text = "".join(f"token: token-{number:06}\n" for number in range(5000))
    with pytest.raises(InvalidArgumentError, match="more than 128 lines of secrets"):
        hide_kubeconfig(text)
    assert redacted("token-000001") == "token-000001"
