"""cloudgraft before its own judge: the engine, a provider of an author, and the proxy."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from cloudgraft.client import Address, CloudConfig, Connection
from cloudgraft.conformance import KitConfig, Report, Status, run
from cloudgraft.testing import MemoryGroup, MemoryOptions, MemoryProvider, serving
from cloudgraft.wire.externalgrpc import RPCS
from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from tests.conditions import until
from tests.conformance.kit_served import restartable
from tests.serve.served_clouds import Cloud
from tests.serve.servers import Server
from tests.serve.settings import configuration, simulated

GROUPS = (
    MemoryGroup(id="small", max_size=10, hourly_price=0.1, boot_seconds=0.05, delete_seconds=0.05),
    MemoryGroup(id="floor", min_size=2, max_size=4, hourly_price=0.3),
)


def told(report: Report) -> str:
    ended = [result for result in report.results if result.status is not Status.PASSED]
    return "\n".join(f"{r.status} {r.check}: {r.message}" for r in ended) + f"\nleft: {report.left_behind}"


def skipped(report: Report) -> set[str]:
    return {result.check for result in report.results if result.status is Status.SKIPPED}


@pytest.mark.parametrize(
    "release", ["1.37", *(pytest.param(one, marks=pytest.mark.thorough) for one in ("1.25", "1.29", "1.33", "1.34"))]
)
async def test_a_provider_behind_cloudgraft_passes_as_every_release_asks(release: str) -> None:
    async with serving(MemoryProvider(MemoryOptions(groups=GROUPS))) as served:
        report = await run(KitConfig(address=served.address), release=release)
    assert report.is_passed, told(report)
    assert report.release == release
    assert report.count(Status.BLOCKED) == 0
    too_new = set() if release == "1.37" else {"trace_timed_out_scale_up"}
    assert skipped(report) - too_new == {
        "http2_is_agreed_on",  # needs TLS
        "stock_out_is_told",
        "failed_machines_can_be_deleted",
        "a_slow_cloud_slows_no_call",
        "a_lost_machine_can_be_deleted",
        "a_restart_loses_nothing",
        "a_restart_in_the_middle_loses_nothing",
    }


@pytest.mark.thorough
async def test_over_tls_the_server_agrees_on_http2(tmp_path: Path) -> None:
    """R9: with the cloud-config that the autoscaler would get."""
    async with serving(MemoryProvider(MemoryOptions(groups=GROUPS)), mtls_in=tmp_path / "certs") as served:
        file = tmp_path / "cloud-config.yaml"
        file.write_text(served.cloud_config)
        report = await run(KitConfig(cloud_config=str(file)), only=["R9", "R1"])
    assert report.is_passed, told(report)
    assert "http2_is_agreed_on" not in skipped(report)


@pytest.mark.thorough
@pytest.mark.timeout(180)  # three starts of a server
async def test_the_engine_passes_everything_with_every_hook(tmp_path: Path) -> None:
    with Cloud(tmp_path) as cloud:
        address = f"unix:{tmp_path}/s"  # the same after a restart
        groups = [
            {"id": "small", "cloud": "sim", "maxSize": 10, "machine": {"shape": "small"}},
            {"id": "floor", "cloud": "sim", "minSize": 2, "maxSize": 4, "machine": {"shape": "small"}},
        ]
        server = {"listen": address, "ops": "127.0.0.1:0"}
        file = tmp_path / "cloudgraft.yaml"
        text = json.loads(configuration({"sim": simulated(cloud.url, {"observeEvery": "50ms"})}, groups))
        file.write_text(json.dumps({**text, "server": server}))
        chaos = [sys.executable, str(Path(__file__).with_name("kit_chaos.py")), cloud.url]
        with restartable(file) as restart:
            await _answers(address)
            kit = KitConfig.model_validate(
                {
                    "address": address,
                    "hooks": {
                        "stockOut": {"begin": [*chaos, '{"stock": {"small": 0}}'], "end": [*chaos, "{}"]},
                        "slowCloud": {"begin": [*chaos, '{"hang": 60}'], "end": [*chaos, "{}"]},
                        "lostMachine": [*chaos, "vanish", "{id}"],
                        "restart": restart,
                    },
                }
            )
            report = await run(kit)
            assert report.is_passed, told(report)
            # No TLS, and a simulated machine's id does not tell its node's name, though its placeholder may.
            by_name = {"fresh_nodes_are_found_by_name", "nodes_are_deleted_by_name"}
            assert skipped(report) - by_name == {"http2_is_agreed_on"}
            await until(lambda: not cloud.live(), what="every machine that the kit made is gone from the cloud")
        assert cloud.made() > 10
        assert not cloud.doubles()


@pytest.mark.thorough
async def test_the_proxy_passes_what_the_server_behind_it_passes(tmp_path: Path) -> None:
    async with serving(MemoryProvider(MemoryOptions(groups=GROUPS))) as behind:
        file = tmp_path / "proxy.yaml"
        snapshot = {"refreshEvery": "100ms"}
        provider = {"type": "externalgrpc", "address": behind.address, "snapshot": snapshot}
        text = json.loads(configuration({}, []))
        file.write_text(json.dumps({"cluster": "test", "server": text["server"], "providers": [provider]}))
        with Server(file) as proxy:
            report = await run(KitConfig(address=await asyncio.to_thread(lambda: proxy.address)))
    assert report.is_passed, told(report)


async def _answers(address: str) -> None:
    config = CloudConfig(address=Address.parse(address))
    async with Connection(config) as connection:

        async def is_up() -> bool:
            try:
                await connection.call(RPCS["NodeGroups"], pb.NodeGroupsRequest())
            except Exception:  # noqa: BLE001 - whatever: it is not up yet
                return False
            return True

        await until(is_up, what="the server answers", seconds=60)
