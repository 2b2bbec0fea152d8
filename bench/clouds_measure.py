"""Interleaved lists of all clouds, and what an engine asks of one of them."""

from __future__ import annotations

import asyncio
import json
import math
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from bench.dock_processes import DockProcess, dock_process
from bench.engine_fleet import CLOUD, desired_state, group_names, make_seed
from bench.libvirt_host import missing as missing_libvirt
from bench.measure import Spread
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.groups.desired import DesiredState
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.sdk.types import InstanceState
from cloudgraft.simcloud.driver import SimulatedDriver
from cloudgraft.simcloud.options import SimulatedOptions
from cloudgraft.store.sql import SqlJournal

REFERENCE: Final = "simulated"
_NEEDS: Final = {"hetzner": "hcloud", "openstack": "openstack", "proxmox": "proxmoxer", "ec2": "boto3"}
_LOOK: Final = 0.05  # seconds between two looks whether all machines run


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudsPlan:
    """How much to measure."""

    machines: int = 5000
    rounds: int = 10
    observe_every: float = 1.0  # seconds
    seconds: float = 20.0  # for which an engine at rest is watched
    grow: int = 200
    max_calls: int = 8
    calls_per_second: float = 20.0
    slow: int = 600  # milliseconds that a create takes, where the number of calls at a time is the limit


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudRow:
    """The lists of one cloud. Times are of the driver's process: milliseconds per 1,000 machines, and per pass."""

    driver: str
    machines: int
    page: int  # machines that a page holds
    requests: Sequence[int]  # of each pass
    cpu_millis: float
    cpu_ratio: Spread  # to the reference in the same round
    wall_millis: float
    wall_ratio: Spread
    stall_millis: Spread  # the longest of a pass that its event loop was held up, by its own work

    @property
    def allowed(self) -> int:
        """Requests that a pass may need: its pages, an empty one behind them, and a second question."""
        return math.ceil(self.machines / self.page) + 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUp:
    """Many machines at once, as the cloud saw them come."""

    what: str
    creates: int
    most_under_way: int
    most_in_a_second: int
    passes: int
    shortest_pause: float  # between the beginnings of two passes
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCalls:
    """What one engine asked of a cloud of that many machines."""

    machines: int
    seconds: float  # at rest
    passes: int
    requests: int
    shortest_pause: float
    scale_ups: Sequence[ScaleUp]


def missing() -> dict[str, str]:
    """The clouds that cannot be measured here, and why."""
    found = {name: f"{module} is not installed" for name, module in _NEEDS.items() if find_spec(module) is None}
    why = missing_libvirt()
    return {**found, "libvirt": why} if why else found


# -- lists -------------------------------------------------------------------------------------------------------------


def measure_lists(plan: CloudsPlan, directory: Path) -> list[CloudRow]:
    """Every cloud that can be had lists its machines, in turn."""
    kinds = [kind for kind in (REFERENCE, *_NEEDS, "libvirt") if kind not in missing()]
    with ExitStack() as stack:
        servers: dict[str, DockProcess] = {}
        drivers: dict[str, DockProcess] = {}
        for kind in kinds:
            place = directory / kind
            place.mkdir()
            servers[kind] = stack.enter_context(dock_process("clouds_server", kind, str(plan.machines), str(place)))
            options = json.dumps(servers[kind].first["options"])
            drivers[kind] = stack.enter_context(dock_process("clouds_driver", options))
        turns = [kinds[number % len(kinds) :] + kinds[: number % len(kinds)] for number in range(plan.rounds)]
        rounds = [_round(turn, servers, drivers, plan) for turn in turns]
        return [_row(kind, int(servers[kind].first["page"]), rounds, plan) for kind in kinds]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    requests: int
    cpu: float
    wall: float
    stall: float


def _round(
    kinds: Sequence[str], servers: dict[str, DockProcess], drivers: dict[str, DockProcess], plan: CloudsPlan
) -> dict[str, _Pass]:
    found = {}
    for kind in kinds:
        servers[kind].do()  # what was asked before does not count
        told = drivers[kind].do()
        if told["ours"] != plan.machines:
            raise RuntimeError(f"{kind}: {told['ours']} machines were listed, not {plan.machines}")
        requests = servers[kind].do()["requests"]
        found[kind] = _Pass(requests=requests, cpu=told["cpu"], wall=told["wall"], stall=told["own_stall"])
    return found


