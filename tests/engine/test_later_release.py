"""A journal in which a later release of the same schema has written: after a way back, this one reads it."""

from __future__ import annotations

import logging
from pathlib import Path

from cloudgraft.engine.groups.spec_json import group_from_json, group_to_json
from cloudgraft.engine.groups.specs import GroupSpec
from cloudgraft.engine.new_records import KINDS, level_of
from cloudgraft.engine.nodes.node_facts import Facts, facts_from_json, facts_to_json
from cloudgraft.sdk.types import NodeTemplate
from cloudgraft.store.journal import EventQuery
from cloudgraft.store.maintenance.check import check_journal
from cloudgraft.store.records import Change, Event, LearnedRecord
from tests.store.places import SqlitePlace

LATER = {"invented_later": {"a": [1]}}


async def test_an_event_of_a_kind_invented_later_is_read_and_shown(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path / "journal.db")
    journal = place.journal()
    await journal.open()
    told = Event(at=1.0, kind="invented_later", message="something happened", data=LATER)
    assert told.kind not in KINDS
    await journal.write(Change(events=(told,)))
    (event,) = await journal.events(EventQuery())
    await journal.close()
    assert (event.kind, event.data, level_of(event)) == (told.kind, told.data, logging.INFO)
    assert check_journal(place.database()).is_sound


def test_keys_invented_later_are_ignored() -> None:
    spec = GroupSpec(
        id="small", cloud="sim", min_size=0, max_size=3, machine={}, template=NodeTemplate(), labels={}, taints=()
    )
    assert group_from_json({**group_to_json(spec), **LATER}) == spec
    facts = Facts(labels={"a": "b"})
    learned = LearnedRecord(group="small", settings={}, since=0.0, facts={**facts_to_json(facts), **LATER})
    assert facts_from_json(learned) == facts
