"""Where the time goes: the steps of one call, without any socket."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from bench.cluster import FOR_NODE, GET_OPTIONS, Cluster, requests_for
from bench.provider import BenchProvider
from cloudgraft.service import Call, CloudProviderService
from cloudgraft.wire import externalgrpc as wire

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Microseconds per call in the best round, the one least disturbed. ``handle`` includes ``provider``."""

    rpc: str
    nodes: int
    decode: float
    handle: float
    provider: float
    encode: float


async def measure_steps(nodes: int, *, rounds: int, calls: int) -> list[Steps]:
    """The steps of both calls in a cluster of this size."""
    cluster = Cluster.of_size(nodes)
    service = CloudProviderService(BenchProvider(cluster))
    return [await _steps(rpc, service, cluster, rounds, calls) for rpc in (FOR_NODE, GET_OPTIONS)]


async def _steps(rpc: str, service: CloudProviderService, cluster: Cluster, rounds: int, calls: int) -> Steps:
    encoded = requests_for(rpc, cluster)
    requests = [wire.RPCS[rpc].request.FromString(encoded[number % len(encoded)]) for number in range(calls)]
    call = Call(peer="ipv4:127.0.0.1:50000", seconds_left=5.0)
    answers = [await service.handle(rpc, request, call) for request in requests]
    ask = _asking(rpc, service)
    times: dict[str, list[float]] = {"decode": [], "handle": [], "provider": [], "encode": []}
    for _ in range(rounds):
        gc.collect()
        await asyncio.sleep(0)  # the event loop throws away the timers of the calls before
        times["decode"].append(_each(wire.RPCS[rpc].request.FromString, [r.SerializeToString() for r in requests]))
        times["handle"].append(await _each_awaited(lambda request: service.handle(rpc, request, call), requests))
        times["provider"].append(await _each_awaited(ask, [_question(rpc, request) for request in requests]))
        times["encode"].append(_each(lambda answer: answer.SerializeToString(), answers))
    micros = {step: min(values) for step, values in times.items()}
    return Steps(rpc=rpc, nodes=len(cluster.nodes), **micros)


def _asking(rpc: str, service: CloudProviderService) -> Callable[[Any], Awaitable[object]]:
    provider = service.provider
    return provider.node_group_for_node if rpc == FOR_NODE else lambda question: provider.options(*question)


def _question(rpc: str, request: Any) -> Any:
    """What the service asks its provider for such a request."""
    if rpc == FOR_NODE:
        return wire.node_ref_from_pb(request.node)
    return request.id, wire.options_from_pb(request.defaults)


def _each(step: Callable[[T], object], inputs: Sequence[T]) -> float:
    started = time.perf_counter()
    for one in inputs:
        step(one)
    return (time.perf_counter() - started) / len(inputs) * 1e6


async def _each_awaited(step: Callable[[T], Awaitable[object]], inputs: Sequence[T]) -> float:
    started = time.perf_counter()
    for one in inputs:
        await step(one)
    return (time.perf_counter() - started) / len(inputs) * 1e6