def _row(kind: str, page: int, rounds: Sequence[dict[str, _Pass]], plan: CloudsPlan) -> CloudRow:
    passes, others = [each[kind] for each in rounds], [each[REFERENCE] for each in rounds]
    pairs = list(zip(passes, others, strict=True))
    return CloudRow(
        driver=kind,
        machines=plan.machines,
        page=page,
        requests=[one.requests for one in passes],
        cpu_millis=statistics.median(one.cpu for one in passes) * 1e6 / plan.machines,
        cpu_ratio=_spread([one.cpu / other.cpu for one, other in pairs]),
        wall_millis=statistics.median(one.wall for one in passes) * 1e3,
        wall_ratio=_spread([one.wall / other.wall for one, other in pairs]),
        stall_millis=_spread([one.stall * 1e3 for one in passes]),
    )


def _spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


# -- the engine --------------------------------------------------------------------------------------------------------


async def measure_engine(plan: CloudsPlan, directory: Path) -> EngineCalls:
    """An engine at rest, and at two scale-ups: one held back by the rate, one by the number of calls at a time."""
    seed = await make_seed(directory / "seed", machines=plan.machines, groups=1, events=0, in_cloud=True)
    with dock_process("clouds_server", REFERENCE, str(plan.machines), str(seed.directory)) as cloud:
        engine = Engine(_desired_state(cloud.first["options"]["url"], plan), SqlJournal.sqlite(seed.journal))
        provider = EngineProvider(engine)
        await provider.start()
        try:
            await engine.workers[CLOUD].looked.wait()
            clock = asyncio.get_running_loop().time
            began = clock()  # before the count begins: a slow machine must not look like a greedy engine
            await _told(cloud)
            await asyncio.sleep(plan.seconds)
            rest = await _told(cloud)
            watched = clock() - began
            scale_ups = [
                await _scale_up("quick creates", provider, cloud, plan, latency=0),
                await _scale_up("slow creates", provider, cloud, plan, latency=plan.slow),
            ]
        finally:
            await provider.close()
    return EngineCalls(
        machines=plan.machines,
        seconds=watched,
        passes=rest["passes"],
        requests=rest["requests"],
        shortest_pause=rest["shortest_pause"],
        scale_ups=scale_ups,
    )


def _desired_state(url: str, plan: CloudsPlan) -> DesiredState:
    made = desired_state(1, lambda: SimulatedDriver(SimulatedOptions(url=url)), timedelta(seconds=plan.observe_every))
    declared = made.clouds[CLOUD]
    settings = replace(declared.settings, max_calls=plan.max_calls, calls_per_second=plan.calls_per_second)
    return replace(made, clouds={CLOUD: replace(declared, settings=settings)})


async def _told(cloud: DockProcess, **command: int) -> dict[str, Any]:
    """What the cloud saw since the last time; the engine works on meanwhile."""
    return await asyncio.to_thread(cloud.do, **command)


async def _scale_up(
    what: str, provider: EngineProvider, cloud: DockProcess, plan: CloudsPlan, *, latency: int
) -> ScaleUp:
    (group,) = group_names(1)
    await _told(cloud, latency=latency)
    began = asyncio.get_running_loop().time()
    wanted = await provider.target_size(group) + plan.grow
    await provider.increase_size(group, plan.grow)
    while await _running(provider, group) < wanted:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(_LOOK)
    told = await _told(cloud)
    return ScaleUp(
        what=what,
        creates=told["creates"],
        most_under_way=told["most_under_way"],
        most_in_a_second=told["most_in_a_second"],
        passes=told["passes"],
        shortest_pause=told["shortest_pause"],
        seconds=asyncio.get_running_loop().time() - began,
    )


async def _running(provider: EngineProvider, group: str) -> int:
    return sum(one.state is InstanceState.RUNNING for one in await provider.instances(group))
