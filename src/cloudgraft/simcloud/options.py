"""Validates the options of a simulated cloud, and the settings of a group's machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from urllib.parse import urlsplit

from cloudgraft.sdk.driver import Idempotency, StateFile
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.flaws import Flaws
from cloudgraft.sdk.quantity import amount, check_amounts
from cloudgraft.sdk.types import Taint
from cloudgraft.simcloud.fields import Fields

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_MOST_PER_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeOptions:
    """A custom machine type. Amounts are Kubernetes quantities."""

    cpu: str | int
    memory: str | int
    pods: int = 110
    ephemeral_storage: str | int = "100Gi"
    extra: Mapping[str, str | int] = field(default_factory=dict)  # such as nvidia.com/gpu: 1
    labels: Mapping[str, str] = field(default_factory=dict)
    hourly: Decimal | None = None

    def __post_init__(self) -> None:
        """Validates amounts and the price."""
        flaws = Flaws()
        flaws.expect_not_negative(pods=self.pods)
        amounts = {"cpu": self.cpu, "memory": self.memory, "ephemeralStorage": self.ephemeral_storage}
        for key, value in amounts.items():
            with flaws.at(key):
                amount(value)
        check_amounts(flaws, "extra", self.extra)
        is_price = self.hourly is None or (self.hourly.is_finite() and self.hourly >= 0)
        flaws.expect(is_price, "hourly", "must be a number, and not negative")
        flaws.raise_any()


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedOptions:
    """One simulated cloud. Without ``url`` it runs in this process, with the options below.

    With ``url`` it is a process of its own (``cloudgraft simcloud``) with its own options. Then only the first four
    options count, and ``idempotency`` and ``list_lag``, which must be the same as in that process.
    """

    url: str = ""  # of a `cloudgraft simcloud`, such as http://127.0.0.1:9400
    timeout: timedelta = timedelta(seconds=30)  # how long one call to that process may take
    page_size: int = 250
    client: str = ""  # who we are, for the ledger; the cluster id in a machine's tags when it is not said
    state_file: StateFile = None  # the ledger of a cloud in this process; None keeps it in memory only
    idempotency: Idempotency = Idempotency.TOKEN
    list_lag: timedelta = timedelta(0)  # a list shows the cloud as it was so long ago
    boot_time: timedelta = timedelta(seconds=5)  # from the order to a running machine
    delete_time: timedelta = timedelta(seconds=2)  # from the request to a gone machine
    quota: int | None = None  # machines at a time; None for no limit
    stock: Mapping[str, int] = field(default_factory=dict)  # the same per shape
    shapes: Mapping[str, ShapeOptions] = field(default_factory=dict)  # beside small, medium, large and gpu
    prices: Mapping[str, Decimal] = field(default_factory=dict)  # per hour and shape, instead of those they have
    currency: str = "EUR"

    def __post_init__(self) -> None:
        """Refuses options that can never work."""
        flaws = Flaws()
        flaws.expect_positive(timeout=self.timeout)
        flaws.expect_not_negative(
            listLag=self.list_lag, bootTime=self.boot_time, deleteTime=self.delete_time, quota=self.quota
        )
        is_size = 1 <= self.page_size <= _MOST_PER_PAGE
        flaws.expect(is_size, "pageSize", f"must be between 1 and {_MOST_PER_PAGE}")
        for shape, limit in self.stock.items():
            flaws.expect(limit >= 0, ("stock", shape), "must not be negative")
        for shape, price in self.prices.items():
            is_price = price.is_finite() and price >= 0
            flaws.expect(is_price, ("prices", shape), "must be a number, and not negative")
        if self.url:
            with flaws.at("url"):
                _check_url(self.url)
        flaws.raise_any()


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """The ``machine:`` section of a group. The kubelet of the simulated cloud gives its nodes these properties."""

    shape: str
    zone: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Taint] = ()

    def __post_init__(self) -> None:
        """Refuses properties that no node can have."""
        flaws = Flaws()
        flaws.expect(self.shape, "shape", "must not be empty")
        for index, taint in enumerate(self.taints):
            is_taint = taint.key and taint.effect in _EFFECTS
            flaws.expect(is_taint, ("taints", index), f"needs a key, and one of the effects {', '.join(_EFFECTS)}")
        flaws.raise_any()

    @classmethod
    def read(cls, data: Mapping[str, object]) -> MachineSettings:
        """From the raw section; raises InvalidArgumentError that names the key."""
        fields = Fields(data, "machine")
        settings = cls.take(fields)
        fields.end()
        return settings

    @classmethod
    def take(cls, fields: Fields) -> MachineSettings:
        """From fields that may hold more than these."""
        return cls(
            shape=fields.required("shape"),
            zone=fields.text("zone"),
            labels=fields.texts("labels"),
            annotations=fields.texts("annotations"),
            taints=tuple(_taint(item, where) for where, item in fields.items("taints")),
        )

    def to_json(self) -> dict[str, object]:
        """What :meth:`read` reads."""
        taints = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in self.taints]
        return {
            "shape": self.shape,
            "zone": self.zone,
            "labels": dict(self.labels),
            "annotations": dict(self.annotations),
            "taints": taints,
        }


def _taint(item: object, where: str) -> Taint:
    fields = Fields(item, where)
    taint = Taint(key=fields.required("key"), value=fields.text("value"), effect=fields.text("effect") or _EFFECTS[0])
    fields.end()
    return taint


def _check_url(url: str) -> None:
    example = "write it like http://127.0.0.1:9400"
    try:
        parts = urlsplit(url)
        fine = parts.scheme == "http" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise InvalidArgumentError(f"is not an address; {example}") from None
    if not fine:
        raise InvalidArgumentError(f"is not the address of a simulated cloud; {example}")
    if parts.path.strip("/") or parts.query or parts.fragment or parts.username or parts.password:
        raise InvalidArgumentError(f"must be an address only, without path and credentials; {example}")
