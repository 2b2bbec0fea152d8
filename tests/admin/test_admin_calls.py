"""The operator's calls over real sockets: answers, errors, sizes, and a server that is not there."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgraft.admin.client import AdminClient
from cloudgraft.admin.server import AdminServer, Method
from cloudgraft.admin.wire import LONGEST_ANSWER, LONGEST_REQUEST, decode, encode_in_slices, path_of
from cloudgraft.sdk.errors import (
    CloudgraftError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    RateLimitedError,
    UnavailableError,
    UnsupportedError,
    error_table,
)
from cloudgraft.store.journal import JournalUnavailableError
from tests.conditions import until


@asynccontextmanager
async def admin(tmp_path: Path, methods: Mapping[str, Method], *, seconds: float = 30.0) -> AsyncIterator[AdminClient]:
    server = AdminServer(methods, tmp_path / "admin")
    await server.start()
    try:
        async with AdminClient(server.address, timeout=seconds) as client:
            yield client
    finally:
        await server.stop(0)


async def echo(request: Mapping[str, object]) -> Mapping[str, object]:
    return request


async def test_a_call_gives_the_methods_answer(tmp_path: Path) -> None:
    async with admin(tmp_path, {"echo": echo}) as client:
        request = {"group": "ä \N{ROCKET}", "n": 1, "deep": {"list": [1.5, None, True, {"x": []}], "empty": {}}}
        assert await client.call("echo", request) == request
        assert await client.call("echo") == {}


async def test_calls_do_not_wait_for_each_other(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def wait(request: Mapping[str, object]) -> Mapping[str, object]:
        await gate.wait()
        return {"waited": True}

    async with admin(tmp_path, {"echo": echo, "wait": wait}) as client:
        waiting = asyncio.create_task(client.call("wait"))
        assert await client.call("echo", {"n": 2}) == {"n": 2}
        assert not waiting.done()
        gate.set()
        assert await waiting == {"waited": True}


@pytest.mark.parametrize("kind", error_table(), ids=lambda kind: kind.slug)
async def test_every_class_of_error_crosses_the_wire(tmp_path: Path, kind: type[CloudgraftError]) -> None:
    async def fail(request: Mapping[str, object]) -> Mapping[str, object]:
        raise kind("what is wrong, and what to do: größer")

    async with admin(tmp_path, {"fail": fail}) as client:
        with pytest.raises(kind) as caught:
            await client.call("fail")
    assert type(caught.value) is kind
    assert caught.value.message == "what is wrong, and what to do: größer"


async def test_an_error_keeps_its_hint_when_to_try_again(tmp_path: Path) -> None:
    async def fail(request: Mapping[str, object]) -> Mapping[str, object]:
        raise RateLimitedError("slow down", retry_after=7.5)

    async with admin(tmp_path, {"fail": fail}) as client:
        with pytest.raises(RateLimitedError) as caught:
            await client.call("fail")
    assert caught.value.retry_after == 7.5


async def test_an_error_of_the_journal_arrives_as_what_it_means(tmp_path: Path) -> None:
    async def fail(request: Mapping[str, object]) -> Mapping[str, object]:
        raise JournalUnavailableError("the disk is full")

    async with admin(tmp_path, {"fail": fail}) as client:
        with pytest.raises(UnavailableError, match=r"^the disk is full$"):
            await client.call("fail")


async def test_an_operator_hears_that_a_change_may_have_been_written_all_the_same(tmp_path: Path) -> None:
    """Who believes that an adoption failed goes on using the machine, and the autoscaler may delete it."""

    async def fail(request: Mapping[str, object]) -> Mapping[str, object]:
        raise JournalUnavailableError("the disk is full", is_ambiguous=True)

    async with admin(tmp_path, {"fail": fail}) as client:
        with pytest.raises(DeadlineError, match=r"^the disk is full; the change may have been written .* status"):
            await client.call("fail")


@pytest.mark.parametrize("answer", [{"x": object()}, {"x": math.nan}, {1: 2}, {"x": [{(): 1}]}, None, "text"])
async def test_a_bug_shows_an_id_and_not_its_details(
    tmp_path: Path, answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    async def bad(request: Mapping[str, object]) -> Mapping[str, object]:
        return answer  # type: ignore[return-value]  # that is the bug

    async def worse(request: Mapping[str, object]) -> Mapping[str, object]:
        raise RuntimeError("hunter2")

    async with admin(tmp_path, {"bad": bad, "worse": worse}) as client:
        for method in ("bad", "worse"):
            with pytest.raises(InternalError, match=r"^internal error \(id [0-9a-f]{8}\)") as caught:
                await client.call(method)
            assert "hunter2" not in caught.value.message
    assert sum("failed unexpectedly" in record.getMessage() for record in caplog.records) == 2


async def test_a_method_that_is_not_there_is_told_by_name(tmp_path: Path) -> None:
    async with admin(tmp_path, {"echo": echo}) as client:
        with pytest.raises(UnsupportedError, match="has no 'status': is it of the same release"):
            await client.call("status")


@pytest.mark.parametrize("data", [b"", b"\xff", b"{", b"[]", b"1", b'{"a": 1} x', b"[" * 100_000])
async def test_bytes_that_are_no_request_are_an_invalid_argument(tmp_path: Path, data: bytes) -> None:
    async with admin(tmp_path, {"echo": echo}) as client, _channel(tmp_path) as channel:
        ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path_of("echo"))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(data, timeout=10)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert await client.call("echo") == {}


def _channel(tmp_path: Path) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(f"unix:{tmp_path / 'admin'}")


async def test_requests_that_cannot_be_sent_are_refused_by_the_client(tmp_path: Path) -> None:
    async with admin(tmp_path, {"echo": echo}) as client:
        for request in ({"x": object()}, {"x": math.inf}):
            with pytest.raises(InvalidArgumentError, match="cannot be written as JSON"):
                await client.call("echo", request)
        with pytest.raises(InvalidArgumentError, match="bytes, more than"):
            await client.call("echo", {"x": "x" * LONGEST_REQUEST})


async def test_an_answer_of_many_megabytes_arrives(tmp_path: Path) -> None:
    machines = [{"name": f"machine-{number}", "error": "x" * 1000} for number in range(20_000)]

    async def status(request: Mapping[str, object]) -> Mapping[str, object]:
        return {"machines": machines}

    async with admin(tmp_path, {"status": status}) as client:
        answer = await client.call("status")
    assert answer == {"machines": machines}


async def test_an_answer_that_is_too_long_is_told_as_such(tmp_path: Path) -> None:
    async def status(request: Mapping[str, object]) -> Mapping[str, object]:
        return {"x": "x" * LONGEST_ANSWER}

    async with admin(tmp_path, {"echo": echo, "status": status}) as client:
        with pytest.raises(InternalError, match="more than can be sent: ask for less"):
            await client.call("status")
        assert await client.call("echo", {"n": 1}) == {"n": 1}


async def test_a_long_answer_does_not_keep_the_event_loop_from_other_work() -> None:
    """Law 1: no RPC waits, not even for an operator who looks at thousands of machines."""
    answer = {
        "groups": [{"id": str(n), "machines": [{"name": f"m{m}", "n": m} for m in range(50)]} for n in range(200)]
    }
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    await asyncio.sleep(0)
    data = await encode_in_slices(answer)
    other.cancel()
    assert json.loads(data) == answer
    assert turns > 3


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**15), 10**15)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_any_object_comes_out_as_it_went_in(value: dict[str, object]) -> None:
    assert decode(asyncio.run(encode_in_slices(value))) == value


def test_many_plain_values_are_not_written_in_one_go() -> None:
    value = {"ids": list(range(1000)), "names": {str(n): n for n in range(1000)}, "pair": (1, 2)}
    assert decode(asyncio.run(encode_in_slices(value))) == {**value, "pair": [1, 2]}


async def test_no_answer_in_time_is_told_as_such_and_the_method_goes_on(tmp_path: Path) -> None:
    gate, done = asyncio.Event(), asyncio.Event()

    async def slow(request: Mapping[str, object]) -> Mapping[str, object]:
        await gate.wait()
        done.set()
        return {}

    async with admin(tmp_path, {"slow": slow}, seconds=0.2) as client:
        with pytest.raises(DeadlineError, match=r"did not answer 'slow' within 0\.2 s"):
            await client.call("slow")
        gate.set()
        await until(done.is_set)


async def test_a_stop_lets_calls_end_and_then_ends_them(tmp_path: Path) -> None:
    gate = asyncio.Event()
    ended: list[str] = []

    async def slow(request: Mapping[str, object]) -> Mapping[str, object]:
        try:
            await gate.wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return {"done": True}

    for opens in (True, False):
        gate.clear()
        server = AdminServer({"slow": slow}, tmp_path / "admin")
        await server.start()
        async with AdminClient(tmp_path / "admin") as client:
            call = asyncio.create_task(client.call("slow"))
            await until(lambda server=server: bool(server._unfinished.tasks))  # type: ignore[misc]  # bound per round
            stopping = asyncio.create_task(server.stop(20 if opens else 0.05))
            if opens:
                await until(lambda: not (tmp_path / "admin").exists())
                gate.set()
                assert await call == {"done": True}
            else:
                with pytest.raises(DeadlineError, match="whether it was done is not known"):
                    await call
            await stopping
    assert ended == ["cancelled"]


async def test_no_server_is_a_clear_error(tmp_path: Path) -> None:
    async with AdminClient(tmp_path / "admin") as client:
        with pytest.raises(UnavailableError) as caught:
            await client.call("status")
    assert caught.value.message == (
        f"no cloudgraft server answers at unix:{tmp_path}/admin; start one with `cloudgraft serve --config FILE` "
        "(one without clouds and nodeGroups has no engine, and listens for no operators)"
    )


async def test_a_client_outlives_its_server_and_finds_the_next_one(tmp_path: Path) -> None:
    """`--watch` goes on over a restart."""

    async def version(request: Mapping[str, object]) -> Mapping[str, object]:
        return {"started": started}

    async with AdminClient(tmp_path / "admin") as client:
        for started in range(3):
            server = AdminServer({"version": version}, tmp_path / "admin")
            await server.start()
            await until(lambda: _answers(client))
            assert await client.call("version") == {"started": started}
            await server.stop(0)
            await until(lambda: _is_told_to_start_one(client))
        await client.close()
        await client.close()


async def _answers(client: AdminClient) -> bool:
    try:
        await client.call("version")
    except CloudgraftError:
        return False
    return True


async def _is_told_to_start_one(client: AdminClient) -> bool:
    try:
        await client.call("version")
    except UnavailableError as error:
        return "start one with" in error.message
    except DeadlineError:  # it met the end of the old connection
        return False
    return False


async def test_a_server_killed_in_the_middle_of_a_call_leaves_the_outcome_unknown(tmp_path: Path) -> None:
    path = tmp_path / "admin"
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.admin.admin_process", str(path), stdout=asyncio.subprocess.PIPE
    )
    assert program.stdout is not None
    try:
        async with asyncio.timeout(30), AdminClient(path) as client:
            assert await program.stdout.readline() == b"serving\n"
            assert await client.call("pid") == {"pid": program.pid}
            call = asyncio.create_task(client.call("hang"))
            assert await program.stdout.readline() == b"hanging\n"
            os.kill(program.pid, signal.SIGKILL)
            with pytest.raises(DeadlineError, match="ended before it answered 'hang'"):
                await call
            assert path.is_socket()  # left behind
            await until(lambda: _is_told_to_start_one(client))
    finally:
        if program.returncode is None:
            program.kill()
        await program.wait()


async def test_a_frozen_server_does_not_hold_its_caller_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "admin"
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.admin.admin_process", str(path), stdout=asyncio.subprocess.PIPE
    )
    assert program.stdout is not None
    try:
        async with asyncio.timeout(30):
            assert await program.stdout.readline() == b"serving\n"
            program.send_signal(signal.SIGSTOP)
            async with AdminClient(path, timeout=0.5) as client:
                began = time.monotonic()
                with pytest.raises(DeadlineError, match="did not answer 'pid'"):
                    await client.call("pid")
                assert time.monotonic() - began < 20
    finally:
        program.kill()
        await program.wait()


@pytest.mark.parametrize("name", ["", "a/b", "a b", "1a", "ä"])
def test_names_that_no_method_can_have_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot be the name"):
        AdminServer({name: echo}, tmp_path / "admin")


async def test_a_wrong_answer_of_a_foreign_server_is_not_taken_for_one(tmp_path: Path) -> None:
    async def nonsense(data: bytes, context: object) -> bytes:
        return b"nonsense"

    async def refuse(data: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        await context.abort(grpc.StatusCode.NOT_FOUND, "nothing of ours")
        raise AssertionError("abort() raises")

    server = grpc.aio.server()
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "nonsense": grpc.unary_unary_rpc_method_handler(nonsense),
        "refuse": grpc.unary_unary_rpc_method_handler(refuse),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("cloudgraft.admin.v1.Admin", handlers),))
    server.add_insecure_port(f"unix:{tmp_path / 'admin'}")
    await server.start()
    async with AdminClient(f"{tmp_path}/admin") as client:
        with pytest.raises(InternalError, match="bytes that make no sense"):
            await client.call("nonsense")
        with pytest.raises(NotFoundError, match="nothing of ours"):
            await client.call("refuse")
    await server.stop(0)
