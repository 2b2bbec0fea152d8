"""How a driver stays connected, what it keeps over a lost connection, and how it stops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import threading
import time
from pathlib import Path

import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration

from cloudgraft.certs.authority import create_bundle
from cloudgraft.dock.protocol.codes import Code
from cloudgraft.dock.runner import DockRunner, RunnerOptions, RunnerSettings, Tls
from cloudgraft.dock.runner.connection import End
from cloudgraft.dock.runner.runner import backoff_of, wait_after
from cloudgraft.dock.runner.state import ResultPriority, UnacknowledgedResults
from cloudgraft.sdk.driver import Machine
from cloudgraft.sdk.errors import PreconditionError
from cloudgraft.wire.pb import dock_pb2 as pb
from tests.conditions import until
from tests.dock.runner.drivers import API_VERSION, KIND, GatedDriver, options_for, running
from tests.dock.runner.small_hub import SmallHub, create, delete, read, small_hub


async def test_both_sides_send_heartbeats() -> None:
    async with small_hub(heartbeat=0.3) as hub, running(GatedDriver(), hub.address) as runner:
        visit = await hub.visit()
        await until(lambda: visit.beats >= 5)  # for longer than a silent connection lives
        assert (runner.is_connected, runner.connections, runner.session_id) == (True, 1, "s-1")


async def test_a_hub_that_falls_silent_is_left_and_dialled_again() -> None:
    """Three missed heartbeats are a dead connection, whatever TCP says."""
    async with small_hub(heartbeat=0.05, beats=False) as hub, running(GatedDriver(), hub.address) as runner:
        first = await hub.visit()
        second = await hub.visit()
        assert first.hello.instance_id == second.hello.instance_id
        await until(first.over.is_set, what="the old channel is closed")
        await until(lambda: runner.connections >= 2)


async def test_a_hub_that_does_not_read_is_left(caplog: pytest.LogCaptureFixture) -> None:
    driver = GatedDriver()
    driver.machines = [Machine(name=f"m-{number}", machine_id="x" * 200) for number in range(500)]
    async with small_hub(heartbeat=0.3, reads=False) as hub, running(driver, hub.address, max_in_flight=100):
        visit = await hub.visit()
        with contextlib.suppress(grpc.aio.BaseError):  # it may leave before the last one
            for _ in range(100):  # many megabytes of answers
                await visit.ask(read())
        await hub.visit()
        assert "does not read what it is sent" in caplog.text


@pytest.mark.thorough
async def test_a_driver_that_slept_itself_does_not_take_its_hub_for_dead() -> None:
    async with small_hub(heartbeat=0.6) as hub, running(GatedDriver(), hub.address) as runner:
        visit = await hub.visit()
        time.sleep(3.0)  # noqa: ASYNC251 - nothing runs in this process meanwhile: that is the point
        beats = visit.beats
        await until(lambda: visit.beats >= beats + 3)
        assert runner.connections == 1


async def test_a_hub_that_never_answers_the_hello_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with running(GatedDriver(), f"127.0.0.1:{silent.getsockname()[1]}", handshake=0.1) as runner:
            await until(lambda: caplog.text.count("did not answer the hello in time") >= 2)
            assert not runner.is_connected


async def test_a_refused_driver_waits_as_long_as_the_hub_asks(caplog: pytest.LogCaptureFixture) -> None:
    async with small_hub() as hub:
        hub.reject = pb.Reject(code=Code.ALREADY_EXISTS, message="one is here", retry_after=Duration(seconds=200))
        async with running(GatedDriver(), hub.address) as runner:
            await until(lambda: "one is here" in caplog.text)
            assert "next try in 200" in caplog.text
            assert not runner.is_connected
            assert len(hub.hellos) == 1


async def test_a_refused_driver_comes_back() -> None:
    async with small_hub() as hub:
        hub.reject = pb.Reject(code=Code.PERMISSION_DENIED, message="not you")
        async with running(GatedDriver(), hub.address):
            await until(lambda: len(hub.hellos) >= 2)
            hub.reject = None
            await hub.visit()


async def test_a_result_is_resent_until_it_is_acknowledged() -> None:
    driver = GatedDriver()
    async with small_hub() as hub, running(driver, hub.address) as runner:
        visit = await hub.visit()
        number = await visit.ask(create("m-1"))
        assert (await visit.result(acknowledged=False)).id == number
        assert runner.unacknowledged == 1
        visit.hung_up.set()
        again = await hub.visit()
        (replayed,) = again.hello.results
        assert (replayed.id, replayed.hub_id, replayed.machine_name) == (number, "hub-1", "m-1")
        assert replayed.create.machine.machine_id == "id-1"
        await again.say(acknowledge=pb.Acknowledge(ids=[number]))
        await until(lambda: runner.unacknowledged == 0)


async def test_case_30_a_create_runs_on_without_its_hub_and_the_next_hub_gets_it() -> None:
    """Law 3: the hub is replaced in mid-create; its successor hears of the machine in hello, and there is one."""
    driver = GatedDriver()
    gate = driver.hold("m-1")
    hub = await SmallHub(hub_id="first").start()
    async with running(driver, hub.address):
        visit = await hub.visit()
        number = await visit.ask(create("m-1"))
        listed = await visit.ask(read())
        assert (await visit.result(acknowledged=False)).id == listed
        await until(lambda: driver.begun == ["m-1"])
        await hub.stop()
        gate.set()
        await until(lambda: len(driver.machines) == 1)
        successor = SmallHub(hub_id="second")
        successor.port = hub.port
        await successor.start()
        again = await successor.visit()
        (replayed,) = again.hello.results  # the list is not among them: an old list is worse than none
        assert (replayed.id, replayed.hub_id, replayed.machine_name) == (number, "first", "m-1")
        await again.ask(create("m-1"), number=77)
        assert (await again.result()).create.machine.machine_id == "id-1"
        assert len(driver.machines) == 1
        await successor.stop()


async def test_an_operation_that_is_sent_twice_is_done_once() -> None:
    driver = GatedDriver()
    async with small_hub() as hub, running(driver, hub.address):
        visit = await hub.visit()
        await visit.ask(create("m-1"), number=5)
        first = await visit.result(acknowledged=False)
        await visit.ask(create("m-1"), number=5)
        assert await visit.result() == first
        assert len(driver.machines) == 1


async def test_when_the_hub_drains_what_runs_is_finished_and_the_driver_comes_back() -> None:
    driver = GatedDriver()
    gate = driver.hold("m-1")
    async with small_hub() as hub, running(driver, hub.address):
        visit = await hub.visit()
        number = await visit.ask(create("m-1"))
        await until(lambda: driver.begun == ["m-1"])
        await visit.say(drain=pb.Drain(grace=Duration(seconds=10)))
        gate.set()
        assert (await visit.result()).id == number
        assert (await visit.heard.get()).bye.reason == "drained"
        await until(visit.over.is_set)
        await hub.visit()


# -- case 34: stop() stops ---------------------------------------------------------------------------------------------


async def test_case_34_stop_finishes_what_runs_takes_leave_and_leaves_nothing_behind() -> None:
    driver = GatedDriver()
    gate = driver.hold("m-1")
    async with small_hub() as hub:
        threads = set(threading.enumerate())
        runner = DockRunner(driver, options_for(hub.address))
        await runner.start()
        visit = await hub.visit()
        number = await visit.ask(create("m-1"))
        await until(lambda: driver.begun == ["m-1"])
        stopping = asyncio.create_task(runner.stop())
        assert (await visit.heard.get()).WhichOneof("message") == "bye"
        await visit.ask(create("m-2"))
        refused = await visit.result()
        assert (refused.status.code, refused.status.retry_after.seconds) == (Code.UNAVAILABLE, 1)
        gate.set()
        assert (await visit.result()).id == number
        await stopping
        await until(visit.over.is_set)
        assert _own_tasks() == []
        assert {thread for thread in threading.enumerate() if thread.is_alive()} <= threads | _of_grpc()
        assert (driver.closed, driver.begun) == (1, ["m-1"])
        assert len(hub.hellos) == 1
        await runner.stop()
        with pytest.raises(PreconditionError):
            await runner.start()


def _own_tasks() -> list[str]:
    """Those that run our code, and not gRPC's."""
    codes = {str(task): getattr(task.get_coro(), "cr_code", None) for task in asyncio.all_tasks()}
    return [name for name, code in codes.items() if code is not None and "cloudgraft/dock" in code.co_filename]


