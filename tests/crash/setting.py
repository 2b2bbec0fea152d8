"""What the process under test is configured with: one cloud, a few groups, and very short times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from cloudgraft.engine.groups.desired import CloudDeclaration, DesiredState, GroupDeclaration
from cloudgraft.engine.groups.specs import CloudSettings, EngineSettings, RepairSettings
from cloudgraft.sdk.driver import Driver, Idempotency
from cloudgraft.simcloud.options import SimulatedOptions
from tests.crash.points import Point

CLUSTER = "crash"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What kind of cloud it is."""

    idempotency: Idempotency = Idempotency.TOKEN
    list_lag: float = 0.0  # seconds
    create_timeout: float = 0.5  # seconds

    def __str__(self) -> str:
        lag = f", lists {self.list_lag * 1000:g} ms late" if self.list_lag else ""
        return f"idempotency {self.idempotency.value}{lag}"

    @property
    def settling(self) -> float:
        """How long after a call of unknown outcome no second one may be made: in seconds."""
        is_waiting = self.idempotency is Idempotency.NONE
        return self.list_lag + (self.create_timeout if is_waiting else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """How to start the process under test."""

    directory: Path
    url: str  # of the simulated cloud
    variant: Variant
    config: int = 0  # an index into GROUPS
    phase: str = ""
    point: Point | None = None  # where it is to be killed
    fault: str = ""  # a name of tests.crash.faults

    @property
    def journal(self) -> Path:
        return self.directory / "journal.db"


def _group(id_: str, shape: str, *, least: int = 0, most: int = 10) -> GroupDeclaration:
    return GroupDeclaration(id=id_, cloud="sim", min_size=least, max_size=most, machine={"shape": shape})


# The configuration file, before and after it is changed.
_BIG, _CORE = _group("big", "large", most=5), _group("core", "small", least=1)
GROUPS = (
    (_group("web", "small"), _BIG, _group("old", "medium"), _CORE),
    (_group("web", "small", most=12), _BIG, _CORE, _group("new", "medium")),
)
_SECOND = timedelta(seconds=1)


def driver_options(url: str, variant: Variant) -> SimulatedOptions:
    """How the driver reaches the simulated cloud."""
    return SimulatedOptions(
        url=url,
        timeout=5 * _SECOND,
        idempotency=variant.idempotency,
        list_lag=variant.list_lag * _SECOND,
        page_size=10,
    )


def desired_state(order: Order, make: Callable[[], Driver]) -> DesiredState:
    """The whole configuration."""
    settings = CloudSettings(
        name="sim",
        observe_every=_SECOND / 10,
        list_timeout=5 * _SECOND,
        create_timeout=order.variant.create_timeout * _SECOND,
        delete_timeout=_SECOND / 2,
        max_calls=2,
        backoff_initial=_SECOND / 100,
        backoff_max=_SECOND / 10,
    )
    return DesiredState(
        cluster=CLUSTER,
        clouds={"sim": CloudDeclaration(settings=settings, make=make)},
        groups=GROUPS[order.config],
        settings=EngineSettings(repair=RepairSettings(after=_SECOND / 20), node_memory=timedelta(days=1)),
    )
