"""Two clouds behind one server, of which one stops to answer; called by gRPC, as by the autoscaler."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cloudgraft.client import CloudConfig, RemoteProvider
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.groups.desired import CloudDeclaration, DesiredState, GroupDeclaration
from cloudgraft.engine.groups.specs import CloudSettings
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.sdk.types import AutoscalingOptions, Instance, InstanceState, NodeRef
from cloudgraft.simcloud.driver import SimulatedDriver
from cloudgraft.store.records import State
from cloudgraft.store.sql import SqlJournal
from cloudgraft.testing import serving
from tests.conditions import until
from tests.crash.lasting_cloud import LastingCloud
from tests.crash.setting import Variant, driver_options

_FAST = timedelta(milliseconds=300)
_SOON, _NEVER = timedelta(seconds=1), timedelta(minutes=1)  # one of the two is to be found hanging


@dataclass(slots=True)
class Scene:
    """The clouds ``left`` and ``right``, each with a group of its name."""

    clouds: dict[str, LastingCloud]
    engine: Engine
    provider: RemoteProvider
    seconds: list[float] = field(default_factory=list)  # how long each round of calls took, per call

    async def every_call(self) -> None:
        """Makes every call that the autoscaler makes in its loop."""
        began = time.monotonic()
        calls, now = 0, datetime.now(UTC)
        await self.provider.refresh()
        for group in await self.provider.node_groups():
            await self.provider.target_size(group.id)
            await self.provider.template(group.id)
            await self.provider.options(group.id, AutoscalingOptions())
            node = NodeRef(name=f"template-node-for-{group.id}-1")
            await self.provider.node_price(node, now, now + timedelta(hours=1))
            instances = await self.provider.instances(group.id)
            for instance in instances:
                await self.provider.node_group_for_node(as_node(instance))
            calls += 5 + len(instances)
        await self.provider.gpu_label()
        self.seconds.append((time.monotonic() - began) / (calls + 3))

    async def running(self, group: str) -> list[Instance]:
        return [i for i in await self.provider.instances(group) if i.state is InstanceState.RUNNING]

    async def wait_for(self, group: str, count: int) -> None:
        """Until so many machines run in it."""

        async def are_there() -> bool:
            return len(await self.running(group)) == count

        await until(are_there, what=f"{count} machines run in {group}")

    def at_work(self, cloud: str) -> dict[str, str]:
        """Machines that the journal counts on: machine id -> name."""
        records = self.engine.fleet.in_cloud(cloud).values()
        return {r.machine_id: r.name for r in records if r.state in (State.BOOTING, State.RUNNING)}

    def live(self, cloud: str) -> dict[str, str]:
        """Machines that the cloud has."""
        return {entry.machine_id: entry.name for entry in self.clouds[cloud].live()}

    def is_open(self, cloud: str) -> bool:
        """Whether something about a machine of this cloud is not settled yet."""
        unsettled = (State.REQUESTED, State.CREATING, State.BOOTING, State.DELETING)
        return any(record.state in unsettled for record in self.engine.fleet.in_cloud(cloud).values())


@asynccontextmanager
async def scene(directory: Path, variant: Variant) -> AsyncIterator[Scene]:
    """Both clouds, the engine and the server."""
    async with AsyncExitStack() as stack:
        clouds: dict[str, LastingCloud] = {}
        for name in ("left", "right"):
            (directory / name).mkdir(parents=True)
            clouds[name] = stack.enter_context(LastingCloud(directory / name, variant))
        journal = SqlJournal.sqlite(directory / "journal.db")
        engine = Engine(_desired_state(clouds, variant), journal)
        served = await stack.enter_async_context(serving(EngineProvider(engine)))
        provider = RemoteProvider.connect(CloudConfig.parse(served.cloud_config))
        stack.push_async_callback(provider.close)
        yield Scene(clouds, engine, provider)


async def hang_for(directory: Path, seconds: float) -> list[float]:
    """One cloud hangs for that long while machines are asked for; how long a call took, in the mean of each round.

    Raises AssertionError when anything is lost, or when the other cloud does not go on.
    """
    async with scene(directory, Variant()) as it:
        await it.provider.increase_size("left", 2)
        await it.wait_for("left", 2)
        it.clouds["left"].chaos(hang=seconds)
        await it.provider.increase_size("left", 2)
        size = 0
        while it.clouds["left"].cloud.hangs_for():
            await it.every_call()
            if size < 10:
                size += 1
                await it.provider.increase_size("right", 1)
                await it.wait_for("right", size)
            await asyncio.sleep(0.05)
        await until(lambda: not it.is_open("left") and it.live("left") == it.at_work("left"), what="it settles")
        failed = sum(bool(instance.error) for instance in await it.provider.instances("left"))
        if len(it.live("left")) + failed != 4 or size < 10:
            raise AssertionError(f"left has {it.live('left')} and {failed} that failed; right came to {size}")
        return it.seconds


def as_node(instance: Instance) -> NodeRef:
    """The node that the autoscaler makes up for an instance."""
    return NodeRef(name=instance.id, provider_id=instance.id)


def _desired_state(clouds: dict[str, LastingCloud], variant: Variant) -> DesiredState:
    declared = {}
    for name, sky in clouds.items():
        options = driver_options(sky.url, variant)
        settings = CloudSettings(
            name=name,
            observe_every=_FAST,
            list_timeout=_SOON if name == "left" else _NEVER,
            create_timeout=_FAST,
            delete_timeout=_FAST,
            backoff_initial=_FAST / 10,
            backoff_max=_FAST,
        )
        declared[name] = CloudDeclaration(settings=settings, make=lambda o=options: SimulatedDriver(o))  # type: ignore[misc]  # mypy knows no default of a lambda
    return DesiredState(cluster="test", clouds=declared, groups=_groups(list(declared)))


def _groups(names: Sequence[str]) -> list[GroupDeclaration]:
    return [GroupDeclaration(id=n, cloud=n, min_size=0, max_size=20, machine={"shape": "small"}) for n in names]