def _of_grpc() -> set[threading.Thread]:
    """gRPC has a poller of its own, for the whole process."""
    return {
        thread for thread in threading.enumerate() if "grpc" in str(thread).lower() or "poll" in str(thread).lower()
    }


async def test_case_34_stop_does_not_wait_for_a_create_that_hangs(caplog: pytest.LogCaptureFixture) -> None:
    driver = GatedDriver()
    driver.hold("m-1")
    async with small_hub() as hub:
        runner = DockRunner(driver, options_for(hub.address))
        await runner.start()
        visit = await hub.visit()
        await visit.ask(create("m-1"))
        await until(lambda: driver.begun == ["m-1"])
        await runner.stop(grace=0.05)
        await until(visit.over.is_set)
        assert visit.heard.get_nowait().WhichOneof("message") == "bye"
        assert visit.heard.empty()  # nothing is known of the create, and so nothing is said
        assert "given up" in caplog.text


async def test_case_34_stop_works_while_there_is_no_hub() -> None:
    driver = GatedDriver()
    runner = DockRunner(driver, options_for("127.0.0.1:1"))
    await runner.start()
    await runner.stop()
    assert driver.closed == 1


# -- case 31: no herd --------------------------------------------------------------------------------------------------


def test_case_31_two_hundred_drivers_do_not_come_back_in_one_moment() -> None:
    """The hub is away for five minutes. Whenever it is back, they come spread over half a minute."""
    dice = random.Random(31)
    arrivals = []
    for _ in range(200):
        backoff = backoff_of(RunnerSettings(), dice.random)
        now = 0.0 + backoff.after(3600.0)
        while now < 300.0:
            now += backoff.after(0.0)
        arrivals.append(now)
    busiest = max(sum(start <= at < start + 1.0 for at in arrivals) for start in arrivals)
    assert busiest <= 25
    assert max(arrivals) <= 330.0
    assert sum(at < 315.0 for at in arrivals) >= 100


