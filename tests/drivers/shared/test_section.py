"""A section that may come from anywhere becomes settings, or an error that names the key."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import pytest

from cloudgraft.drivers.common.section import read_section
from cloudgraft.sdk.errors import InvalidArgumentError


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
    assert read_section(Settings, given) == Settings(
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


def test_what_is_null_is_as_if_it_were_not_there() -> None:
    assert read_section(Settings, {"shape": "s", "price": None, "cards": None}) == Settings(shape="s")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "machine must be a mapping"),
        ({}, "machine.shape is missing"),
        ({"shape": ""}, "machine: shape must not be empty"),
        ({"shape": 7}, "machine.shape must be a text"),
        ({"shape": "s", "dsik": "clone"}, "machine.dsik is not known; did you mean 'disk'?"),
        ({"shape": "s", "zzz": 1}, "machine.zzz is not known; known here: shape, disk"),
        ({"shape": "s", "disk": "copy"}, "machine.disk must be one of overlay, clone"),
        ({"shape": "s", "diskSize": []}, "machine.diskSize must be a text or a whole number"),
        ({"shape": "s", "spot": 1}, "machine.spot must be true or false"),
        ({"shape": "s", "price": True}, "machine.price must be a number"),
        ({"shape": "s", "price": "cheap"}, "machine.price must be a number"),
        ({"shape": "s", "share": True}, "machine.share must be a number"),
        ({"shape": "s", "names": "a"}, "machine.names must be a list"),
        ({"shape": "s", "names": [True]}, r"machine.names\[0\] must be a text or a whole number"),
        ({"shape": "s", "cards": [{"mtu": "9"}]}, r"machine.cards\[0\].mtu must be a whole number"),
        ({"shape": "s", "root": "x"}, "machine.root must be a mapping"),
        ({"shape": "s", "labels": {"a": 1}}, "machine.labels.a must be a text"),
        ({"shape": "s", "labels": {1: "a"}}, "a key of machine.labels must be a text"),
        ({"shape": "s", "labels": []}, "machine.labels must be a mapping"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_key(given: object, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        read_section(Settings, given)
