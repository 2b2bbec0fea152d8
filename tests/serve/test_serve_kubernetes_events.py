"""`kubectl describe` shows what went wrong: Events of a whole server on Nodes and on its own Deployment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conditions import until
from tests.kube_api import KubeApi
from tests.serve.served_clouds import Cloud
from tests.serve.servers import Server, running
from tests.serve.settings import configuration, simulated, small
from tests.simcloud.sim_process import call


@pytest.fixture
def api() -> Iterator[KubeApi]:
    made = KubeApi()
    made.start()
    made.store.create("deployments.apps", "kube-system", {"metadata": {"name": "cloudgraft"}})
    yield made
    made.stop()


def reasons(api: KubeApi, namespace: str, about: str) -> dict[str, str]:
    """The messages by reason of all events about one object."""
    found: list[dict[str, Any]] = api.store.items("events", namespace)
    return {event["reason"]: event["message"] for event in found if event["involvedObject"]["name"] == about}


async def test_a_failed_join_a_guard_and_an_orphan_are_events_of_the_deployment(tmp_path: Path, api: KubeApi) -> None:
    with Cloud(tmp_path) as cloud:  # without kubelets, so that no machine joins
        text = configuration(
            {"sim": simulated(cloud.url)},
            [small()],
            engine={"joinDeadline": "1s"},
            guards={"maxMachines": 2},
            kubernetes={"kubeconfig": str(api.kubeconfig(tmp_path)), "events": {"deployment": "cloudgraft"}},
        )
        with Server(tmp_path / "c.yaml", text) as server:
            async with server.connected() as provider:
                await provider.increase_size("small", 3)
                await until(lambda: cloud.made() == 2, what="what the guard allows was made")
            tags = {**cloud.ledger()[0]["tags"], "cloudgraft-name": "stranger"}
            call(cloud.url, "POST", "/machines", {"name": "stranger", "shape": "small", "tags": tags})
            wanted = {"JoinFailed", "GuardHit", "OrphanFound"}
            await until(
                lambda: wanted <= reasons(api, "kube-system", "cloudgraft").keys(), what="all three", seconds=30
            )
    found = reasons(api, "kube-system", "cloudgraft")
    assert "did not join the cluster in time" in found["JoinFailed"]
    assert found["JoinFailed"].startswith("group small machine ")
    assert "maxMachines is 2" in found["GuardHit"]


@pytest.mark.thorough
async def test_a_warning_about_a_machine_with_a_node_is_an_event_of_that_node(tmp_path: Path, api: KubeApi) -> None:
    with Cloud(tmp_path, "--kubeconfig", str(api.kubeconfig(tmp_path))) as cloud:
        text = configuration(
            {"sim": simulated(cloud.url)},
            [small()],
            kubernetes={"kubeconfig": str(tmp_path / "kubeconfig"), "events": {"deployment": "cloudgraft"}},
        )
        with Server(tmp_path / "c.yaml", text) as server:
            async with server.connected() as provider:
                await provider.increase_size("small", 1)
                await running(provider, "small", 1)
                await until(lambda: _joined(server), what="its node has joined")
                (name,) = cloud.live().values()
                await server.admin("ReleaseMachines", machines=[name], dryRun=False)
                await until(lambda: "Released" in reasons(api, "default", name), what="an event")


async def _joined(server: Server) -> bool:
    return await server.metric("cloudgraft_nodes", group="small", state="ready") == 1
