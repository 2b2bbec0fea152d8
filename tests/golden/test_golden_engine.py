"""An engine on the journal that an earlier release wrote: it serves what it served, and tells it in the same JSON."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cloudgraft.engine.nodes.learned_templates import LearnedTemplates
from cloudgraft.engine.reporting.report import make_report
from cloudgraft.engine.reporting.report_json import as_json, as_json_in_slices
from cloudgraft.nodemanager.feed import Feed
from cloudgraft.nodemanager.front.provider import _snapshot
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.store.records import Scope
from cloudgraft.store.schema import HEAD
from tests.engine.engine_rig import HandClock, Rig
from tests.golden.engine_forms import FACTS, FULL
from tests.golden.forms import text_of
from tests.store.golden_journal import CHANGE, EPOCH, make

_ANSWERS = Path(__file__).parent / "answers"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """Nothing is configured but the cloud: all groups are the journal's, and drain."""
    make(tmp_path, HEAD)
    made = Rig(tmp_path, groups=(), clock=HandClock(EPOCH + 60.0))
    await made.start()
    yield made
    await made.engine.close()


def _golden(name: str) -> object:
    return json.loads((_ANSWERS / name).read_text("utf-8"))


async def test_an_engine_starts_with_all_that_is_in_the_journal(rig: Rig) -> None:
    engine = rig.engine
    assert engine.identity.cluster_id == "abcdefghij"
    assert {record.name: record for record in CHANGE.machines} == dict(engine.fleet.machines)
    assert engine.fleet.groups["lab"].spec == FULL
    old = engine.fleet.groups["old"].spec
    assert (old.labels, old.template.capacity) == ({"pool": "old"}, {"cpu": Quantity("8")})
    assert set(engine.fleet.pauses) == {(Scope.GROUP, "lab"), (Scope.CLOUD, "sim")}
    assert LearnedTemplates(engine.fleet).of("lab", FULL.machine) == FACTS


async def test_the_status_is_told_in_the_same_json(rig: Rig) -> None:
    report = await make_report(rig.engine, with_machines=True)
    written = await as_json_in_slices(report)
    assert json.dumps(written) == json.dumps(as_json(report)) == json.dumps(_golden("status.json"))


async def test_a_snapshot_for_a_front_is_told_in_the_same_json(rig: Rig) -> None:
    feed = Feed(rig.engine)
    feed._manager = "0a1b2c3d"
    written, _ = await feed.snapshot()
    assert text_of(json.loads(written)) == text_of(_golden("snapshot.json"))


async def test_a_front_reads_what_the_autoscaler_is_told(rig: Rig) -> None:
    read = await _snapshot(_golden("snapshot.json"))
    for group in read.groups:
        id_ = group.group.id
        assert group.group in await rig.provider.node_groups()
        shown = [known.instance() for known in group.machines if not known.is_gone]
        assert shown == list(await rig.provider.instances(id_))
        assert group.options == rig.engine.fleet.groups[id_].spec.options
        assert group.price == rig.engine.fleet.groups[id_].spec.price
    assert [group.group.id for group in read.groups] == ["lab", "old"]