def test_the_backoff_doubles_to_its_limit_and_resets_after_a_stable_connection() -> None:
    backoff, lost = backoff_of(RunnerSettings(), lambda: 0.0), End(reason="lost")
    assert [wait_after(lost, 0.0, backoff) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert wait_after(lost, 59.0, backoff) == 30
    assert wait_after(lost, 60.0, backoff) == 1
    assert wait_after(End(reason="busy", retry_after=100.0), 0.0, backoff) == 102
    assert wait_after(End(reason="busy", retry_after=1e12), 0.0, backoff) == 304, "no hub sends a driver away for ever"
    assert wait_after(End(reason="it restarts", was_drained=True), 0.0, backoff) == 1


def test_the_wait_is_anything_from_nothing_to_its_limit() -> None:
    assert wait_after(End(reason="lost"), 0.0, backoff_of(RunnerSettings(), lambda: 1.0)) == 0
    assert 0 <= wait_after(End(reason="lost"), 0.0, backoff_of(RunnerSettings())) <= 1


# -- what is kept ------------------------------------------------------------------------------------------------------


def _result(number: int, text: str = "") -> pb.Result:
    return pb.Result(id=number, hub_id="h", status=pb.Status(message=text))


def test_machines_are_the_last_that_is_forgotten() -> None:
    unacknowledged = UnacknowledgedResults(most=3, most_bytes=10_000)
    for number, priority in enumerate(
        [
            ResultPriority.CREATED,
            ResultPriority.DELETED,
            ResultPriority.NOT_CREATED,
            ResultPriority.CREATED,
            ResultPriority.CREATED,
        ]
    ):
        unacknowledged.keep(_result(number), priority)
    assert [kept.id for kept in unacknowledged.waiting()] == [0, 3, 4]
    unacknowledged.keep(_result(5), ResultPriority.DELETED)
    assert [kept.id for kept in unacknowledged.waiting()] == [0, 3, 4]


def test_what_is_kept_is_bounded_in_bytes_too() -> None:
    unacknowledged = UnacknowledgedResults(most=100, most_bytes=1000)
    for number in range(10):
        unacknowledged.keep(_result(number, "x" * 300), ResultPriority.CREATED)
    assert [kept.id for kept in unacknowledged.waiting()] == [7, 8, 9]
    unacknowledged.acknowledge([8, 99])
    assert [kept.id for kept in unacknowledged.waiting()] == [7, 9]


async def test_a_late_delete_is_resent_too() -> None:
    driver = GatedDriver()
    async with small_hub() as hub, running(driver, hub.address):
        visit = await hub.visit()
        number = await visit.ask(delete(Machine(name="m-1", machine_id="1")))
        await visit.result(acknowledged=False)
        visit.hung_up.set()
        (replayed,) = (await hub.visit()).hello.results
        assert (replayed.id, replayed.WhichOneof("answer")) == (number, "delete")


# -- who we are --------------------------------------------------------------------------------------------------------


async def test_a_token_is_shown_and_read_again_at_the_next_connect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = tmp_path / "token"
    token.write_text("first-token-value\n")
    async with small_hub() as hub:
        options = RunnerOptions(
            address=hub.address,
            kind=KIND,
            api_version=API_VERSION,
            token_file=token,
            settings=RunnerSettings(first_wait=0.02, longest_wait=0.1),
        )
        runner = DockRunner(GatedDriver(), options)
        await runner.start()
        visit = await hub.visit()
        token.write_text("second-token-value")
        visit.hung_up.set()
        await hub.visit()
        await runner.stop()
    assert [said["authorization"] for said in hub.metadata] == ["Bearer first-token-value", "Bearer second-token-value"]
    assert "token-value" not in caplog.text


async def test_with_tls_the_files_are_read_again_at_the_next_connect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import grpc

    bundle = create_bundle(tmp_path / "a", hosts=["127.0.0.1"])
    credentials = grpc.ssl_server_credentials(
        [(bundle.server_key.read_bytes(), bundle.server_cert.read_bytes())],
        root_certificates=bundle.ca_cert.read_bytes(),
        require_client_auth=True,
    )
    hub = await SmallHub().start(credentials)
    ca = tmp_path / "ca.crt"
    ca.write_bytes(create_bundle(tmp_path / "b", hosts=["127.0.0.1"]).ca_cert.read_bytes())  # of somebody else
    options = RunnerOptions(
        address=hub.address,
        kind=KIND,
        api_version=API_VERSION,
        tls=Tls(ca=ca, cert=bundle.client_cert, key=bundle.client_key),
        settings=RunnerSettings(first_wait=0.02, longest_wait=0.1),
    )
    runner = DockRunner(GatedDriver(), options)
    await runner.start()
    await until(lambda: "no connection" in caplog.text)
    ca.unlink()
    await until(lambda: "does not exist" in caplog.text)
    ca.write_bytes(bundle.ca_cert.read_bytes())
    assert (await hub.visit()).hello.kind == KIND
    await runner.stop()
    await hub.stop()
