"""Law 11 with remote clusters: the journal is gone, and slices, virtual nodes and reservations are still there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from cloudgraft.discovery.model import ReservationState
from cloudgraft.engine.groups.desired import CloudDeclaration, DesiredState, GroupDeclaration
from cloudgraft.engine.groups.specs import CloudSettings
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.sdk.driver import Driver
from cloudgraft.sdk.types import InstanceState, NodeRef
from tests.conditions import until
from tests.engine.scripted_cloud import live, lose_journal
from tests.liqo.liqo_world import World

GROUP = GroupDeclaration(id="remote", cloud="liqo", min_size=0, max_size=5, machine={"shape": "S"})


def _plan(world: World) -> DesiredState:
    """With a new driver: what the old one knew is lost with its process."""

    def make() -> Driver:
        return world.driver(look_every=timedelta(seconds=0.1))

    settings = CloudSettings(name="liqo", observe_every=timedelta(seconds=0.1))
    return DesiredState(cluster="t", clouds={"liqo": CloudDeclaration(settings=settings, make=make)}, groups=(GROUP,))


@asynccontextmanager
async def _engine(world: World) -> AsyncIterator[EngineProvider]:
    async with live(world.directory, _plan(world)) as engine:
        provider = EngineProvider(engine)

        async def is_served() -> bool:
            await provider.refresh()
            return bool(await provider.node_groups())

        await until(is_served, what="the group is served")
        yield provider


async def _running(provider: EngineProvider) -> set[str]:
    return {one.id for one in await provider.instances("remote") if one.state is InstanceState.RUNNING}


def _note_slices(world: World) -> list[str]:
    """Names of all slices that are made from now on."""
    made: list[str] = []
    world.consumer.admission.append(
        lambda resource, _, manifest: (
            made.append(manifest["metadata"]["name"]) if resource.kind == "ResourceSlice" else None
        )
    )
    return made


async def _grow(provider: EngineProvider, count: int) -> set[str]:
    await provider.increase_size("remote", count)

    async def all_run() -> bool:
        return len(await _running(provider)) == count

    await until(all_run, what="machines that run")
    return await _running(provider)


def _is_all_reserved(world: World) -> bool:
    """Something confirmed for each slice, in its cluster, and nothing else."""
    wanted = {f"{cluster}:consumer/{name}:confirmed" for cluster, name in (one.split("/") for one in world.slices())}
    return len(wanted) == len(world.market.reserved) and set(world.reserved()) == wanted


@pytest.mark.timeout(120)
@pytest.mark.thorough
async def test_law_11_slices_are_adopted_and_reserved_again_and_none_is_made_twice(world: World) -> None:
    made = _note_slices(world)
    async with _engine(world) as provider:
        ids = await _grow(provider, 3)
        await until(lambda: _is_all_reserved(world), what="a reservation each")
        await until(lambda: world.names("virtualnodes") == sorted(made), what="a virtual node each")
    lose_journal(world.directory)
    slices, nodes = world.slices(), world.names("virtualnodes")
    assert len(slices) == len(made) == 3
    # Discovery may have lost more than we have: one reservation is gone, one is held only, as when we died before the
    # confirmation. The third is as it was.
    first, second, _ = list(world.market.reserved)
    del world.market.reserved[first]
    world.market.reserved[second] = replace(world.market.reserved[second], state=ReservationState.HELD)

    async with _engine(world) as provider:
        assert await provider.target_size("remote") == 3, "before anything is served, all that is there is known"
        assert {one.id for one in await provider.instances("remote")} == ids

        async def all_run() -> bool:
            return await _running(provider) == ids

        await until(all_run, what="they run, as before")
        await until(lambda: _is_all_reserved(world), what="all is reserved again")
        assert (world.slices(), world.names("virtualnodes")) == (slices, nodes)
        assert len(made) == 3, "no slice was made a second time"

        gone = min(ids)
        await provider.delete_nodes("remote", [NodeRef(name=gone.removeprefix("liqo://"), provider_id=gone)])
        await until(lambda: len(world.slices()) == 2, what="what was adopted is deleted like any other")
        await until(lambda: _is_all_reserved(world), what="what it used is given back")
        assert await _running(provider) == ids - {gone}
        assert len(made) == 3
