"""Traces of a whole server, as a collector gets them: from the autoscaler's call to the cloud's answer."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import grpc
import pytest

from cloudgraft.wire.externalgrpc import SERVICE
from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from tests.conditions import until
from tests.serve.processes import Command
from tests.serve.served_clouds import Cloud
from tests.serve.servers import Server, running
from tests.serve.settings import configuration, simulated, small
from tests.tracing.otlp_receiver import Receiver

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
CALLER: Final = "b7ad6b7169203331"
INCREASE: Final = f"{SERVICE}/NodeGroupIncreaseSize"
DELETE: Final = f"{SERVICE}/NodeGroupDeleteNodes"
_HAS_NATIVE = importlib.util.find_spec("cloudgraft_native") is not None


def settings(cloud: Cloud, receiver: Receiver, transport: str = "auto", **tracing: object) -> str:
    server = {"listen": "127.0.0.1:0", "ops": "127.0.0.1:0", "transport": transport}
    tracing = {"endpoint": receiver.address, **tracing}
    return configuration({"sim": simulated(cloud.url)}, [small()], server=server, tracing=tracing)


async def increase(server: Server, delta: int, traceparent: str = "") -> None:
    """The call of an autoscaler that has a trace."""
    async with _calling(server) as channel:
        call = channel.unary_unary(
            f"/{SERVICE}/NodeGroupIncreaseSize",
            request_serializer=pb.NodeGroupIncreaseSizeRequest.SerializeToString,
            response_deserializer=pb.NodeGroupIncreaseSizeResponse.FromString,
        )
        metadata = [("traceparent", traceparent)] if traceparent else []
        await call(pb.NodeGroupIncreaseSizeRequest(id="small", delta=delta), metadata=metadata, timeout=20)


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    with Cloud(tmp_path) as cloud:
        yield cloud


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@asynccontextmanager
async def _calling(server: Server) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield channel


@pytest.mark.parametrize(
    "transport",
    [
        pytest.param("grpcio", marks=[pytest.mark.thorough] if _HAS_NATIVE else []),
        pytest.param("native", marks=[pytest.mark.skipif(not _HAS_NATIVE, reason="needs cloudgraft-native")]),
    ],
)
async def test_one_trace_goes_from_the_autoscalers_call_to_each_ready_machine(
    tmp_path: Path, cloud: Cloud, receiver: Receiver, transport: str
) -> None:
    with Server(tmp_path / "c.yaml", settings(cloud, receiver, transport)) as server:
        await increase(server, 2, f"00-{TRACE}-{CALLER}-01")
        async with server.connected() as provider:
            await running(provider, "small", 2)
        machines = await receiver.has("machine create", 2)
        await receiver.has("cloud create", 2)
        (call,) = await receiver.has(INCREASE)
        (commit,) = receiver.named("journal commit")
        names, log = {made["name"] for made in cloud.ledger()}, server.said(TRACE)
        assert server.stop() == 0
    assert {span.trace for span in receiver.spans} == {TRACE}
    assert (call.parent, call.kind, call.is_failed) == (CALLER, "SERVER", False)
    assert call.about == {
        "rpc.system": "grpc",
        "rpc.service": SERVICE,
        "rpc.method": "NodeGroupIncreaseSize",
        "cloudgraft.group": "small",
        "cloudgraft.delta": 2,
    }
    assert call.resource["service.name"] == "cloudgraft"
    assert call.resource["cloudgraft.cluster"] == "test"
    assert (commit.parent, commit.about["cloudgraft.machines"]) == (call.id, 2)
    assert {span.parent for span in machines} == {call.id}
    assert {span.about["cloudgraft.machine"] for span in machines} == names
    for machine in machines:
        name = str(machine.about["cloudgraft.machine"])
        (create,) = receiver.named("cloud create", machine=name)
        assert (create.parent, create.kind) == (machine.id, "CLIENT")
        assert create.about["cloudgraft.cloud"] == "sim"
        assert list(machine.events) == ["requested", "creating", "booting", "running", "ready"]
        assert machine.about["cloudgraft.machine_id"]
    assert any(line.get("kind") == "increase" for line in log)  # in the span of the call
    assert {line.get("state") for line in log} >= {"requested", "creating", "booting"}


async def test_errors_of_a_cloud_retries_and_deletions_are_in_the_traces_of_their_orders(
    tmp_path: Path, cloud: Cloud, receiver: Receiver
) -> None:
    with Server(tmp_path / "c.yaml", settings(cloud, receiver)) as server:
        async with server.connected() as provider:
            await provider.increase_size("small", 1)
            (node,) = await running(provider, "small", 1)
            cloud.chaos(delete={"errors": {"next": 1}})
            await provider.delete_nodes("small", [node])
            await receiver.has("cloud delete", 2)
            cloud.chaos(stock={"small": 0})
            (deletion,) = await receiver.has("machine delete")
            await provider.increase_size("small", 1)
            (failed,) = [span for span in await receiver.has("machine create", 2) if span.is_failed]
        (ordered,) = await receiver.has(DELETE)
        assert server.stop() == 0
    calls = sorted(receiver.named("cloud delete"), key=lambda span: span.began)
    assert {(span.trace, span.parent) for span in calls} == {(ordered.trace, deletion.id)}
    assert deletion.parent == ordered.id
    assert calls[0].is_failed
    assert calls[0].about["error.type"]
    assert not calls[-1].is_failed
    assert (next(iter(deletion.events)), list(deletion.events)[-1]) == ("deleting", "gone")
    assert "retry" in deletion.events
    assert failed.about["error.type"] == "out_of_stock"
    (refused,) = receiver.named("cloud create", machine=str(failed.about["cloudgraft.machine"]))
    assert (refused.parent, refused.is_failed) == (failed.id, True)
    assert refused.about["cloudgraft.error_class"] == "out_of_resources"
    assert refused.about["cloudgraft.nothing_done"] is True
    assert refused.trace != ordered.trace


async def test_a_caller_that_is_not_sampled_and_a_ratio_of_zero_send_nothing(
    tmp_path: Path, cloud: Cloud, receiver: Receiver
) -> None:
    with Server(tmp_path / "c.yaml", settings(cloud, receiver, ratio=0.0)) as server:
        await increase(server, 1)
        await increase(server, 1, f"00-{TRACE}-{CALLER}-00")
        await increase(server, 1, "not a header")
        await increase(server, 1, f"00-{TRACE}-{CALLER}-01")  # this caller decides for itself
        async with server.connected() as provider:
            await running(provider, "small", 4)
        await receiver.has("machine create")
        assert server.stop() == 0
    assert [span.name for span in receiver.spans].count("machine create") == 1
    assert {span.trace for span in receiver.spans} == {TRACE}


async def test_calls_that_read_and_lists_have_a_ratio_of_their_own(
    tmp_path: Path, cloud: Cloud, receiver: Receiver
) -> None:
    text = settings(cloud, receiver, transport="grpcio", ratio=0.0, readRatio=1.0)
    with Server(tmp_path / "c.yaml", text) as server:
        async with server.connected() as provider:
            await provider.increase_size("small", 1)
            await running(provider, "small", 1)
            (listed, *_) = await receiver.has("cloud list")
            await receiver.has(f"{SERVICE}/NodeGroupNodes")
        assert server.stop() == 0
    assert (listed.kind, listed.parent, listed.about["cloudgraft.cloud"]) == ("CLIENT", "", "sim")
    assert not receiver.named(INCREASE)
    assert not receiver.named("cloud create")


async def test_what_was_ordered_before_a_restart_has_traces_of_its_own(
    tmp_path: Path, cloud: Cloud, receiver: Receiver
) -> None:
    with Server(tmp_path / "c.yaml", settings(cloud, receiver)) as server:
        await until(server.is_ready)
        cloud.chaos(hang=True)
        await increase(server, 1, f"00-{TRACE}-{CALLER}-01")
        server.says("the cloud is asked to create it")
        server.stop()
    (machine,) = receiver.named("machine create")  # it ended with the process, and says so
    assert "left" in machine.events
    cloud.chaos()
    with Server(tmp_path / "c.yaml") as server:
        async with server.connected() as provider:
            await running(provider, "small", 1)
        assert server.stop() == 0
    later = [span for span in receiver.spans if span.name == "cloud create" and span.trace != TRACE]
    assert [span.about["cloudgraft.machine"] for span in later] in ([], [machine.about["cloudgraft.machine"]])


@pytest.mark.parametrize("how", ["hangs", "away", "refuses"])
async def test_a_collector_in_trouble_changes_no_call_and_delays_no_stop(
    tmp_path: Path, cloud: Cloud, receiver: Receiver, how: str
) -> None:
    text = settings(cloud, receiver)
    if how == "hangs":
        receiver.hang()
    elif how == "refuses":
        receiver.refuses = grpc.StatusCode.PERMISSION_DENIED
    else:
        receiver.__exit__()
    with Server(tmp_path / "c.yaml", text) as server:
        async with server.connected() as provider:
            for _ in range(5):
                await provider.increase_size("small", 1)
            await running(provider, "small", 5)
            assert await server.is_ready()
            if how == "refuses":
                await until(lambda: _lost(server), what="lost spans are counted")
        assert server.stop() == 0
        line = server.says("spans of traces were lost")
    assert cloud.made() == 5
    assert line["level"] == "warning"
    assert line["failed"] > 0
    assert not receiver.spans
    assert not [line for line in server.said(least="warning") if str(line["logger"]).startswith("opentelemetry")]


async def _lost(server: Server) -> bool:
    return await server.metric("cloudgraft_trace_spans_total", result="failed") > 0


async def test_a_trace_goes_through_a_front_and_its_node_manager(
    tmp_path: Path, cloud: Cloud, receiver: Receiver
) -> None:
    tracing = {"endpoint": receiver.address}
    manager_text = configuration(
        {"sim": simulated(cloud.url)},
        [small()],
        server={"ops": None},
        nodeManager={"listen": "127.0.0.1:0"},
        tracing={**tracing, "serviceName": "manager"},
    )
    (tmp_path / "manager.yaml").write_text(manager_text)
    with Command("node-manager", "-c", tmp_path / "manager.yaml") as manager:
        url = manager.wait_for(lambda line: line.get("event") == "serving")["address"]
        text = json.dumps(
            {
                "cluster": "test",
                "server": {"listen": "127.0.0.1:0", "ops": "127.0.0.1:0"},
                "providers": [{"type": "node-manager", "address": url}],
                "tracing": {**tracing, "serviceName": "front"},
            }
        )
        with Server(tmp_path / "front.yaml", text) as server:
            await until(server.is_ready)
            await increase(server, 1, f"00-{TRACE}-{CALLER}-01")
            (machine,) = await receiver.has("machine create")
            (create,) = await receiver.has("cloud create")
            (call,) = await receiver.has(INCREASE)
            (request,) = [span for span in await receiver.has("HTTP POST") if span.trace == TRACE]
            assert server.stop() == 0
        assert manager.stop() == 0
    assert (call.parent, request.parent, machine.parent, create.parent) == (CALLER, call.id, request.id, machine.id)
    assert {span.trace for span in (call, request, machine, create)} == {TRACE}
    assert [span.resource["service.name"] for span in (call, request)] == ["front", "manager"]
    assert request.about["http.response.status_code"] == 202


async def test_lists_of_a_cloud_that_a_refresh_brought_are_no_part_of_that_refresh(
    tmp_path: Path, cloud: Cloud, receiver: Receiver
) -> None:
    text = json.loads(settings(cloud, receiver, transport="grpcio", readRatio=1.0))
    with Server(tmp_path / "c.yaml", json.dumps(text)) as server:
        async with server.connected() as provider:
            await until(server.is_ready)
            text["clouds"]["second"] = simulated(cloud.url)
            server.file.write_text(json.dumps(text))
            server.says("it is applied at the next Refresh")
            await provider.refresh()
            lists = await receiver.has("cloud list", 3, cloud="second")
        assert server.stop() == 0
    assert {span.parent for span in lists} == {""}
    assert receiver.named(f"{SERVICE}/Refresh")
