"""A dock that runs elsewhere: only engines that are known may call, and calls that make no sense are refused."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest

from cloudgraft.dock.access import CallerIdentity
from cloudgraft.dock.driver import DockDriver
from cloudgraft.dock.protocol.messages import Key
from cloudgraft.sdk.errors import AuthenticationError, PermissionDeniedError, UnavailableError
from cloudgraft.sdk.secrecy import redacted
from cloudgraft.wire import driver as wire
from cloudgraft.wire.pb import driver_pb2 as pb
from tests.conditions import until
from tests.dock.driver.connected_driver import KEY, ConnectedDriver, dock_options
from tests.dock.hub.black_hole import BlackHole
from tests.engine.scripted_cloud import Cloud


@pytest.fixture
async def connected() -> AsyncIterator[ConnectedDriver]:
    async with ConnectedDriver() as made:
        yield made


async def test_only_an_engine_that_is_known_may_call_and_only_for_its_kinds(
    connected: ConnectedDriver, tmp_path: Path
) -> None:
    await connected.dial_in(Cloud())
    token = tmp_path / "token"
    connected.engines.token = "a-word-of-16-letters"
    stranger = connected.remote_cloud()
    with pytest.raises(AuthenticationError):
        await stranger.start()
    await stranger.close()
    token.write_text("a-word-of-16-letters\n")
    known = connected.remote_cloud(token_file=token)
    await known.start()
    assert redacted("a-word-of-16-letters") == "[secret]"
    assert list(await known.list()) == []
    connected.engines.caller = CallerIdentity(name="somebody", uses=frozenset({Key(kind="Other", api_version="v1")}))
    with pytest.raises(PermissionDeniedError, match="AcmeMachineClass"):
        await known.list()
    token.write_text("")
    with pytest.raises(Exception, match="does not hold a token"):
        await known.list()
    await known.close()
    assert redacted("a-word-of-16-letters") != "[secret]", "what is in use nowhere costs nothing"


async def test_a_dock_that_vanishes_silently_is_noticed_and_redialled(
    connected: ConnectedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A firewall forgets the connection: without pings, calls would wait for it until TCP gives up."""
    monkeypatch.setattr("cloudgraft.dock.slot._PING_EVERY", 1.5)
    monkeypatch.setattr("cloudgraft.dock.slot._PING_ANSWER", 2.0)
    await connected.dial_in(Cloud())
    async with BlackHole(int(connected.listener.address.rpartition(":")[2])).listening() as network:
        cloud = DockDriver(dock_options(address=network.address))
        await cloud.start()

        async def is_listed() -> bool:
            with contextlib.suppress(UnavailableError):  # nothing else is an answer of a connection that is gone
                return list(await cloud.list()) == []
            return False

        await until(is_listed, what="the dock is reached")
        network.forget()
        assert not await is_listed()
        await until(is_listed, what="it is dialled anew", seconds=40)
        await cloud.close()


async def test_a_cloud_of_a_dock_elsewhere_starts_again_after_it_was_closed(connected: ConnectedDriver) -> None:
    await connected.dial_in(Cloud())
    cloud = connected.remote_cloud()
    await cloud.start()
    await cloud.close()
    with pytest.raises(UnavailableError, match="is closed"):
        await cloud.list()
    await cloud.start()
    assert list(await cloud.list()) == []
    await cloud.close()


@pytest.mark.parametrize("left_out", ["cloudgraft-kind", "cloudgraft-api-version", "cloudgraft-machine-class"])
async def test_a_call_that_does_not_say_which_driver_is_refused(connected: ConnectedDriver, left_out: str) -> None:
    said = {"cloudgraft-kind": "K", "cloudgraft-api-version": "v1", "cloudgraft-machine-class": "c"}
    metadata = [(name, value) for name, value in said.items() if name != left_out]
    async with grpc.aio.insecure_channel(connected.listener.address) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(wire.RPCS["List"].path)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(pb.ListRequest().SerializeToString(), metadata=metadata, timeout=20)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("rpc", "request_"),
    [
        ("Create", b"\xff\xff"),
        ("Create", pb.CreateRequest().SerializeToString()),
        ("Delete", pb.DeleteRequest().SerializeToString()),
    ],
    ids=["bytes", "no name", "no id"],
)
async def test_an_invalid_call_is_refused(connected: ConnectedDriver, rpc: str, request_: bytes) -> None:
    await connected.dial_in(Cloud())
    metadata = (
        ("cloudgraft-kind", KEY.kind),
        ("cloudgraft-api-version", KEY.api_version),
        ("cloudgraft-machine-class", "small"),
    )
    async with grpc.aio.insecure_channel(connected.listener.address) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(wire.RPCS[rpc].path)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(request_, metadata=metadata, timeout=20)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
