"""What a configuration file may say about remote clusters, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.config import Where, parse_options
from cloudgraft.discovery.model import Strategy
from cloudgraft.liqo.options import (
    DiscoveryOptions,
    GatewayOptions,
    LiqoOptions,
    MachineSettings,
    Timeouts,
)
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.validation import read_settings
from cloudgraft.validation.document import read_yaml

FILE = """\
discovery: {address: "https://discovery.example:9010", caFile: ca.crt, tokenFile: token}
kubeconfig: consumer.yaml
clusterID: my-cluster
sizes:
  S: {cpu: 2, memory: 4Gi, pods: 20}
  M: {cpu: 3.5, memory: 16Gi, nvidia.com/gpu: 1}
networking: {serviceType: NodePort, mtu: 1300}
timeouts: {peering: 3m}
unpeerAfter: 20m
strategy: mostHeadroom
selector: country=italy
priceCap: "0.25"
currency: EUR
weights: {far-away: "1.5"}
exclude: [bad]
"""


def test_a_file_says_it_in_camel_case(tmp_path: Path) -> None:
    document = read_yaml(FILE, "file.yaml")
    assert isinstance(document.root.value, dict)
    options = parse_options(LiqoOptions, document.root.value, Where(document=document, path=(), base_dir=tmp_path))
    assert options.discovery.token_file == tmp_path / "token"
    assert options.kubeconfig == tmp_path / "consumer.yaml"
    assert (options.strategy, options.price_cap) == (Strategy.MOST_HEADROOM, Decimal("0.25"))
    assert (options.timeouts.peering, options.unpeer_after) == (timedelta(minutes=3), timedelta(minutes=20))
    assert options.weights == {"far-away": Decimal("1.5")}
    assert str(options.amounts()["M"]["cpu"]) == "3.5"


@pytest.mark.parametrize(
    "changes",
    [
        {"sizes": {}},
        {"sizes": {"S": {"cpu": 1}}},
        {"sizes": {"S": {"cpu": 1, "memory": "much"}}},
        {"sizes": {"S": {"cpu": 1, "memory": "1Gi", "pods": -1}}},
        {"sizes": {"all": {"cpu": 1, "memory": "1Gi"}}},
        {"sizes": {"S@a": {"cpu": 1, "memory": "1Gi"}}},
        {"clusterID": "My Cluster"},
        {"unpeer_after": timedelta(seconds=-1)},
        {"look_every": timedelta(0)},
        {"reserve_for": timedelta(minutes=5, seconds=-1)},
        {"reserve_for": timedelta(minutes=5), "timeouts": Timeouts(slice=timedelta(minutes=6))},
        {"price_cap": Decimal(1)},
        {"price_cap": Decimal(-1), "currency": "EUR"},
    ],
)
def test_what_can_never_work_is_refused(changes: dict[str, Any]) -> None:
    given = {"discovery": DiscoveryOptions(address="https://x"), "sizes": {"S": {"cpu": 1, "memory": "1Gi"}}, **changes}
    with pytest.raises(InvalidArgumentError):
        LiqoOptions(**given)


def test_what_is_held_need_not_last_for_the_peering_and_the_slice_together() -> None:
    """It is held anew when the clusters are peered."""
    given = DiscoveryOptions(address="https://x")
    enough = timedelta(minutes=5)
    made = LiqoOptions(discovery=given, sizes={"S": {"cpu": 1, "memory": "1Gi"}}, reserve_for=enough)
    assert made.reserve_for == enough == made.timeouts.peering


def test_parts_of_it_are_refused_too() -> None:
    with pytest.raises(InvalidArgumentError):
        DiscoveryOptions(address="")
    with pytest.raises(InvalidArgumentError):
        DiscoveryOptions(address="https://x", cert_file=Path("cert"))
    with pytest.raises(InvalidArgumentError):
        GatewayOptions(service_type="ClusterIP")
    with pytest.raises(InvalidArgumentError):
        Timeouts(slice=timedelta(0))


def test_a_groups_section_is_read_from_the_journal_as_from_the_file() -> None:
    given = {"shape": "S", "strategy": "cheapest", "priceCap": 0.5, "exclude": ["a"], "selector": ""}
    assert read_settings(MachineSettings, given) == MachineSettings(
        shape="S", strategy=Strategy.CHEAPEST, price_cap=Decimal("0.5"), exclude=["a"], selector=""
    )
