"""A cloud that gives the ids of its machines away again, as Proxmox does with the lowest free number."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cloudgraft.engine.groups.templates import TemplateDeclaration
from cloudgraft.sdk.driver import Driver, DriverTraits, Idempotency, Machine, MachineSpec, MachineState, Ownership
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import InstanceState, NodeRef
from cloudgraft.store.records import State
from tests.engine.engine_rig import HandClock, Rig, fake, group, real, running
from tests.engine.test_contract_nodes import group_of


@dataclass
class Rack(Driver):
    """Numbered places. A machine is there at once and gone at once, and the lowest free place is the next one's."""

    clock: HandClock
    traits: DriverTraits = field(default_factory=DriverTraits)
    places: dict[int, Machine] = field(default_factory=dict)
    deleted: list[tuple[str, str]] = field(default_factory=list)  # what was asked for, and who was there

    async def create(self, spec: MachineSpec) -> Machine:
        place = next(number for number in range(100, 1000) if number not in self.places)
        machine = Machine(
            name=spec.name,
            machine_id=str(place),
            provider_id=f"rack://{place}",
            state=MachineState.RUNNING,
            tags=spec.tags,
            created_at=datetime.fromtimestamp(self.clock.now(), UTC),
        )
        self.places[place] = machine
        return machine

    async def delete(self, machine: Machine) -> None:
        there = self.places.pop(int(machine.machine_id), None)
        self.deleted.append((machine.name, there.name if there else ""))

    async def list(self) -> Sequence[Machine]:
        return list(self.places.values())


class RackRig(Rig):
    """One rack, whichever engine looks after it."""

    traits = DriverTraits(idempotency=Idempotency.UNIQUE_NAME)

    def __post_init__(self) -> None:
        self.rack = Rack(self.clock, self.traits)
        super().__post_init__()

    def driver(self) -> Driver:
        return self.rack


class NamesOnlyRig(RackRig):
    traits = DriverTraits(idempotency=Idempotency.UNIQUE_NAME, ownership=Ownership.NAME)


TEMPLATE = TemplateDeclaration(capacity={"cpu": Quantity("2"), "memory": Quantity("4Gi")})


@pytest.fixture(params=[RackRig, NamesOnlyRig], ids=["by tags", "by name"])
async def rig(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[RackRig]:
    made: RackRig = request.param(tmp_path, groups=(group("g", machine={}, template=TEMPLATE),))
    async with running(made):
        yield made


async def grown(rig: RackRig, count: int) -> None:
    await rig.provider.increase_size("g", count)
    await rig.settle(3)


async def test_the_next_machine_under_an_id_is_not_deleted_in_place_of_the_last(rig: RackRig) -> None:
    await grown(rig, 2)
    for _ in range(5):
        victim = next(i for i in await rig.shown() if i.id == "rack://100")
        await rig.provider.delete_nodes("g", [real(victim)])
        await rig.provider.increase_size("g", 1)  # it gets the place as soon as that is free
        for _ in range(6):
            await rig.turn(10)
            shown = await rig.shown()
            ids = [i.id for i in shown]
            assert len(ids) == len(set(ids)), "R31"
            assert sum(i.state is not InstanceState.DELETING for i in shown) == 2
        assert {i.id for i in await rig.shown()} == {"rack://100", "rack://101"}
    assert all(asked == there for asked, there in rig.rack.deleted), "each was deleted in its own name"
    assert len(rig.rack.deleted) == 5


async def test_an_id_means_the_machine_that_has_it_now_also_after_a_restart(rig: RackRig) -> None:
    await grown(rig, 1)
    (first,) = await rig.shown()
    (old,) = rig.records()
    await rig.provider.delete_nodes("g", [real(first)])
    await rig.turn()
    await grown(rig, 1)
    for _ in range(2):
        (new,) = rig.records(State.RUNNING)
        assert rig.engine.fleet.find(real(first)) == new
        assert rig.engine.fleet.find(NodeRef(name=old.name)) == rig.engine.fleet.machines[old.name]
        assert await group_of(rig, real(first)) == "g"
        await rig.restart()
    await rig.provider.delete_nodes("g", [real(first)])
    assert await rig.provider.target_size("g") == 0
    await rig.settle(5)
    assert rig.rack.places == {}


async def test_a_stranger_under_the_id_of_a_machine_of_ours_is_never_touched(rig: RackRig) -> None:
    """Ours vanished, and somebody made a machine of his own before the next list."""
    await grown(rig, 1)
    (instance,) = await rig.shown()
    rig.rack.places[100] = Machine(name="theirs", machine_id="100", provider_id="rack://100")
    await rig.provider.delete_nodes("g", [fake(instance)])
    await rig.settle(30)
    assert rig.rack.places[100].name == "theirs"
    assert rig.rack.deleted == []
