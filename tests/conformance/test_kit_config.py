"""kit.yaml: what may stand in it, and what is said about mistakes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.conformance.check import Need
from cloudgraft.conformance.kit import KitConfig
from cloudgraft.sdk.errors import InvalidArgumentError

WHOLE = """
address: 127.0.0.1:8086
group: small
floorGroup: two
allowExisting: true
machines: 5
providerID: '^openstack:///.+'
nodeName: '([^/]+)$'
patience: {boot: 5m, delete: 90s}
hooks:
  stockOut: {begin: [cloudctl, quota, "0"], end: [cloudctl, quota, "10"]}
  restart: [systemctl, restart, provider]
  lostMachine: [cloudctl, destroy, "{id}"]
"""


def test_everything_can_be_said(tmp_path: Path) -> None:
    file = tmp_path / "kit.yaml"
    file.write_text(WHOLE)
    kit = KitConfig.load(file)
    assert str(kit.connection().address) == "127.0.0.1:8086"
    assert (kit.group, kit.floor_group, kit.allow_existing, kit.machines) == ("small", "two", True, 5)
    assert kit.patience.boot == timedelta(minutes=5)
    assert kit.patience.hook == timedelta(minutes=1)
    assert [need for need in Need if kit.hooks.has(need)] == [Need.STOCK_OUT, Need.RESTART, Need.LOST_MACHINE]


def test_a_cloud_config_says_how_to_reach_the_server(tmp_path: Path) -> None:
    file = tmp_path / "cloud-config"
    file.write_text("address: provider:8086\ngrpc_timeout: 10s\n")
    assert KitConfig(cloud_config=str(file)).connection().grpc_timeout == timedelta(seconds=10)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("adress: a:1", "adress: there is no such key"),
        ("patience: {boot: 5}", "patience.boot: a duration needs a unit: write 90s or 2m"),
        ("patience: {boot: 0s}", "patience.boot: it must be longer than 0s"),
        ("hooks: {restart: []}", "hooks.restart: give a command"),
        ("hooks: {restart: reboot}", "hooks.restart: give a command"),
        ("hooks: {slowCloud: {begin: [x]}}", "hooks.slowCloud.end: it is missing"),
        ("nodeName: '('", "nodeName: it is not a regular expression"),
        ("machines: 2", "machines: it must be at least 3"),
        ("- a", "it must be a mapping"),
        ("a: [", "it is not valid YAML"),
    ],
)
def test_a_mistake_is_reported_with_its_place(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "kit.yaml"
    file.write_text(text)
    with pytest.raises(InvalidArgumentError) as caught:
        KitConfig.load(file)
    assert str(file) in caught.value.message
    assert told in caught.value.message


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        KitConfig.parse("adress: a:1\nmachines: many")
    assert "adress" in caught.value.message
    assert "machines" in caught.value.message


def test_the_server_must_be_named_once(tmp_path: Path) -> None:
    for kit in (KitConfig(), KitConfig(address="a:1", cloud_config="file")):
        with pytest.raises(InvalidArgumentError, match="say where the server is"):
            kit.connection()
    with pytest.raises(InvalidArgumentError, match="cannot read"):
        KitConfig.load(tmp_path / "absent.yaml")
