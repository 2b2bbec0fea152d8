"""Kubernetes Events: what they are about, how many there are, and what happens when they cannot be written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cloudgraft.kube.client import KubeClient
from cloudgraft.kube.event_recorder import EventRecorder, Notice
from cloudgraft.kube.objects import Node
from cloudgraft.sdk.common.ratelimit import RepeatLimit
from tests.conditions import until
from tests.kube_api import KubeApi

NODE = Node(name="lab-1", uid="uid-of-lab-1")


@pytest.fixture
async def recorder(client: KubeClient) -> AsyncIterator[EventRecorder]:
    made = EventRecorder(client, namespace="kube-system", deployment="cloudgraft")
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()
    await asyncio.wait({task})


@pytest.fixture
def deployment(api: KubeApi) -> dict[str, Any]:
    made: dict[str, Any] = api.store.create("deployments.apps", "kube-system", {"metadata": {"name": "cloudgraft"}})
    return made


def events(api: KubeApi, namespace: str) -> list[dict[str, Any]]:
    return api.store.items("events", namespace)


async def written(api: KubeApi, namespace: str, count: int) -> list[dict[str, Any]]:
    await until(lambda: len(events(api, namespace)) >= count, what=f"{count} events")
    return events(api, namespace)


async def test_an_event_about_a_node_is_where_kubectl_describe_looks_for_it(
    api: KubeApi, recorder: EventRecorder
) -> None:
    recorder.record(Notice(reason="MachineReplaced", message="its node is not ready", node=NODE))
    (event,) = await written(api, "default", 1)
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "lab-1", "uid": "uid-of-lab-1"}
    assert (event["type"], event["reason"]) == ("Warning", "MachineReplaced")
    assert event["message"] == "its node is not ready"
    assert event["source"] == {"component": "cloudgraft"}


async def test_an_event_about_no_node_is_about_the_deployment_as_it_is_now(
    api: KubeApi, recorder: EventRecorder, deployment: dict[str, Any]
) -> None:
    recorder.record(Notice(reason="GuardHit", message="x" * 5000))
    (event,) = await written(api, "kube-system", 1)
    assert event["involvedObject"]["kind"] == "Deployment"
    assert event["involvedObject"]["uid"] == deployment["metadata"]["uid"]
    assert len(event["message"]) == 1024  # the API refuses more


async def test_the_same_reason_is_written_once_a_minute_and_others_no_faster_than_the_limit(
    api: KubeApi, recorder: EventRecorder, deployment: dict[str, Any]
) -> None:
    del deployment
    for _ in range(10):
        recorder.record(Notice(reason="GuardHit", message="a guard refused a machine"))
    for number in range(100):
        recorder.record(Notice(reason=f"Reason{number}", message="a flood", node=NODE))
    recorder.record(Notice(reason="Last", message="too many before it"))
    await written(api, "default", 24)
    assert [event["reason"] for event in events(api, "kube-system")] == ["GuardHit"]
    assert len(events(api, "default")) <= 25


async def test_the_next_event_says_how_many_like_it_were_not_written(
    api: KubeApi, recorder: EventRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(recorder, "_repeats", RepeatLimit(clock=lambda: now[0]))
    for _ in range(10):
        recorder.record(Notice(reason="JoinFailed", message="it did not join", node=NODE))
    now[0] += 61
    recorder.record(Notice(reason="JoinFailed", message="x" * 5000, node=NODE))
    _, last = sorted(await written(api, "default", 2), key=lambda event: len(event["message"]))
    assert last["message"].endswith(" (and 9 more since the last one: see cloudgraft events)")
    assert len(last["message"]) == 1024


async def test_a_deployment_that_is_not_there_is_answered_with_the_key_to_set(
    recorder: EventRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "cloudgraft.kube"):
        recorder.record(Notice(reason="GuardHit", message="a guard refused a machine"))
        await until(lambda: "set kubernetes.events.deployment" in caplog.text, what="the log says what to do")


async def test_events_that_cannot_be_written_are_reported_once_and_the_next_ones_are_tried(
    api: KubeApi, recorder: EventRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    api.denied = {("create", "events")}
    with caplog.at_level(logging.WARNING, "cloudgraft.kube"):
        for reason in ("First", "Second"):
            recorder.record(Notice(reason=reason, message="it may not", node=NODE))
        await until(lambda: sum(r.method == "POST" for r in api.requests) == 2, what="both were tried")
        api.denied = set()
        recorder.record(Notice(reason="Third", message="it may", node=NODE))
        (event,) = await written(api, "default", 1)
    assert event["reason"] == "Third"
    told = [record.getMessage() for record in caplog.records if "Kubernetes Events" in record.getMessage()]
    assert len(told) == 1
    assert "may not create events" in told[0]
