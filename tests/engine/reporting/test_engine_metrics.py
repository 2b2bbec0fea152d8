"""What /metrics shows of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from cloudgraft.engine.groups.specs import EngineSettings, GuardLimits
from cloudgraft.engine.new_records import KINDS
from cloudgraft.engine.operations import pauses
from cloudgraft.engine.reporting.metrics import EngineMetrics
from cloudgraft.engine.reporting.webhook import Webhook, WebhookSettings
from cloudgraft.simcloud.chaos import Chaos, Faults, Odds
from cloudgraft.store.records import Scope
from tests.engine.clusters import MemoryCluster
from tests.engine.engine_rig import Rig, group
from tests.engine.scripted_cloud import Cloud, desired_state, stepped
from tests.engine.scripted_cloud import group as stepped_group


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    settings = EngineSettings(guards=GuardLimits(max_machines=3))
    made = Rig(tmp_path, groups=(group(min_size=1), group("broken", machine={"shape": "none"})), settings=settings)
    await made.start()
    yield made
    await made.engine.close()


@pytest.fixture
def registry(rig: Rig) -> CollectorRegistry:
    made = CollectorRegistry()
    EngineMetrics(rig.engine, made, webhook=Webhook(WebhookSettings(url="https://alerts.example/"), "test"))
    return made


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, labels)


async def test_groups_are_counted_by_state(rig: Rig, registry: CollectorRegistry) -> None:
    await rig.provider.increase_size("g", 4)
    await rig.settle(5)
    machines = {
        state: value(registry, "cloudgraft_machines", group="g", cloud="sim", state=state)
        for state in ("requested", "creating", "booting", "running", "failed", "deleting")
    }
    assert machines == {"requested": 0, "creating": 0, "booting": 0, "running": 3, "failed": 1, "deleting": 0}
    of_group = {"group": "g", "cloud": "sim"}
    sizes = [value(registry, f"cloudgraft_group_{size}_size", **of_group) for size in ("target", "min", "max")]
    assert sizes == [4, 1, 10]
    assert value(registry, "cloudgraft_group_left_out", group="broken") == 1
    assert value(registry, "cloudgraft_group_paused", **of_group) == 0
    await pauses.pause(rig.engine, Scope.GROUP, "g")
    assert value(registry, "cloudgraft_group_paused", **of_group) == 1
    assert value(registry, "cloudgraft_group_draining", **of_group) == 0


async def test_clouds_tell_health_and_how_calls_ended(rig: Rig, registry: CollectorRegistry) -> None:
    rig.cloud.set_chaos(Chaos(create=Faults(unavailable=Odds(next=1))))
    await rig.provider.increase_size("g", 1)
    await rig.settle(5)
    assert value(registry, "cloudgraft_cloud_calls_total", cloud="sim", call="create", result="ok") == 1
    assert value(registry, "cloudgraft_cloud_calls_total", cloud="sim", call="create", result="unavailable") == 1
    assert value(registry, "cloudgraft_cloud_up", cloud="sim") == 1
    assert value(registry, "cloudgraft_cloud_machines_listed", cloud="sim") == 1
    assert value(registry, "cloudgraft_cloud_calls_under_way", cloud="sim") == 0
    assert value(registry, "cloudgraft_orphans", cloud="sim", kind="unknown") == 0
    rig.cloud.set_chaos(Chaos(list=Faults(unavailable=Odds(chance=1.0))))
    await rig.settle(3)
    assert value(registry, "cloudgraft_cloud_up", cloud="sim") == 0
    assert value(registry, "cloudgraft_cloud_list_age_seconds", cloud="sim") == 30


async def test_nodes_are_counted_while_the_cluster_is_known(tmp_path: Path) -> None:
    cluster, registry = MemoryCluster(), CollectorRegistry()
    async with stepped(tmp_path, desired_state({"a": Cloud()}, stepped_group()), cluster=cluster) as case:
        EngineMetrics(case.engine, registry)
        ready, ill, _ = await case.grow(3)
        cluster.join(ready, ill)
        cluster.fall_ill(case.clock.now(), ill)
        await case.turns(1)
        of_group = {"group": "g", "cloud": "a"}
        assert [value(registry, "cloudgraft_nodes", **of_group, state=s) for s in ("ready", "unready")] == [1, 1]
        assert value(registry, "cloudgraft_cluster_known") == 1
        assert value(registry, "cloudgraft_group_drift", **of_group) == 0
        cluster.is_known = False
        assert value(registry, "cloudgraft_nodes", **of_group, state="ready") is None
        assert value(registry, "cloudgraft_cluster_known") == 0


async def test_guards_journal_leader_and_events_are_there(rig: Rig, registry: CollectorRegistry) -> None:
    await rig.provider.increase_size("g", 1)
    await rig.settle(5)
    assert value(registry, "cloudgraft_guard_used", cloud="", guard="maxMachines") == 1
    assert value(registry, "cloudgraft_guard_limit", cloud="", guard="maxMachines") == 3
    assert value(registry, "cloudgraft_journal_up") == 1
    assert value(registry, "cloudgraft_leader") == 1
    assert value(registry, "cloudgraft_cluster_known") is None
    assert value(registry, "cloudgraft_events_total", kind="increase") == 1
    assert value(registry, "cloudgraft_events_total", kind="breaker") == 0
    assert all(value(registry, "cloudgraft_events_total", kind=kind) is not None for kind in KINDS)
    assert value(registry, "cloudgraft_webhook_events_total", result="dropped") == 0


async def test_a_process_that_does_not_lead_has_metrics_too(tmp_path: Path) -> None:
    engine, registry = Rig(tmp_path).engine, CollectorRegistry()
    EngineMetrics(engine, registry)
    assert value(registry, "cloudgraft_leader") == 0
    await engine.close()


async def test_a_process_that_lost_its_leadership_reports_no_old_groups_and_clouds(
    rig: Rig, registry: CollectorRegistry
) -> None:
    of_group = {"group": "g", "cloud": "sim"}
    assert value(registry, "cloudgraft_group_target_size", **of_group) == 0
    await rig.engine.close()
    assert value(registry, "cloudgraft_leader") == 0
    assert value(registry, "cloudgraft_group_target_size", **of_group) is None
    assert value(registry, "cloudgraft_cloud_up", cloud="sim") is None


async def test_failed_machines_are_counted_by_the_class_that_the_autoscaler_gets(
    rig: Rig, registry: CollectorRegistry
) -> None:
    def failed(kind: str) -> float | None:
        return value(registry, "cloudgraft_failed_machines_total", **{"group": "g", "cloud": "sim", "class": kind})

    assert (failed("out_of_resources"), failed("other")) == (0, 0)  # else the first increase would not be seen
    rig.cloud.set_chaos(Chaos(quota=1))
    await rig.provider.increase_size("g", 2)
    await rig.settle(5)
    assert (failed("out_of_resources"), failed("other")) == (1, 0)


async def test_a_request_ages_until_its_machine_runs_and_its_time_is_measured(
    rig: Rig, registry: CollectorRegistry
) -> None:
    of_group = {"group": "g", "cloud": "sim"}
    assert value(registry, "cloudgraft_group_scale_up_seconds_count", **of_group) == 0
    await rig.provider.increase_size("g", 1)
    rig.clock.advance(100)
    assert value(registry, "cloudgraft_group_oldest_pending_seconds", **of_group) == pytest.approx(100, abs=1)
    await rig.settle(5)
    assert value(registry, "cloudgraft_group_oldest_pending_seconds", **of_group) == 0
    assert value(registry, "cloudgraft_group_scale_up_seconds_count", **of_group) == 1
    assert value(registry, "cloudgraft_group_scale_up_seconds_bucket", **of_group, le="90") == 0


async def test_calls_near_their_timeout_are_counted(rig: Rig, registry: CollectorRegistry) -> None:
    statistics = rig.engine.workers["sim"].caller.statistics
    near = {"cloud": "sim", "call": "create"}
    assert value(registry, "cloudgraft_cloud_calls_near_timeout_total", **near) == 0
    before = value(registry, "cloudgraft_cloud_call_duration_seconds_count", **near)
    assert before is not None
    statistics.add("create", "ok", 79, 100)
    statistics.add("create", "deadline", 100, 100)
    assert value(registry, "cloudgraft_cloud_calls_near_timeout_total", **near) == 1
    assert value(registry, "cloudgraft_cloud_call_duration_seconds_count", **near) == before + 2
    assert value(registry, "cloudgraft_cloud_call_duration_seconds_bucket", **near, le="60") == before


async def test_it_can_be_read_from_another_thread_while_everything_changes(
    rig: Rig, registry: CollectorRegistry
) -> None:
    async def change() -> None:
        for _ in range(5):
            await rig.provider.increase_size("g", 2)
            await rig.turn(10)

    changing = asyncio.create_task(change())
    while not changing.done():
        assert b"cloudgraft_machines" in await asyncio.to_thread(generate_latest, registry)
    await changing


def test_every_family_is_described_without_an_engine() -> None:
    families = EngineMetrics.families()
    assert len({family.name for family in families}) == len(families)
    assert all(family.documentation for family in families)
