"""Calls over the native transport: deadlines, cancellation, limits of messages and metadata, broken handlers."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from cloudgraft.server.serve import ServeOptions, running
from cloudgraft.testing import MemoryGroup, MemoryOptions, MemoryProvider, Served, serving
from cloudgraft.wire.externalgrpc import RPCS
from tests.attacks import frames
from tests.attacks.http2 import Http2, Target, Toll
from tests.conditions import until

NativeServer = pytest.importorskip("cloudgraft.server.native_server").NativeServer
ADD_ONE = b"\x08\x01\x12\x01a"  # IncreaseSize of the group "a" by one
LIMIT = 4 * 1024 * 1024


def memory() -> MemoryProvider:
    return MemoryProvider(MemoryOptions(groups=[MemoryGroup(id="a")]))


def count(served: Served, rpc: str, code: str) -> float:
    labels = {"rpc": rpc, "code": code}
    return served.service.metrics.registry.get_sample_value("cloudgraft_rpcs_total", labels) or 0.0


async def code_of(call: Any) -> grpc.StatusCode:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def method(channel: grpc.aio.Channel, rpc: str) -> Any:
    return channel.unary_unary(RPCS[rpc].path)  # bytes in, bytes out


async def raw_call(served: Served, rpc: str, *extra: tuple[str, str]) -> bytes:
    """The headers that end a call of a client that never gives up by itself."""
    host, _, port = served.address.rpartition(":")
    connection = Http2(Target(host=host, port=int(port)), Toll())
    await connection.open()
    try:
        stream = connection.next_stream()
        block = frames.header_block(RPCS[rpc].path, extra)
        await connection.write(frames.headers(stream, block) + frames.data(stream, b"\0" * 5, ends_stream=True))
        await until(lambda: b"grpc-status" in connection.headers_of.get(stream, b""), what="it is answered")
        return connection.headers_of[stream]
    finally:
        await connection.close()


async def test_a_caller_that_leaves_cancels_its_call() -> None:
    provider = memory()
    async with serving(provider) as served, grpc.aio.insecure_channel(served.address) as channel:
        provider.log.hold_next("refresh")
        call = asyncio.ensure_future(method(channel, "Refresh")(b"", timeout=60))
        await until(lambda: provider.log.count("refresh") == 1)
        call.cancel()
        await until(lambda: count(served, "Refresh", "CANCELLED") == 1, what="the handler is cancelled")


async def test_a_caller_whose_time_is_up_cancels_its_call() -> None:
    provider = memory()
    async with serving(provider) as served, grpc.aio.insecure_channel(served.address) as channel:
        provider.log.hold_next("refresh")
        assert await code_of(method(channel, "Refresh")(b"", timeout=0.3)) is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: count(served, "Refresh", "CANCELLED") + count(served, "Refresh", "DEADLINE_EXCEEDED") == 1)


async def test_a_connection_that_breaks_cancels_its_calls() -> None:
    provider = memory()
    async with serving(provider) as served:
        provider.log.hold_next("refresh")
        calling = asyncio.create_task(raw_call(served, "Refresh"))
        await until(lambda: provider.log.count("refresh") == 1)
        calling.cancel()
        await until(lambda: count(served, "Refresh", "CANCELLED") == 1, what="the handler is cancelled")


async def test_a_call_that_is_cancelled_before_its_first_step_leaves_nothing_behind() -> None:
    """A busy event loop gets the call and its end together."""
    async with running(memory(), ServeOptions(listen="127.0.0.1:0")) as up:
        assert isinstance(up.server, NativeServer)
        host, _, port = up.address.rpartition(":")
        connection = Http2(Target(host=host, port=int(port)), Toll())
        await connection.open()
        for _ in range(5):
            streams = [connection.next_stream() for _ in range(20)]
            block = frames.header_block(RPCS["Refresh"].path)
            calls = [frames.headers(one, block) + frames.data(one, b"\0" * 5, ends_stream=True) for one in streams]
            await connection.write(b"".join(calls))
            time.sleep(0.05)  # noqa: ASYNC251 - the event loop is busy meanwhile, and the listener is not
            await connection.write(b"".join(frames.reset(one) for one in streams))
            time.sleep(0.05)  # noqa: ASYNC251
            await asyncio.sleep(0)
        await connection.close()
        await until(lambda: not up.server._tasks, what="nothing is left of them")  # type: ignore[attr-defined]


async def test_a_change_goes_on_when_its_caller_leaves() -> None:
    provider = memory()
    async with serving(provider) as served, grpc.aio.insecure_channel(served.address) as channel:
        hold = provider.log.hold_next("increase_size")
        call = asyncio.ensure_future(method(channel, "NodeGroupIncreaseSize")(ADD_ONE, timeout=60))
        await until(lambda: provider.log.count("increase_size") == 1)
        call.cancel()
        await until(lambda: count(served, "NodeGroupIncreaseSize", "CANCELLED") == 1)
        hold.set()

        async def changed() -> bool:
            return await provider.target_size("a") == 1

        await until(changed)


async def test_the_server_keeps_a_deadline_that_its_client_does_not() -> None:
    provider = memory()
    async with serving(provider) as served:
        provider.log.hold_next("refresh")
        assert b"grpc-status: 4\n" in await raw_call(served, "Refresh", ("grpc-timeout", "200m"))


async def test_a_handler_that_never_answers_is_ended_by_the_servers_own_deadline() -> None:
    provider = memory()
    async with serving(provider, ServeOptions(deadline=0.3)) as served:
        provider.log.hold_next("refresh")
        assert b"grpc-status: 4\n" in await raw_call(served, "Refresh")


async def test_a_timeout_that_cannot_be_read_is_refused() -> None:
    async with serving(memory()) as served:
        assert b"grpc-status: 13\n" in await raw_call(served, "Refresh", ("grpc-timeout", "soon"))


class Broken(BaseException):
    """Not an Exception, and nothing that ends a program."""


async def test_a_call_that_is_given_up_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(memory()) as served, grpc.aio.insecure_channel(served.address) as channel:
        kept: list[Broken] = []  # with its frames, and thereby the call

        async def give_up(*_: object) -> None:
            kept.append(Broken())
            raise kept[-1]

        with monkeypatch.context() as patch:
            patch.setattr(served.service, "handle_to_keep", give_up)
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)
            assert await code_of(method(channel, "Refresh")(b"", timeout=10)) is grpc.StatusCode.INTERNAL
        assert await code_of(method(channel, "Refresh")(b"", timeout=10)) is grpc.StatusCode.OK


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit])
async def test_a_provider_cannot_end_more_than_its_call(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    provider = memory()

    async def refresh() -> None:
        raise error

    monkeypatch.setattr(provider, "refresh", refresh)
    async with serving(provider) as served, grpc.aio.insecure_channel(served.address) as channel:
        assert await code_of(method(channel, "Refresh")(b"", timeout=10)) is grpc.StatusCode.INTERNAL
        assert await code_of(method(channel, "NodeGroups")(b"", timeout=10)) is grpc.StatusCode.OK


def message_of(length: int) -> bytes:
    """A NodeGroups request of so many bytes: one field that it does not have."""
    head = b"\x7a"  # field 15, with a length
    for size in range(1, 5):
        rest = length - len(head) - size
        number = bytearray()
        while rest >= 128 or not number:
            number.append(rest & 127 | 128)
            rest >>= 7
        number.append(rest)
        if len(number) == size:
            return head + bytes(number) + b"\0" * (length - len(head) - size)
    raise AssertionError(length)


async def test_a_message_may_have_4_mib_and_not_one_byte_more() -> None:
    async with serving(memory()) as served, grpc.aio.insecure_channel(served.address) as channel:
        call = method(channel, "NodeGroups")
        largest = message_of(LIMIT)
        assert len(largest) == LIMIT
        assert await code_of(call(largest, timeout=20)) is grpc.StatusCode.OK
        assert await code_of(call(message_of(LIMIT + 1), timeout=20)) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await code_of(call(b"", timeout=20)) is grpc.StatusCode.OK


async def test_the_messages_of_all_calls_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is within its limit, and none is answered."""
    async with serving(memory()) as served, grpc.aio.insecure_channel(served.address) as channel:
        call, go_on = method(channel, "Refresh"), asyncio.Event()
        handle = served.service.handle_to_keep

        async def late(*given: Any) -> Any:
            await go_on.wait()
            return await handle(*given)

        monkeypatch.setattr(served.service, "handle_to_keep", late)
        large = message_of(LIMIT)
        calls = [asyncio.ensure_future(code_of(call(large, timeout=60))) for _ in range(20)]
        await until(lambda: any(one.done() for one in calls), what="some are refused")
        go_on.set()
        codes = await asyncio.gather(*calls)
        assert {*codes} == {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert codes.count(grpc.StatusCode.OK) >= 12  # 64 MiB, but for those that were on their way when it was full
        assert await code_of(call(large, timeout=20)) is grpc.StatusCode.OK


async def test_metadata_are_bounded() -> None:
    async with serving(memory()) as served, grpc.aio.insecure_channel(served.address) as channel:
        call = method(channel, "NodeGroups")
        assert await code_of(call(b"", timeout=20, metadata=[("x", "y" * 8000)])) is grpc.StatusCode.OK
        assert await code_of(call(b"", timeout=20, metadata=[("x", "y" * 20_000)])) is not grpc.StatusCode.OK
        assert await code_of(call(b"", timeout=20)) is grpc.StatusCode.OK


async def test_compressed_messages_are_refused_in_so_many_words() -> None:
    async with serving(memory()) as served, grpc.aio.insecure_channel(served.address) as channel:
        call = method(channel, "NodeGroups")(b"\x7a\x64" + b"y" * 100, compression=grpc.Compression.Gzip, timeout=20)
        with pytest.raises(grpc.aio.AioRpcError, match="compressed messages are not supported") as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_what_is_no_grpc_call_is_told_so() -> None:
    async with serving(memory()) as served:
        host, _, port = served.address.rpartition(":")
        connection = Http2(Target(host=host, port=int(port)), Toll())
        await connection.open()
        try:
            block = b"\x82\x86\x84\x01\x09localhost"  # GET / of http
            await connection.write(frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 1, block))
            await until(lambda: b":status: 405" in connection.headers_of.get(1, b""))
        finally:
            await connection.close()


async def test_two_listeners_of_one_process_do_not_know_each_other(tmp_path: Path) -> None:
    async with serving(memory(), mtls_in=tmp_path), serving(memory()) as second:
        async with serving(memory()) as third, grpc.aio.insecure_channel(third.address) as channel:
            assert await code_of(method(channel, "NodeGroups")(b"", timeout=20)) is grpc.StatusCode.OK
        async with grpc.aio.insecure_channel(second.address) as channel:
            assert await code_of(method(channel, "NodeGroups")(b"", timeout=20)) is grpc.StatusCode.OK
