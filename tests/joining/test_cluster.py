"""The nodes of a cluster are looked after: against an API server over real HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from cloudgraft.joining.claims import Claim, Stage
from cloudgraft.joining.cluster import Cluster
from cloudgraft.joining.match import ProblemKind
from cloudgraft.joining.node_changes import ClusterSettings
from cloudgraft.kube.client import KubeClient
from cloudgraft.kube.objects import NODES
from tests.conditions import until
from tests.kube_api import KubeApi

READY = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:10Z"}]}
LOST = {"conditions": [{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:01:00Z"}]}
WANTED = Claim(
    name="m1",
    cloud="lab",
    group="small",
    stage=Stage.WANTED,
    provider_id="lab://1",
    labels={"pool": "x"},
    sets_provider_id=True,
)
GONE = replace(WANTED, stage=Stage.GONE)


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def running(
    client: KubeClient, claims: Sequence[Claim] = (), *, clock: Clock | None = None
) -> AsyncIterator[Cluster]:
    cluster = Cluster(client, ClusterSettings(), clock=clock or Clock(), settles=0.0)
    cluster.claim("lab", claims)
    task = asyncio.create_task(cluster.run())
    try:
        yield cluster
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def join(api: KubeApi, name: str, status: dict[str, Any] | None = None, **spec: object) -> None:
    api.store.create("nodes", "", {"metadata": {"name": name}, "spec": spec, "status": status or READY})


def stored(api: KubeApi, name: str) -> dict[str, Any]:
    return api.store.find("nodes", name) or {}


def provider_id(api: KubeApi, name: str) -> str | None:
    found: str | None = stored(api, name).get("spec", {}).get("providerID")
    return found


def changes(api: KubeApi) -> list[str]:
    return [request.verb for request in api.requests if request.method != "GET"]


# -- joining -----------------------------------------------------------------------------------------------------------


async def test_a_node_that_joins_gets_its_provider_id_and_its_labels(api: KubeApi, client: KubeClient) -> None:
    heard: list[str] = []
    async with running(client, [WANTED]) as cluster:
        cluster.listen(lambda: heard.append("news"))
        assert not cluster.is_known
        assert cluster.joined("m1") is None
        await until(lambda: cluster.is_known)
        join(api, "m1")
        await until(lambda: provider_id(api, "m1") == "lab://1")
        await until(lambda: (joined := cluster.joined("m1")) is not None and joined.node.provider_id == "lab://1")
        assert stored(api, "m1")["metadata"]["labels"] == {"pool": "x"}
        assert cluster.problems() == ()
        assert heard
        assert changes(api) == ["patch"]  # both in one, and once


async def test_a_process_that_does_not_lead_any_more_writes_nothing(api: KubeApi, client: KubeClient) -> None:
    """Not even with claims that nobody has taken back yet, and not when another cloud's are."""
    leads, asked = False, 0

    def is_leading() -> bool:
        nonlocal asked
        asked += 1
        return leads

    async with running(client) as cluster:
        cluster.claim("lab", [WANTED, replace(GONE, name="m2", provider_id="lab://2")], is_leading)
        cluster.claim("other", ())
        join(api, "m1")
        join(api, "m2", LOST, providerID="lab://2")
        await until(lambda: asked >= 4)
        assert changes(api) == []
        leads = True
        await until(lambda: provider_id(api, "m1") == "lab://1" and not stored(api, "m2"))


async def test_nothing_is_written_to_the_nodes_of_a_cloud_that_is_only_observed(
    api: KubeApi, client: KubeClient
) -> None:
    """They are matched all the same, and those of other clouds are looked after."""
    seen = [replace(WANTED, is_observed=True), replace(GONE, name="m2", provider_id="lab://2", is_observed=True)]
    other = replace(WANTED, name="m3", cloud="other", provider_id="other://3")
    join(api, "m1")
    join(api, "m2", LOST, providerID="lab://2")
    join(api, "m3")
    async with running(client, seen) as cluster:
        cluster.claim("other", [other])
        await until(lambda: provider_id(api, "m3") == "other://3")
        assert cluster.joined("m1") is not None
        assert (provider_id(api, "m1"), provider_id(api, "m2")) == (None, "lab://2")
        assert changes(api) == ["patch"]
        cluster.claim("lab", [replace(claim, is_observed=False) for claim in seen])
        await until(lambda: provider_id(api, "m1") == "lab://1" and not stored(api, "m2"))


