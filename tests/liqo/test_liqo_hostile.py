"""Whatever a remote cluster says, or whoever speaks for it: that cluster is passed over, and no other suffers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cloudgraft.discovery.model import Reservation, Resources
from cloudgraft.liqo.manifests import TOKEN
from cloudgraft.liqo.peering.peering import Peering
from cloudgraft.liqo.placement import Candidate
from cloudgraft.sdk.errors import PreconditionError
from tests.kube_api import Fault, Request
from tests.liqo.liqo_world import World, spec, world_of

DEEP = 20_000  # brackets: more than any parser goes down


def _config(server: str) -> str:
    return json.dumps(
        {
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"token": "of-theirs"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    )


def _answers(world: World, cluster: str, plural: str, body: bytes, *, name: str = "") -> None:
    def matches(request: Request) -> bool:
        return (request.method, request.plural, request.name) == ("GET", plural, name)

    fault = Fault(matches, 200, body, {"Content-Type": "application/json"}, times=1_000_000)
    world.providers[cluster].faults.append(fault)


@pytest.mark.thorough
async def test_no_cluster_however_bad_keeps_a_machine_from_being_made_at_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """All of them are cheaper than the good one, and so all of them are tried."""
    async with world_of(tmp_path, "nested", "garbage", "blots", "good") as world:
        nest = b'{"metadata": {}, "items": [{"data": ' + b"[" * DEEP + b"]" * DEEP + b"}]}"
        _answers(world, "nested", "configmaps", nest)
        _answers(world, "garbage", "namespaces", b"<html>a login page</html>", name="liqo-tenant-consumer")
        blot = {"metadata": {"name": TOKEN, "namespace": "liqo-tenant-consumer"}, "data": {"token": "/////w=="}}
        _answers(world, "blots", "secrets", json.dumps(blot).encode(), name=TOKEN)
        bad = {
            "port": _config("https://h:99999"),
            "control": _config("https://h:6443/\x01"),
            "deep": "[" * DEEP,
            "locked": "",
        }
        for number, (name, text) in enumerate(bad.items(), 1):
            world.market.add(name, text, price=f"0.{number}")
        credentials = world.market.credentials

        async def some(cluster: str) -> str:
            if cluster == "locked":
                raise PreconditionError("the key of the vault is lost")
            return await credentials(cluster)

        monkeypatch.setattr(world.market, "credentials", some)
        async with world.started() as driver:
            await driver.create(spec())
        assert world.slices() == ["good/node-1"]
        assert world.reserved() == ["good:consumer/node-1:confirmed"]
    told = dict(re.findall(r"cluster (\S+) failed: (.*)", caplog.text))
    assert sorted(told) == sorted([*bad, "nested", "garbage", "blots"])
    assert "the key of the vault is lost" in told["locked"]
    assert "not one of a Kubernetes API" in told["garbage"]


@pytest.mark.thorough
async def test_no_slice_is_asked_for_where_what_was_held_has_ended_and_others_took_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To peer may take longer than anything is held: it is reserved again before the slice is made."""
    ensure = Peering.ensure

    async def slow(peering: Peering, candidate: Candidate) -> str:
        space = await ensure(peering, candidate)
        if candidate.cluster == "cluster-a":
            world.market.expire()
            whole = world.market.entries["cluster-a"].spec.capacity
            await world.market.reserve("cluster-a", whole, owner="other/m", seconds=60)
        return space

    monkeypatch.setattr(Peering, "ensure", slow)
    async with world.started() as driver:
        await driver.create(spec())
    assert world.slices() == ["cluster-b/node-1"]
    assert world.reserved() == ["cluster-a:other/m:held", "cluster-b:consumer/node-1:confirmed"]


@pytest.mark.thorough
async def test_what_an_earlier_try_held_is_held_anew_for_the_whole_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve, asked = world.market.reserve, list[tuple[str, float]]()

    async def noted(cluster: str, resources: Resources, *, owner: str, seconds: float) -> Reservation:
        asked.append((cluster, seconds))
        return await reserve(cluster, resources, owner=owner, seconds=seconds)

    async with world.started() as driver:
        sizes = driver._options.amounts()
        await reserve("cluster-b", sizes["S"], owner="consumer/node-1", seconds=1)
        monkeypatch.setattr(world.market, "reserve", noted)
        await driver.create(spec())
    assert world.slices() == ["cluster-b/node-1"]
    assert asked == [("cluster-b", 900.0)] * 2, "as it begins, and when it is peered"
