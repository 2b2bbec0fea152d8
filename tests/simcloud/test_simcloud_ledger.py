"""The simulated cloud's books: what a restart finds, and what is said when they cannot be kept."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.sdk import CloudgraftError, PreconditionError, Taint, UnavailableError
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.ledger import Ledger
from cloudgraft.simcloud.options import MachineSettings, ShapeOptions, SimulatedOptions
from cloudgraft.simcloud.records import Order
from tests.simcloud.sim_world import World, an_order


def test_a_restart_finds_every_machine_where_it_should_be_by_then(tmp_path: Path) -> None:
    world = World(state_file=tmp_path / "l.db", boot_time=timedelta(seconds=30), delete_time=timedelta(seconds=30))
    world.chaos(dies={"after": 2, "next": 1}, diesAfter=45)
    settings = MachineSettings(
        shape="gpu", zone="z", labels={"a": "b"}, annotations={"c": "d"}, taints=(Taint(key="k", value="v"),)
    )
    world.cloud.create(Order(name="full", token="t", settings=settings, tags={"x": "y"}, client="me"))
    going = world.create("going")
    world.create("dying")
    world.cloud.delete(going, client="you")
    before = world.cloud.ledger()
    world.cloud.close()

    world.clock.pass_(20)
    world.cloud = world.open()
    assert [replace(e, cost=b.cost) for e, b in zip(world.cloud.ledger(), before, strict=True)] == before
    assert world.states() == {"full": "pending", "going": "deleting", "dying": "pending"}
    assert world.cloud.machines()[0].settings == settings
    world.clock.pass_(10)
    assert world.states() == {"full": "running", "dying": "running"}
    world.cloud.close()
    world.clock.pass_(3600)
    world.cloud = world.open()
    assert world.states() == {"full": "running", "dying": "failed"}
    assert [entry.state for entry in world.cloud.ledger()] == ["running", "gone", "failed"]
    world.cloud.close()


def test_ids_are_never_used_again_not_even_after_a_restart_or_in_another_cloud(tmp_path: Path) -> None:
    seen = set()
    for path in (tmp_path / "one.db", tmp_path / "two.db"):
        for start in range(2):
            world = World(state_file=path, delete_time=timedelta(0))
            for number in range(3):
                machine = world.create(f"m-{start}-{number}")
                world.cloud.delete(machine)
                seen.add(machine)
            world.cloud.close()
    seen.add(World().create())
    assert len(seen) == 13


def test_a_machine_keeps_its_shape_and_price_when_the_options_no_longer_have_it(tmp_path: Path) -> None:
    world = World(state_file=tmp_path / "l.db", shapes={"odd": ShapeOptions(cpu=3, memory="3Gi")})
    world.create("m-1", "odd")
    world.cloud.close()
    cloud = SimulatedCloud(SimulatedOptions(state_file=tmp_path / "l.db"), clock=world.clock)
    assert str(cloud.machines()[0].shape.capacity["cpu"]) == "3"
    cloud.close()


def test_a_second_cloud_on_the_same_file_is_refused(tmp_path: Path) -> None:
    world = World(state_file=tmp_path / "l.db")
    with pytest.raises(PreconditionError, match="in use by another simulated cloud"):
        world.open()
    world.cloud.close()
    world.open().close()


def test_a_file_that_is_no_ledger_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    path.write_bytes(b"my diary, which is not a database at all" * 100)
    before = path.read_bytes()
    with pytest.raises(PreconditionError, match="is not a ledger"):
        World(state_file=path)
    assert path.read_bytes() == before


def test_a_ledger_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    World(state_file=path).cloud.close()
    db = sqlite3.connect(path)
    db.execute("UPDATE about SET value = '99' WHERE key = 'format'")
    db.commit()
    db.close()
    with pytest.raises(PreconditionError, match="format 99"):
        World(state_file=path)


def test_a_directory_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="cannot be opened"):
        World(state_file=tmp_path / "nowhere" / "l.db")


def test_when_the_disk_is_full_nothing_has_happened(tmp_path: Path) -> None:
    world = World(state_file=tmp_path / "l.db")
    machine = world.create("m-0")
    (pages,) = world.cloud._ledger._db.execute("PRAGMA page_count").fetchone()
    world.cloud._ledger._db.execute(f"PRAGMA max_page_count = {pages}").fetchall()

    def create_many() -> None:
        for number in range(1, 1000):
            world.cloud.create(an_order(f"m-{number}", tags={"padding": "x" * 200}))

    with pytest.raises(UnavailableError, match="full"):
        create_many()
    made = [entry.name for entry in world.cloud.ledger()]
    assert list(world.states()) == made
    world.cloud._ledger._db.execute("PRAGMA max_page_count = 1000000").fetchall()
    assert world.create(f"m-{len(made)}").endswith(f"-{len(made) + 1:06d}")  # no number is left out
    world.cloud.delete(machine)
    world.cloud.close()


def test_a_closed_cloud_says_so() -> None:
    world = World()
    world.cloud.close()
    with pytest.raises(UnavailableError, match="closed"):
        world.create()


def test_only_its_owner_reads_the_ledger_of_a_simulated_cloud(tmp_path: Path) -> None:
    Ledger(tmp_path / "cloud.db", ident="x").close()
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())


def test_a_second_ledger_of_a_file_takes_no_lock_from_the_first(tmp_path: Path) -> None:
    """POSIX ends all locks of a process on a file when it closes any descriptor of it."""
    path = tmp_path / "l.db"
    first = Ledger(path, ident="a")
    with pytest.raises(CloudgraftError):
        Ledger(path, ident="a")
    write = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"
    other = subprocess.run([sys.executable, "-c", write, path], stderr=subprocess.PIPE, text=True, check=False)
    assert "database is locked" in other.stderr
    first.close()
