"""The index that is searched is the database's, whatever came, went, ended or was asked in between."""

from __future__ import annotations

import random
from datetime import UTC, datetime

from cloudgraft.discovery.model import Need, Strategy
from cloudgraft.discovery.search import offers
from cloudgraft.discovery.search.candidates import Columns, candidate_of
from cloudgraft.discovery.search.index import ClusterIndex
from cloudgraft.discovery.search.reservations import Record
from cloudgraft.discovery.store.statements import Delta
from tests.discovery.core.markets import NOON, STALE_AFTER, beat, prices, shape, spec


def _record(chance: random.Random, number: int, now: float) -> Record:
    ends = datetime.fromtimestamp(now + chance.randrange(1, 90), UTC)
    measured = chance.random() < 0.7
    return Record(
        spec=spec(f"c{number}", labels={"zone": chance.choice("xyz")}, cordoned=chance.random() < 0.1),
        revision=1,
        prices=[prices(str(chance.randrange(1, 4)), valid_to=chance.choice([None, ends]))],
        beat=beat(cpu=str(chance.randrange(1, 9)), memory="16Gi") if measured else None,
        beat_at=now - chance.randrange(0, 60) if measured else None,
    )


def test_a_picture_that_was_followed_finds_what_one_made_anew_finds() -> None:
    """Also when time passes or goes back, and when clusters were shown in between."""
    chance, followed, known, now = random.Random(7), ClusterIndex(STALE_AFTER), dict[str, Record](), NOON
    for seq in range(1, 300):
        records = [_record(chance, chance.randrange(20), now) for _ in range(chance.randrange(3))]
        removed = [f"c{chance.randrange(20)}"] if chance.random() < 0.3 else []
        removed = [id_ for id_ in removed if id_ not in {one.spec.id for one in records}]
        followed.apply(Delta(seq=seq, records=records, removed=removed), now)
        known = {id_: one for id_, one in known.items() if id_ not in removed}
        known.update((one.spec.id, one) for one in records)
        now += chance.choice([0, 0, 1, 5, 30, -40])
        if chance.random() < 0.5:
            followed.clusters(now)
        anew = Columns(candidate_of(one, now, STALE_AFTER) for one in known.values())
        for strategy in Strategy:
            need = Need(resources=shape(cpu="2"), strategy=strategy, label_selector="zone in (x, y)")
            assert offers.search(followed.columns(now), need) == offers.search(anew, need)
            assert offers.why_not(followed.columns(now).candidates, need) == offers.why_not(anew.candidates, need)


def test_only_so_many_columns_are_kept() -> None:
    """Whoever searches may name any resource: that must not fill the memory."""
    columns = Columns([candidate_of(Record(spec=spec("a"), revision=1), NOON, STALE_AFTER)])
    for number in range(200):
        assert list(columns.left(f"x.org/{number}")) == [-1.0]
    assert len(columns._columns) <= 64
    assert list(columns.left("cpu")) == [8e9]
