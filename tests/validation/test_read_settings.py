"""Settings of a machine are read from a MachineSpec by the rules of the file."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import pytest

from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.validation import read_settings


class Disk(enum.Enum):
    OVERLAY = "overlay"
    CLONE = "clone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    network: str = ""
    mtu: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    shape: str
    disk: Disk = Disk.OVERLAY
    disk_size: str | int = ""
    spot: bool = False
    price: Decimal | None = None
    share: float = 1.0
    names: Sequence[str | int] = ()
    cards: Sequence[Card] | None = None
    root: Card | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    raw: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.shape:
            raise InvalidArgumentError("shape must not be empty")


def test_every_kind_of_value_is_read_as_its_type_says() -> None:
    given = {
        "shape": "small",
        "disk": "clone",
        "diskSize": 20,
        "spot": True,
        "price": "0.05",
        "share": 2,
        "names": ["a", 7],
        "cards": [{"network": "lan", "mtu": 9000}],
        "root": {},
        "labels": {"a": "b"},
        "raw": {"x": [1, {"y": None}]},
    }
    assert read_settings(Settings, given) == Settings(
        shape="small",
        disk=Disk.CLONE,
        disk_size=20,
        spot=True,
        price=Decimal("0.05"),
        share=2,
        names=["a", 7],
        cards=[Card(network="lan", mtu=9000)],
        root=Card(),
        labels={"a": "b"},
        raw={"x": [1, {"y": None}]},
    )


def test_null_is_a_missing_key() -> None:
    given = {"shape": "s", "disk": None, "price": None, "cards": None, "root": {"network": None}}
    assert read_settings(Settings, given) == Settings(shape="s", root=Card())
    with pytest.raises(InvalidArgumentError, match=r"machine\.shape: is missing"):
        read_settings(Settings, {"shape": None})


def test_values_of_secrets_are_not_repeated() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        read_settings(Settings, {"shape": "s", "disk": "hunter2", "labels": {"a": ["hunter2"]}})
    assert "hunter2" not in caught.value.message
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "machine.shape: is missing"),
        ({"shape": ""}, "machine: shape must not be empty"),
        ({"shape": 7}, "machine.shape: must be a string, not a number"),
        ({"shape": "s", "dsik": "clone"}, r"machine.dsik: unknown key \(did you mean disk\?\)"),
        ({"shape": "s", "zzz": 1}, r"machine.zzz: unknown key \(known here: cards, disk"),
        ({"shape": "s", "disk": "copy"}, "machine.disk: must be one of overlay, clone"),
        ({"shape": "s", "diskSize": []}, "machine.diskSize: must be a string or a whole number, not a list"),
        ({"shape": "s", "diskSize": True}, "machine.diskSize: must be a number, not true"),
        ({"shape": "s", "spot": 7}, "machine.spot: must be true or false"),
        ({"shape": "s", "price": True}, "machine.price: must be a number, not true"),
        ({"shape": "s", "price": "cheap"}, "machine.price: must be a number, not a string"),
        ({"shape": "s", "price": []}, "machine.price: must be a number, not a list"),
        ({"shape": "s", "share": True}, "machine.share: must be a number, not true"),
        ({"shape": "s", "names": "a"}, "machine.names: must be a list, not a string"),
        ({"shape": "s", "names": [True]}, r"machine.names\[0\]: must be a number, not true"),
        ({"shape": "s", "names": [[]]}, r"machine.names\[0\]: must be a string or a whole number, not a list"),
        ({"shape": "s", "cards": [{"mtu": "x"}]}, r"machine.cards\[0\].mtu: must be a whole number"),
        ({"shape": "s", "root": "x"}, "machine.root: must be a mapping"),
        ({"shape": "s", "labels": {"a": 1}}, "machine.labels.a: must be a string"),
        ({"shape": "s", "labels": {1: "a"}}, "machine.labels"),
        ({"shape": "s", "labels": []}, "machine.labels: must be a mapping"),
        ({"disk": "copy", "spot": 7}, "machine.shape: is missing; machine.disk: .*; machine.spot: "),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_key(given: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        read_settings(Settings, given)
