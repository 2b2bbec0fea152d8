"""What a configuration file may say: about a simulated cloud, and about the machines of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit

from cloudgraft.sdk.driver import Idempotency
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.types import Taint
from cloudgraft.simcloud.fields import Fields

__all__ = ["MachineSettings", "ShapeOptions", "SimulatedOptions"]

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_MOST_PER_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeOptions:
    """A machine type of one's own. Amounts are written as Kubernetes writes them."""

    cpu: str | int
    memory: str | int
    pods: int = 110
    ephemeral_storage: str | int = "100Gi"
    extra: Mapping[str, str | int] = field(default_factory=dict)  # such as nvidia.com/gpu: 1
    labels: Mapping[str, str] = field(default_factory=dict)
    hourly: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedOptions:
    """One simulated cloud. Without ``url`` it lives in this process, with everything below as it is said here.

    With ``url`` it is a process of its own (``cloudgraft simcloud``), which has its own options; of those here only
    the first four count, and ``idempotency`` and ``list_lag``, which must say what that process was told.
    """

    url: str = ""  # of a `cloudgraft simcloud`, such as http://127.0.0.1:9400
    timeout: timedelta = timedelta(seconds=30)  # how long one call to that process may take
    page_size: int = 250
    client: str = ""  # who we are, for the ledger; the cluster id in a machine's tags when it is not said
    state_file: Path | None = None  # the ledger of a cloud in this process; None keeps it in memory only
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
        """Refuses what can never work."""
        times = {"timeout": self.timeout, "listLag": self.list_lag, "bootTime": self.boot_time}
        for key, value in {**times, "deleteTime": self.delete_time}.items():
            if value < timedelta(0):
                raise InvalidArgumentError(f"{key} must not be negative")
        if not self.timeout:
            raise InvalidArgumentError("timeout must be more than zero")
        if not 1 <= self.page_size <= _MOST_PER_PAGE:
            raise InvalidArgumentError(f"pageSize must be between 1 and {_MOST_PER_PAGE}")
        if any(limit < 0 for limit in (self.quota or 0, *self.stock.values())):
            raise InvalidArgumentError("quota and stock must not be negative")
        if any(not price.is_finite() or price < 0 for price in self.prices.values()):
            raise InvalidArgumentError("a price must be a number, and not negative")
        if self.url:
            _check_url(self.url)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """The ``machine:`` section of a group. The kubelet of the simulated cloud makes its nodes look like this."""

    shape: str
    zone: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Taint] = ()

    def __post_init__(self) -> None:
        """Refuses what no node can have."""
        if not self.shape:
            raise InvalidArgumentError("shape must not be empty")
        for taint in self.taints:
            if not taint.key or taint.effect not in _EFFECTS:
                raise InvalidArgumentError(f"a taint needs a key, and one of the effects {', '.join(_EFFECTS)}")

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
        raise InvalidArgumentError(f"url is not an address; {example}") from None
    if not fine:
        raise InvalidArgumentError(f"url is not the address of a simulated cloud; {example}")
    if parts.path.strip("/") or parts.query or parts.fragment or parts.username or parts.password:
        raise InvalidArgumentError(f"url must be an address only, without path and credentials; {example}")
