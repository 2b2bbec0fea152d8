"""Faults at AWS, or on the way there."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

from cloudgraft.providers.ec2_asg import provider as module
from cloudgraft.providers.ec2_asg.cloud import Survey
from cloudgraft.providers.ec2_asg.errors import ERRORS
from cloudgraft.sdk.errors import (
    AuthenticationError,
    CloudgraftError,
    DeadlineError,
    PermissionDeniedError,
    RateLimitedError,
    UnavailableError,
)
from cloudgraft.service.snapshot import SnapshotProvider, SnapshotSettings
from clouds.servers.asg_groups import desired, members
from clouds.servers.aws_cloud import AwsCloud
from clouds.servers.aws_proxy import Fault, Kind
from tests.conditions import until
from tests.providers.ec2_asg.asg_scene import NewAsg, NewProvider, nodes

pytestmark = pytest.mark.xdist_group("ec2")
THOROUGH = pytest.mark.thorough
DESCRIBE, SET, END = "DescribeAutoScalingGroups", "SetDesiredCapacity", "TerminateInstanceInAutoScalingGroup"


# -- looking -----------------------------------------------------------------------------------------------------------


async def test_rate_limit_keeps_the_last_read_and_pauses_calls(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = new_asg(desired=1)
    provider = await new_provider(name)
    cloud.proxy.order(Fault(action=DESCRIBE, code="Throttling", message="Rate exceeded"))
    for _ in range(3):
        with pytest.raises(RateLimitedError, match="interval"):
            await provider.refresh()
    assert len(cloud.proxy.called(DESCRIBE)) >= 2
    asked = len(cloud.proxy.called(DESCRIBE))
    with pytest.raises(RateLimitedError):
        await provider.refresh()
    assert len(cloud.proxy.called(DESCRIBE)) == asked
    assert await provider.target_size(name) == 1
    monkeypatch.setattr(module, "_RATE_LIMIT_PAUSE", 0.0)
    fresh = await new_provider(name)
    cloud.proxy.order(Fault(action=DESCRIBE, code="Throttling"))
    with pytest.raises(RateLimitedError):
        await fresh.refresh()
    await fresh.refresh()


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (Fault(kind=Kind.ERROR, code="InternalFailure", status=500, times=2), UnavailableError, "InternalFailure"),
        pytest.param(Fault(kind=Kind.HTML, status=500, times=2), UnavailableError, "groups", marks=THOROUGH),
        pytest.param(Fault(kind=Kind.LOST, times=2), UnavailableError, "groups", marks=THOROUGH),
        pytest.param(Fault(kind=Kind.CUT, times=2), UnavailableError, "groups", marks=THOROUGH),
        (Fault(kind=Kind.HALF, times=2), UnavailableError, "groups"),
        (Fault(code="AccessDenied", status=403), PermissionDeniedError, "use-ec2-auto-scaling-groups"),
    ],
    ids=lambda value: value.kind.value + value.code if isinstance(value, Fault) else "",
)
async def test_failed_read_changes_nothing(
    cloud: AwsCloud,
    new_asg: NewAsg,
    new_provider: NewProvider,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
    error: type[CloudgraftError],
    words: str,
) -> None:
    monkeypatch.setattr("cloudgraft.drivers.ec2.session._PAUSE", (0.0, 0.0))
    name = new_asg(desired=1)
    provider = await new_provider(name)
    fault.action = DESCRIBE
    cloud.proxy.order(fault)
    with pytest.raises(error, match=words):
        await provider.refresh()
    assert await provider.target_size(name) == 1
    await provider.refresh()


async def test_wrong_credentials_and_a_wrong_clock_are_reported(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider
) -> None:
    name = new_asg()
    wrong = await new_provider(name, account=cloud.options("wrong", "AKIANOBODY", "not-the-secret"))
    with pytest.raises(AuthenticationError, match="access key") as caught:
        await wrong.refresh()
    assert "not-the-secret" not in caught.value.message
    with pytest.raises(UnavailableError):
        await wrong.node_groups()
    late = await new_provider(name)
    cloud.proxy.clock_ahead = timedelta(hours=1)
    with pytest.raises(AuthenticationError, match="clock"):
        await late.refresh()


async def test_read_continues_after_a_caller_gives_up_and_the_next_joins_it(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider
) -> None:
    name = new_asg(desired=1)
    provider = await new_provider(name)
    asked = len(cloud.proxy.called(DESCRIBE))
    first = asyncio.create_task(provider.refresh())
    await until(lambda: len(cloud.proxy.called(DESCRIBE)) > asked)
    first.cancel()
    await provider.refresh()
    assert len(cloud.proxy.called(DESCRIBE)) == asked + 1


async def test_read_that_began_before_a_change_does_not_undo_it(
    new_asg: NewAsg, new_provider: NewProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = new_asg(desired=1)
    provider = await new_provider(name)
    cloud, real = provider._cloud, provider._cloud.survey
    loop, seen, go_on = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def slow(waiting: list[str]) -> Survey:
        found = real(waiting)
        loop.call_soon_threadsafe(seen.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(20)
        return found

    monkeypatch.setattr(cloud, "survey", slow)
    look = asyncio.create_task(provider.refresh())
    await seen.wait()
    await provider.increase_size(name, 2)
    go_on.set()
    await look
    assert await provider.target_size(name) == 3


async def test_broken_group_is_left_out_and_the_other_works(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider
) -> None:
    template = cloud.client.create_launch_template(
        LaunchTemplateName="doomed", LaunchTemplateData={"InstanceType": "t3.gigantic"}
    )
    doomed = {"LaunchTemplateId": template["LaunchTemplate"]["LaunchTemplateId"], "Version": "$Latest"}
    good, strange, gone = new_asg(desired=1), new_asg(LaunchTemplate=doomed), new_asg(LaunchTemplate=doomed)
    cloud.proxy.scaling.extra[gone] = (
        "<LaunchTemplate><LaunchTemplateId>lt-0123456789abcdef0</LaunchTemplateId><Version>7</Version></LaunchTemplate>"
    )
    inner = await new_provider(good, strange, gone)
    snapshot = SnapshotProvider(inner, name="asg", settings=SnapshotSettings(refresh_every=60.0))
    await snapshot.start()
    try:
        assert [group.id for group in await snapshot.node_groups()] == [good]
        assert f"group {strange}" in snapshot.trouble
        assert "t3.gigantic" in snapshot.trouble
        assert f"group {gone}" in snapshot.trouble
        await snapshot.increase_size(good, 1)
        assert await snapshot.target_size(good) == 2
    finally:
        await snapshot.close()
        cloud.client.delete_launch_template(LaunchTemplateName="doomed")


# -- changing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        Fault(kind=Kind.LOST),
        pytest.param(Fault(kind=Kind.HANG), marks=THOROUGH),
        pytest.param(Fault(kind=Kind.CUT), marks=THOROUGH),
        pytest.param(Fault(kind=Kind.HTML, status=502), marks=THOROUGH),
        Fault(code="InternalFailure", status=500),  # not carried out: the same number is sent once more
        Fault(code="Throttling"),
        pytest.param(Fault(code="ResourceContention", status=500), marks=THOROUGH),
    ],
    ids=lambda fault: fault.kind.value + fault.code,
)
async def test_an_increase_whose_answer_is_lost_is_made_once(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider, fault: Fault
) -> None:
    name = new_asg(desired=1)
    provider = await new_provider(name, change_timeout=timedelta(seconds=3 if fault.kind is Kind.HANG else 10))
    fault.action = SET
    cloud.proxy.order(fault)
    await provider.increase_size(name, 2)
    assert await provider.target_size(name) == desired(cloud, name) == len(members(cloud, name)) == 3


@pytest.mark.parametrize(
    "kind",
    [Kind.HTML, *(pytest.param(kind, marks=THOROUGH) for kind in (Kind.LOST, Kind.HANG))],
    ids=lambda kind: kind.value,
)
async def test_termination_with_a_lost_response_lowers_the_desired_capacity_once(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider, kind: Kind
) -> None:
    name = new_asg(desired=3)
    provider = await new_provider(name, change_timeout=timedelta(seconds=3 if kind is Kind.HANG else 10))
    cloud.proxy.scaling.ends_slowly = kind is Kind.HTML
    cloud.proxy.order(Fault(kind=kind, action=END, status=500))
    asked = len(cloud.proxy.called(END))
    await provider.delete_nodes(name, nodes(members(cloud, name)[0]))
    assert await provider.target_size(name) == desired(cloud, name) == 2
    assert len(cloud.proxy.called(END)) == asked + 1


async def test_termination_that_was_not_done_is_not_sent_twice(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider
) -> None:
    name = new_asg(desired=2)
    provider = await new_provider(name)
    own = members(cloud, name)[0]
    asked = len(cloud.proxy.called(END))
    cloud.proxy.order(Fault(action=END, code="InternalFailure", status=500))
    with pytest.raises(DeadlineError):
        await provider.delete_nodes(name, nodes(own))
    assert len(cloud.proxy.called(END)) == asked + 1
    assert await provider.target_size(name) == 2
    await provider.delete_nodes(name, nodes(own))
    assert await provider.target_size(name) == desired(cloud, name) == 1


async def test_when_nothing_can_be_seen_the_outcome_is_unknown_and_shows_later(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider
) -> None:
    name = new_asg()
    provider = await new_provider(name)
    cloud.proxy.order(Fault(kind=Kind.LOST, action=SET))
    cloud.proxy.order(Fault(action=DESCRIBE, code="Throttling", after=1))
    with pytest.raises(DeadlineError, match="not known"):
        await provider.increase_size(name, 1)
    assert await provider.target_size(name) == 0
    await provider.refresh()
    assert await provider.target_size(name) == 1


async def test_change_gives_up_on_a_hanging_aws_before_the_autoscaler_does(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloudgraft.providers.ec2_asg.changes._CHANGE_SECONDS", 4.5)
    name = new_asg(desired=1)
    provider = await new_provider(name, change_timeout=timedelta(milliseconds=300))
    doomed = members(cloud, name)
    cloud.proxy.order(Fault(kind=Kind.HANG, times=None))
    began = time.monotonic()
    with pytest.raises(UnavailableError):  # not even looked at: nothing was done
        await provider.increase_size(name, 1)
    with pytest.raises((UnavailableError, DeadlineError)):
        await provider.delete_nodes(name, nodes(*doomed))
    await provider.decrease_target_size(name, -1)
    assert time.monotonic() - began < 30.0  # its requests would be held for two minutes
    assert desired(cloud, name) <= 1


async def test_final_refusal_is_raised_and_nothing_is_done(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloudgraft.providers.ec2_asg.changes._CHANGE_SECONDS", 4.5)  # it must run out
    name = new_asg(desired=1)
    provider = await new_provider(name)
    cloud.proxy.order(Fault(action=SET, code="Throttling", times=None))
    with pytest.raises(RateLimitedError):
        await provider.increase_size(name, 1)
    cloud.proxy.clear()
    cloud.proxy.order(Fault(action=SET, code="AccessDenied", status=403))
    with pytest.raises(PermissionDeniedError):
        await provider.increase_size(name, 1)
    assert await provider.target_size(name) == desired(cloud, name) == 1


async def test_two_autoscalers_at_once_are_two_increases(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider
) -> None:
    name = new_asg()
    first, second = await new_provider(name), await new_provider(name)
    await asyncio.gather(first.increase_size(name, 1), first.increase_size(name, 1))
    await second.increase_size(name, 1)  # knows nothing of the others yet
    assert await second.target_size(name) == desired(cloud, name) == 3


def test_every_row_of_the_table_has_words_of_its_own() -> None:
    rows = [(row.code, row.text) for row in ERRORS.rows]
    assert len(set(rows)) == len(rows)