async def test_the_engine_learns_since_when_a_node_is_not_ready(api: KubeApi, client: KubeClient) -> None:
    join(api, "m1", providerID="lab://1")
    async with running(client, [WANTED]) as cluster:
        await until(lambda: (joined := cluster.joined("m1")) is not None and joined.unready_since is None)
        await client.patch(NODES, "m1", {"status": LOST}, subresource="status")
        await until(lambda: (joined := cluster.joined("m1")) is not None and joined.unready_since == 1_767_225_660.0)


async def test_a_provider_id_that_another_client_set_first_stays(api: KubeApi, client: KubeClient) -> None:
    """R30: immutable once set. The patch is based on the version that was seen."""
    async with running(client, [WANTED]) as cluster:
        await until(lambda: cluster.is_known)
        api.refuse(lambda request: request.method == "PATCH", 503, times=1)
        join(api, "m1")
        await until(lambda: "patch" in changes(api))
        await client.patch(NODES, "m1", {"spec": {"providerID": "other://1"}})
        await until(lambda: [problem.kind for problem in cluster.problems()] == [ProblemKind.OTHER_PROVIDER_ID])
        assert provider_id(api, "m1") == "other://1"
        assert cluster.joined("m1") is None


async def test_a_node_that_many_change_at_once_is_written_when_it_rests(
    api: KubeApi, client: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A change based on an old version is refused, and made again on the new one; that is no trouble."""
    caplog.set_level(logging.WARNING, logger="cloudgraft.joining")
    conflict = {"kind": "Status", "reason": "Conflict", "message": "the object has been modified"}
    api.refuse(lambda request: request.method == "PATCH", 409, conflict, times=2)
    join(api, "m1")
    async with running(client, [WANTED]):
        await until(lambda: provider_id(api, "m1") == "lab://1")
    assert caplog.messages == []


async def test_nothing_is_written_where_it_is_not_certain(
    api: KubeApi, client: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="cloudgraft.joining")
    join(api, "a")
    api.store.create("nodes", "", {"metadata": {"name": "b", "labels": {"kubernetes.io/hostname": "m1"}}})
    join(api, "m1")
    async with running(client, [WANTED]) as cluster:
        await until(lambda: len(cluster.problems()) == 2)
        await until(lambda: len(caplog.messages) == 2)
        assert {problem.kind for problem in cluster.problems()} == {ProblemKind.TWO_NODES}
        api.store.delete(("nodes", "", "b"), {})  # as the problem says to do
        await until(lambda: provider_id(api, "m1") == "lab://1")
        assert cluster.problems() == ()
    assert len(caplog.messages) == 2  # each told once
    assert changes(api) == ["patch"]


async def test_a_machine_claimed_after_its_node_joined_is_matched(api: KubeApi, client: KubeClient) -> None:
    join(api, "m1")
    async with running(client) as cluster:
        await until(lambda: cluster.is_known)
        assert cluster.joined("m1") is None
        cluster.claim("lab", [WANTED])
        assert cluster.joined("m1") is not None  # at once, from memory
        await until(lambda: provider_id(api, "m1") == "lab://1")
        cluster.claim("lab", [])
        assert cluster.joined("m1") is None


# -- going -------------------------------------------------------------------------------------------------------------


async def test_the_node_of_a_machine_that_is_gone_is_removed(api: KubeApi, client: KubeClient) -> None:
    """R57."""
    join(api, "m1", LOST, providerID="lab://1")
    join(api, "m2", LOST, providerID="lab://2")
    async with running(client, [GONE]) as cluster:
        await until(lambda: stored(api, "m1") == {})
        await until(lambda: cluster.joined("m1") is None)
    assert stored(api, "m2") != {}
    assert changes(api) == ["delete"]


async def test_a_node_that_still_says_that_it_is_ready_is_given_a_minute(api: KubeApi, client: KubeClient) -> None:
    clock = Clock()
    join(api, "m1", providerID="lab://1")
    join(api, "m9", LOST, providerID="lab://9")
    async with running(client, [GONE], clock=clock) as cluster:
        await until(lambda: cluster.joined("m1") is not None)
        clock.now += 59
        cluster.claim("lab", [GONE, replace(GONE, name="m9", provider_id="lab://9")])
        await until(lambda: stored(api, "m9") == {})
        assert stored(api, "m1") != {}
        clock.now += 1
        await until(lambda: stored(api, "m1") == {})


async def test_the_node_of_a_machine_that_is_back_under_the_same_provider_id_stays(
    api: KubeApi, client: KubeClient
) -> None:
    again = replace(WANTED, name="m2", labels={})
    join(api, "m1", LOST, providerID="lab://1")
    async with running(client, [GONE, again]) as cluster:
        await until(lambda: cluster.joined("m2") is not None)
        join(api, "m3", LOST, providerID="lab://3")
        cluster.claim("lab", [GONE, again, replace(GONE, name="m3", provider_id="lab://3")])
        await until(lambda: stored(api, "m3") == {})
    assert stored(api, "m1") != {}


async def test_a_node_that_was_made_anew_under_the_same_name_is_not_the_one_that_is_removed(
    api: KubeApi, client: KubeClient
) -> None:
    """The uid is named: what we have not seen yet cannot be meant."""
    join(api, "m1", LOST, providerID="lab://1")
    api.refuse(lambda request: request.method == "DELETE", 503, times=1)
    async with running(client, [GONE]) as cluster:
        await until(lambda: changes(api) == ["delete"])
        cluster.claim("lab", [])
        api.store.delete(("nodes", "", "m1"), {})
        join(api, "m1", providerID="lab://7")
        await until(lambda: [node.provider_id for node in cluster._nodes.objects.values()] == ["lab://7"])
        cluster.claim("lab", [GONE])
        await until(lambda: cluster.is_known)
    assert provider_id(api, "m1") == "lab://7"


# -- trouble -----------------------------------------------------------------------------------------------------------


async def test_while_the_api_is_away_nothing_happens_and_then_it_catches_up(
    api: KubeApi, client: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="cloudgraft")
    join(api, "m2", LOST, providerID="lab://2")
    async with running(client) as cluster:
        await until(lambda: cluster.is_known and len(cluster._nodes.objects) == 1)
        api.stop()
        await until(lambda: len(caplog.messages) == 1)
        cluster._stale_after = 0.0  # as if the limit had passed since the API was last heard
        assert not cluster.is_known
        join(api, "m1")
        cluster.claim("lab", [WANTED, replace(GONE, name="m2", provider_id="lab://2")])
        assert cluster.joined("m2") is not None  # what was known stays known, and is said to be old
        api.start()
        await until(lambda: cluster.joined("m1") is not None)
        cluster._stale_after = 90.0
        await until(lambda: provider_id(api, "m1") == "lab://1")
        await until(lambda: stored(api, "m2") == {})
    assert len(caplog.messages) == 1
    assert "trouble with the Kubernetes API" in caplog.messages[0]
    assert sorted(changes(api)) == ["delete", "patch"]


async def test_a_missing_right_is_logged_once_and_is_a_problem_until_granted(
    api: KubeApi, client: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="cloudgraft.joining")
    api.denied = {("patch", "nodes"), ("delete", "nodes")}
    join(api, "m1")
    join(api, "m2", LOST, providerID="lab://2")
    join(api, "m3", LOST, providerID="lab://3")
    gone = [replace(GONE, name=f"m{number}", provider_id=f"lab://{number}") for number in (2, 3)]
    async with running(client, [WANTED, *gone]) as cluster:
        await until(lambda: len(cluster.problems()) == 2 and len(changes(api)) >= 4)
        told = sorted(map(str, cluster.problems()))
        assert "the account may not patch nodes: grant it" in told[0]
        assert "the account may not delete nodes: grant it" in told[1]
        assert len(caplog.messages) == 2
        api.denied = set()
        await until(lambda: provider_id(api, "m1") == "lab://1" and stored(api, "m3") == {})
        await until(lambda: cluster.problems() == ())


async def test_without_the_right_to_watch_it_says_so(
    api: KubeApi, client: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    api.denied = {("list", "nodes")}
    async with running(client, [WANTED]) as cluster:
        await until(lambda: any("the account may not list nodes: grant it" in text for text in caplog.messages))
        assert not cluster.is_known


async def test_a_bug_does_not_end_it(
    api: KubeApi, client: KubeClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 6: somebody's callback must not cost the nodes their care."""
    monkeypatch.setattr("cloudgraft.joining.cluster._AFTER_A_BUG", 0.0)
    async with running(client, [WANTED]) as cluster:
        await until(lambda: cluster.is_known)
        calls: list[int] = []

        def fail_once() -> None:
            calls.append(1)
            if len(calls) == 1:
                raise LookupError("a bug")

        cluster.listen(fail_once)
        join(api, "m1")
        await until(lambda: provider_id(api, "m1") == "lab://1")
    assert "the watch of the nodes failed; it restarts" in caplog.messages
