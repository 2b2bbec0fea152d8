"""A list is bounded in entries, bytes and time, in the task that reads it and in its threads."""

from __future__ import annotations

import asyncio
import itertools
import threading

import pytest

from cloudgraft.sdk import BlockingDriver, Machine, MachineSpec
from cloudgraft.sdk.blocking import as_driver
from cloudgraft.sdk.common.event_loop import BlockingPool
from cloudgraft.sdk.errors import DeadlineError, InternalError, UnavailableError
from cloudgraft.sdk.list_budget import ListBudget, bounded, current_budget, spend_bytes
from tests.conditions import until


def test_a_list_without_end_is_an_error_and_not_a_shorter_list() -> None:
    with ListBudget(machines=1000).applied(), pytest.raises(InternalError, match="more than 1000 entries"):
        list(bounded(itertools.count()))


def test_a_list_at_its_bound_is_whole() -> None:
    with ListBudget(machines=1000).applied():
        assert len(list(bounded(range(1000)))) == 1000


def test_bytes_are_counted_over_all_pages() -> None:
    with ListBudget(size=1000).applied():
        spend_bytes(600)
        with pytest.raises(InternalError, match="maxListBytes"):
            spend_bytes(600)


def test_bytes_of_other_calls_are_not_counted() -> None:
    spend_bytes(1 << 40)


def test_a_list_ends_when_its_time_is_over() -> None:
    now = 0.0
    budget = ListBudget(seconds=10, clock=lambda: now)
    with budget.applied():
        pages = bounded(itertools.count())
        next(pages)
        now = 11.0
        with pytest.raises(DeadlineError):
            list(pages)


def test_a_budget_ends_with_the_call_that_it_is_for() -> None:
    with ListBudget().applied():
        budget = current_budget()
        budget.check_time()
    with pytest.raises(DeadlineError):
        budget.spend(0)


async def test_threads_spend_from_the_budget_of_their_caller() -> None:
    pool = BlockingPool("test", threads=1)
    with ListBudget(size=10).applied(), pytest.raises(InternalError):
        await pool.run(spend_bytes, 11)
    await pool.run(spend_bytes, 11)  # another call, which has none
    pool.close()


class Endless(BlockingDriver):
    """A cloud whose list never ends."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.ended = threading.Event()
        self.blocked = threading.Event()
        self.blocking = 0

    def list(self) -> list[Machine]:
        self.begun.set()
        try:
            return [Machine(name=f"m{page}", machine_id=f"i{page}") for page in bounded(itertools.count())]
        finally:
            self.ended.set()

    def create(self, spec: MachineSpec) -> Machine:
        return Machine(name=spec.name, machine_id="made")

    def delete(self, machine: Machine) -> None: ...


async def test_a_thread_stops_reading_once_its_list_was_given_up() -> None:
    inner = Endless()
    driver = as_driver(inner)
    with ListBudget(machines=1 << 60, seconds=600).applied():
        listing = asyncio.ensure_future(driver.list())
        await until(inner.begun.is_set)
        listing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listing
    await until(inner.ended.is_set, what="the thread has ended")
    await driver.close()


class Hanging(Endless):
    def list(self) -> list[Machine]:
        self.blocking += 1
        self.blocked.wait(60)
        return []


async def test_lists_that_hang_take_no_thread_from_changes() -> None:
    inner = Hanging()
    driver = as_driver(inner)
    hanging = [asyncio.ensure_future(driver.list()) for _ in range(2)]
    await until(lambda: inner.blocking == 2)
    for listing in hanging:
        listing.cancel()
    await asyncio.wait(hanging)
    refused = []
    for _ in range(20):
        try:
            await asyncio.wait_for(driver.list(), 0.01)
        except TimeoutError:
            continue
        except UnavailableError as error:
            refused.append(error.message)
    assert all("threads are busy" in message for message in refused)
    spec = MachineSpec(name="m", group="g")
    assert (await driver.create(spec)).machine_id == "made"
    assert inner.blocking == 2
    inner.blocked.set()
    await driver.close()
