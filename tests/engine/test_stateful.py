"""Random calls from two autoscalers, random chaos, random deaths, against a plain model.

In `make test` always the same lives; for others, and for more of them:

    CLOUDGRAFT_STATEFUL_EXAMPLES=1000 python -m pytest tests/engine/test_stateful.py

and ``--hypothesis-seed=N`` for one's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import tempfile
from collections import Counter
from collections.abc import Awaitable, Collection, Coroutine
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cloudgraft.engine.groups.specs import CloudSettings, EngineSettings, GuardLimits, RepairSettings
from cloudgraft.engine.machines.identity import Identity
from cloudgraft.engine.operations.scaling import ScaleOrder, scale
from cloudgraft.sdk.driver import Idempotency
from cloudgraft.sdk.errors import InvalidArgumentError, PreconditionError
from cloudgraft.sdk.types import NodeRef
from cloudgraft.simcloud.chaos import Odds
from cloudgraft.simcloud.options import SimulatedOptions
from cloudgraft.simcloud.records import LedgerEntry
from cloudgraft.store.records import Scope, State
from tests.engine.engine_rig import group
from tests.engine.killable_engine import Killed, MortalRig
from tests.engine.model import Call, Group, Listed, World, names_of
from tests.engine.troubles import TROUBLES

T = TypeVar("T")

EXAMPLES = int(os.environ.get("CLOUDGRAFT_STATEFUL_EXAMPLES", "0"))
STEPS = 40
pytestmark = pytest.mark.timeout(0 if EXAMPLES else 300)
GROUPS = ("a", "b")
MAX_SIZE = 5
FAILED_TTL = 100.0
ENGINE = EngineSettings(
    create_deadline=timedelta(seconds=100),
    failed_ttl=timedelta(seconds=FAILED_TTL),
    repair=RepairSettings(after=timedelta(seconds=60), max_share=0.5),
)
CLOUD = CloudSettings(name="sim", create_timeout=timedelta(seconds=30), backoff_max=timedelta(seconds=20), max_calls=3)
OTHERS = Identity("test", "zzzzzzzzzz")

CALLS = st.one_of(
    st.tuples(st.just("increase"), st.sampled_from(GROUPS), st.integers(1, 4)),
    st.tuples(st.just("delete"), st.sampled_from(GROUPS), st.integers(1, 31)),
    st.tuples(st.just("decrease"), st.sampled_from(GROUPS), st.integers(1, 4)),
)


class EngineLife(RuleBasedStateMachine):
    """One cluster with two groups; the steps are what can happen to it."""

    idempotency = Idempotency.TOKEN

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.directory = tempfile.TemporaryDirectory()
        dice = random.Random(7)  # names that are the same each time, so that a failure can be repeated
        self.patch = mock.patch("cloudgraft.engine.machines.identity.secrets.choice", dice.choice)
        self.patch.start()
        logging.disable(logging.CRITICAL)
        self.last: Call | None = None
        self.foreign: list[str] = []
        self.hung = self.lied = False
        self.orders = 0

    @initialize(lag=st.sampled_from([0, 15]), guard=st.sampled_from([None, 6]))
    def begin(self, lag: int, guard: int | None) -> None:
        options = SimulatedOptions(
            idempotency=self.idempotency,
            list_lag=timedelta(seconds=lag),
            boot_time=timedelta(seconds=20),
            delete_time=timedelta(seconds=5),
            page_size=3,
        )
        self.guard = guard
        self.rig = MortalRig(
            Path(self.directory.name),
            groups=tuple(group(id_, max_size=MAX_SIZE, min_size=int(id_ == "a")) for id_ in GROUPS),
            options=options,
            settings=replace(ENGINE, guards=GuardLimits(max_machines=guard)),
            cloud_settings=CLOUD,
            cluster_id="abcdefghij",
        )
        self.model = {id_: Group(id_, MAX_SIZE) for id_ in GROUPS}
        self.run(self.rig.start())
        self.run(self.rig.settle(3))
        self.run(self.rig.provider.refresh())

    def run(self, step: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(step)

    # -- what is there -------------------------------------------------------------------------------------------------

    def ledger(self) -> dict[str, LedgerEntry]:
        return {entry.provider_id: entry for entry in self.rig.cloud.ledger()}

    def ours(self) -> list[LedgerEntry]:
        return [entry for entry in self.rig.cloud.ledger() if entry.machine_id not in self.foreign]

    def listed(self, id_: str) -> list[Listed]:
        return names_of(self.run(self.rig.shown(id_)), self.ledger())

    def unsent(self, id_: str) -> int:
        return sum(
            one.counts and not one.has_failed and one.name not in self.rig.sent and not self.is_made(one.name)
            for one in self.listed(id_)
        )

    def is_made(self, name: str) -> bool:
        record = self.rig.engine.fleet.machines[name]
        return record.state is not State.REQUESTED

    # -- the autoscalers' calls ----------------------------------------------------------------------------------------

    def call(self, verb: str, id_: str, number: int) -> Call | None:
        """A call that an autoscaler could make now."""
        model = self.model[id_]
        if verb == "increase":
            delta = min(number, model.room())
            return Call(verb, id_, delta) if delta else None
        if verb == "decrease":
            return Call(verb, id_, number)
        listed = self.listed(id_)
        chosen = [one for place, one in enumerate(listed) if number >> (place % 5) & 1]
        return Call(verb, id_, ids=tuple(one.instance.id for one in chosen)) if chosen else None

    def made(self, call: Call) -> Awaitable[None]:
        provider = self.rig.provider
        match call.verb:
            case "increase":
                return provider.increase_size(call.group, call.count)
            case "decrease":
                return provider.decrease_target_size(call.group, -call.count)
        return provider.delete_nodes(call.group, [NodeRef(name=id_, provider_id=id_) for id_ in call.ids])

    def expect(self, call: Call, names: dict[str, str], unsent: int) -> None:
        model = self.model[call.group]
        match call.verb:
            case "increase":
                model.grow(call.count)
            case "decrease":
                model.give_back(call.count, unsent)
            case "delete":
                model.shrink([names[id_] for id_ in call.ids], self.rig.clock.now())

    @rule(what=CALLS)
    def one_autoscaler_calls(self, what: tuple[str, str, int]) -> None:
        call = self.call(*what)
        if call is not None:
            self.make(call)

    @precondition(lambda self: self.last is not None)
    @rule()
    def an_answer_got_lost_and_the_call_is_made_again(self) -> None:
        assert self.last is not None
        if self.last.verb != "increase" or self.model[self.last.group].room() >= self.last.count:
            self.make(self.last)

    def make(self, call: Call) -> None:
        names, unsent = self.names(), self.unsent(call.group)
        self.run(_awaited(self.made(call)))
        self.expect(call, names, unsent)
        self.last = call

    def names(self) -> dict[str, str]:
        """Every id that a machine of ours ever had, and its name."""
        known = {f"cloudgraft://sim/{name}": name for name in self.rig.engine.fleet.machines}
        return known | {entry.provider_id: entry.name for entry in self.ours()}

    @rule(one=CALLS, other=CALLS)
    def two_autoscalers_call_at_once(self, one: tuple[str, str, int], other: tuple[str, str, int]) -> None:
        """While their leadership changes hands (R89)."""
        first, second = self.call(*one), self.call(*other)
        if first is None or second is None or (first.group == second.group and "decrease" in (one[0], other[0])):
            return  # what may be given back would depend on who came first
        if first.group == second.group and first.count + second.count > self.model[first.group].room():
            return
        names, unsent = self.names(), {id_: self.unsent(id_) for id_ in GROUPS}
        self.run(_both(self.made(first), self.made(second)))
        for call in (first, second):
            self.expect(call, names, unsent[call.group])

    @rule(id_=st.sampled_from(GROUPS), number=st.integers(0, 31))
    def a_foreign_node_in_a_deletion_spoils_all_of_it(self, id_: str, number: int) -> None:
        call = self.call("delete", id_, number)
        nodes = [NodeRef(name=one, provider_id=one) for one in (call.ids if call else ())]
        with pytest.raises(InvalidArgumentError):
            self.run(self.rig.provider.delete_nodes(id_, [*nodes, NodeRef(name="x", provider_id="other://x")]))

    @rule(
        id_=st.sampled_from(GROUPS),
        change=st.sampled_from(["+1", "+2", "-1", "=2"]),
        death=st.sampled_from([None, False, True]),
    )
    def an_operator_orders_and_asks_again(self, id_: str, change: str, death: bool | None) -> None:
        """The answer is lost, perhaps with the process before or after its commit: the order is made once."""
        self.orders += 1
        order, key = ScaleOrder(group=id_, change=change, delete_ready=change == "-1"), f"order {self.orders}"
        before = {each: self.listed(each) for each in GROUPS}
        is_made = False
        if death is not None:
            self.rig.life.doom(0, is_after=death)
        try:
            with contextlib.suppress(Killed, PreconditionError):
                self.run(scale(self.rig.engine, order, key))
                is_made = True
        finally:
            self.rig.life.left = None
        if self.rig.life.is_over:
            self.run(self.rig.revive())
            is_made = bool(death)
        try:
            answer = self.run(scale(self.rig.engine, order, key))
        except PreconditionError:
            assert not is_made, "an order that was made is refused when it is repeated"
            self.compare(before)
            return
        assert answer["repeated"] is is_made
        names = {machine["name"] for machine in answer["machines"]}
        if answer["added"]:
            self.model[id_].grow(answer["added"])
        else:
            self.model[id_].shrink(names, self.rig.clock.now())
        self.compare({each: [one for one in seen if one.name not in names] for each, seen in before.items()}, names)

    @rule()
    def refresh(self) -> None:
        self.run(self.rig.provider.refresh())

    # -- what happens by itself ----------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0, 1, 10, 10, 10, 60]), turns=st.integers(1, 3))
    def time_passes(self, seconds: float, turns: int) -> None:
        for _ in range(turns):
            self.turn(seconds)

    def turn(self, seconds: float) -> None:
        before = {id_: self.listed(id_) for id_ in GROUPS}
        with contextlib.suppress(Killed):
            self.run(self.rig.turn(seconds))
        if self.rig.life.is_over:
            self.run(self.rig.revive())
        self.compare(before)

    def compare(self, before: dict[str, list[Listed]], ordered: Collection[str] = ()) -> None:
        """Holds what happened by itself against the model; machines that were ``ordered`` did not come by it."""
        dead = frozenset(entry.name for entry in self.ours() if entry.state in ("failed", "gone", "deleting"))
        world = World(now=self.rig.clock.now(), dead=dead, has_lied=self.lied, failed_ttl=FAILED_TTL)
        for id_, model in self.model.items():
            model.live(before[id_], [one for one in self.listed(id_) if one.name not in ordered], world)

    @rule(steps=st.integers(0, 8), is_after=st.booleans(), seconds=st.sampled_from([0, 10]))
    def the_process_dies_in_the_middle_of_a_turn(self, steps: int, is_after: bool, seconds: float) -> None:
        self.rig.life.doom(steps, is_after=is_after)
        try:
            self.turn(seconds)
        finally:
            self.rig.life.left = None

    @rule(is_clean=st.booleans())
    def the_process_is_restarted(self, is_clean: bool) -> None:
        before = {id_: self.listed(id_) for id_ in GROUPS}
        self.run(self.rig.restart() if is_clean else self.rig.revive())
        self.compare(before)  # a start looks at the cloud, too

    @rule(trouble=TROUBLES, more=st.one_of(st.just({}), TROUBLES), seed=st.integers(0, 99))
    def trouble_begins(self, trouble: dict[str, object], more: dict[str, object], seed: int) -> None:
        self.rig.chaos(seed=seed, **{**trouble, **more})
        self.hung = self.hung or bool(self.rig.cloud.chaos.hang)
        self.lied = self.lied or self.rig.cloud.chaos.short_lists != Odds()

    @rule()
    def trouble_ends(self) -> None:
        self.rig.chaos()

    @rule(number=st.integers(0, 9), how=st.sampled_from(["kill", "vanish", "lose_tags"]))
    def something_happens_to_a_machine(self, number: int, how: str) -> None:
        alive = [m for m in self.rig.cloud.machines() if m.machine_id not in self.foreign]
        if alive:
            getattr(self.rig.cloud, how)(alive[number % len(alive)].machine_id)

    @rule(id_=st.sampled_from(GROUPS), is_on=st.booleans())
    def a_group_is_paused_or_resumed(self, id_: str, is_on: bool) -> None:
        self.run(self.rig.pause(Scope.GROUP, id_) if is_on else self.rig.resume(Scope.GROUP, id_))

    @precondition(lambda self: len(self.foreign) < 2)
    @rule()
    def a_cluster_of_the_same_name_makes_a_machine(self) -> None:
        if self.rig.cloud.hangs_for():
            return
        self.rig.cloud._check_room = lambda *_: None  # type: ignore[method-assign]  # it has an account of its own
        name = OTHERS.new_name("a")
        self.foreign.append(self.rig.place(name, OTHERS.tags(name, "a")))
        del self.rig.cloud._check_room

    # -- what always holds ---------------------------------------------------------------------------------------------

    @invariant()
    def the_contract_holds(self) -> None:
        """T10."""
        provider, now = self.rig.provider, self.rig.clock.now()
        assert [g.id for g in self.run(_awaited(provider.node_groups()))] == list(GROUPS)
        every: list[str] = []
        for id_, model in self.model.items():
            listed = self.listed(id_)
            model.check(listed, self.run(provider.target_size(id_)), now)
            every += [one.instance.id for one in listed]
            for known in [one.instance.id for one in listed] + [f"cloudgraft://sim/{n}" for n in model.mapped(now)]:
                found = self.run(provider.node_group_for_node(NodeRef(name=known, provider_id=known)))
                assert found is not None
                assert found.id == id_
        assert len(every) == len(set(every))

    @invariant()
    def the_ledger_agrees(self) -> None:
        """Laws 2, 3 and 4."""
        ours, records = self.ours(), self.rig.engine.fleet.machines
        assert {entry.name for entry in ours} <= set(records), "intent before act"
        living = Counter(entry.name for entry in ours if entry.gone_at is None)
        is_mad = self.hung or self.lied  # an order may be later, or a list more wrong, than the driver declares
        may_double = self.idempotency is Idempotency.NONE and is_mad
        if not may_double:
            assert all(count == 1 for count in living.values()), "one machine per intent"
        if self.idempotency is Idempotency.TOKEN or not is_mad:
            # One that vanished before any list showed it was never there, for all that anybody can know.
            made = Counter(entry.name for entry in ours if entry.gone_at is None or entry.delete_asked_at is not None)
            assert all(count == 1 for count in made.values()), "never a second one"
        if self.guard is not None and not may_double:
            assert sum(living.values()) <= self.guard, "law 10"
        deleted = {entry.machine_id for entry in ours if entry.deletes}
        if not is_mad:
            assert not [
                r for r in records.values() if r.state in (State.BOOTING, State.RUNNING) and r.machine_id in deleted
            ], "nothing that is wanted is deleted"
        self.nothing_foreign_was_touched()

    def nothing_foreign_was_touched(self) -> None:
        entries = {entry.machine_id: entry for entry in self.rig.cloud.ledger()}
        assert all(entries[id_].deletes == 0 and entries[id_].gone_at is None for id_ in self.foreign)

    # -- the end -------------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        try:
            if hasattr(self, "rig"):
                self.calm_down()
        finally:
            if hasattr(self, "rig"):
                self.run(self.rig.engine.close())
                self.rig.cloud.close()
            logging.disable(logging.NOTSET)
            self.patch.stop()
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
            self.directory.cleanup()

    def calm_down(self) -> None:
        """When trouble ends and time passes, the cloud holds what the journal says, and nothing else."""
        self.trouble_ends()
        for id_ in GROUPS:
            self.a_group_is_paused_or_resumed(id_, is_on=False)
        for _ in range(30):
            self.turn(20)
        self.the_contract_holds()
        self.the_ledger_agrees()
        records = self.rig.engine.fleet.machines.values()
        alive = [m for m in self.rig.cloud.machines() if m.machine_id not in self.foreign]
        marked = [m.name for m in alive if m.tags]
        bare = {m.name for m in alive if not m.tags}  # law 4: what cannot be proven to be ours stays
        wanted = {r.name for r in records if r.state is State.RUNNING}
        assert len(marked) == len(set(marked)), "none doubled"
        assert set(marked) == wanted - bare, "none lost, none left"
        assert wanted <= set(marked) | bare
        assert {r.name for r in records if r.state not in (State.RUNNING, State.GONE)} <= bare


async def _awaited(call: Awaitable[T]) -> T:
    return await call


async def _both(one: Awaitable[None], other: Awaitable[None]) -> None:
    await asyncio.gather(one, other)


class LifeByToken(EngineLife):
    idempotency = Idempotency.TOKEN


class LifeByUniqueName(EngineLife):
    idempotency = Idempotency.UNIQUE_NAME


class LifeWithoutIdempotency(EngineLife):
    idempotency = Idempotency.NONE


def profile(examples: int) -> settings:
    return settings(
        max_examples=EXAMPLES or examples,
        stateful_step_count=STEPS,
        derandomize=not EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
        report_multiple_bugs=False,
    )


def case(machine: type[EngineLife], examples: int) -> Any:
    return type(machine.__name__, (machine.TestCase,), {"settings": profile(examples)})


TestLifeByUniqueName = case(LifeByUniqueName, 8)
TestLongLifeByToken = pytest.mark.thorough(case(LifeByToken, 60))
TestLongLifeByUniqueName = pytest.mark.thorough(case(LifeByUniqueName, 60))
TestLongLifeWithoutIdempotency = pytest.mark.thorough(case(LifeWithoutIdempotency, 60))
