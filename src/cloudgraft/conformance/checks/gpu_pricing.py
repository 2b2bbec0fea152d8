"""Checks GPULabel, GetAvailableGPUTypes, and the two prices."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Final

from cloudgraft.conformance.calls import Answer
from cloudgraft.conformance.check import NotJudged, Violation, server_checks
from cloudgraft.conformance.releases import AGES, Release
from cloudgraft.conformance.stage import Stage
from cloudgraft.sdk.errors import StatusCode
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Container, NodeRef, Pod

CHECKS: Final = server_checks()

_HOUR: Final = timedelta(hours=1)
# What the price expander asks for beside the pods that wait.
_STABILIZE: Final = Pod(
    name="stabilize",
    namespace="default",
    containers=(Container(name="main", requests={"cpu": Quantity("500m"), "memory": Quantity("500Mi")}),),
)


@CHECKS.check("R78")
async def gpu_label_is_answered(stage: Stage) -> None:
    """GPULabel succeeds, with an empty label if there are no GPUs."""
    label = (await stage.calls.gpu_label()).expect()
    if (await stage.calls.gpu_label()).expect() != label:
        raise Violation("two calls of GPULabel gave two different labels, and the autoscaler asks only once")


@CHECKS.check("R80")
async def gpu_types_are_answered(stage: Stage) -> None:
    """GetAvailableGPUTypes succeeds."""
    (await stage.calls.gpu_types()).expect()


@CHECKS.check("R79", after=("gpu_label_is_answered", "templates_are_nodes"))
async def gpu_templates_have_gpus(stage: Stage) -> None:
    """A template with the GPU label has GPUs to give; else its nodes never count as ready."""
    label = (await stage.calls.gpu_label()).expect()
    for group in stage.groups:
        template = await stage.template(group.id)
        if not label or template is None or label not in template.labels:
            continue
        if not any("gpu" in name and amount.value > 0 for name, amount in template.allocatable.items()):
            raise Violation(f"the template of {group.id!r} has the GPU label {label} and no GPU in status.allocatable")


@CHECKS.check("R81", "R83", after=("groups_are_listed",))
async def planned_nodes_have_a_price(stage: Stage) -> None:
    """PricingNodePrice prices the planned node of every group: by labels or name, without providerID or capacity."""
    answers = {group.id: await _node_price(stage, group.id, stage.release) for group in stage.groups}
    if all(answer.status is StatusCode.UNIMPLEMENTED for answer in answers.values()):
        raise NotJudged("the server has no prices: PricingNodePrice answers code 12")
    for group, answer in answers.items():
        answer.expect(f"of a planned node of {group!r}: a group without a price is never chosen")


@CHECKS.check("R82", "R83", after=("planned_nodes_have_a_price",))
async def pods_have_a_price(stage: Stage) -> None:
    """Where nodes have a price, PricingPodPrice prices any pod: an error drops the option that was looked at."""
    (await _pod_price(stage, stage.release)).expect("although nodes have a price")


@CHECKS.check("R84", after=("planned_nodes_have_a_price", "pods_have_a_price"))
async def prices_are_above_zero(stage: Stage) -> None:
    """Prices are finite and above zero: a node for nothing wins against every other."""
    prices = {f"a node of {group.id!r}": await _node_price(stage, group.id, stage.release) for group in stage.groups}
    for what, answer in {**prices, "a pod": await _pod_price(stage, stage.release)}.items():
        price = answer.expect(f"of {what}")
        if not math.isfinite(price) or price <= 0:
            raise Violation(f"the price of {what} for one hour is {price}")


@CHECKS.check("R81", "R82", after=("prices_are_above_zero",))
async def every_release_gets_the_same_price(stage: Stage) -> None:
    """The period and the pod are read from the fields of every release."""
    now = datetime.now(UTC).replace(microsecond=0)
    group = stage.groups[0].id
    nodes = {str(release): (await _node_price(stage, group, release, now)) for release in AGES}
    pods = {str(release): (await _pod_price(stage, release, now)) for release in AGES}
    for what, answers in (("a node", nodes), ("a pod", pods)):
        prices = {release: answer.expect(f"as {release} asks") for release, answer in answers.items()}
        newest = prices[str(AGES[-1])]
        for release, price in prices.items():
            if not math.isclose(price, newest, rel_tol=1e-6):
                raise Violation(f"the price of {what} is {price} as {release} asks and {newest} as {AGES[-1]} asks")


async def _node_price(stage: Stage, group: str, release: Release, start: datetime | None = None) -> Answer[float]:
    template, start = await stage.template(group), start or datetime.now(UTC)
    name = f"template-node-for-{group}-1234567890123456789"
    labels = dict(template.labels) if template else {}
    node = NodeRef(name=name, labels={**labels, "kubernetes.io/hostname": name})
    return await stage.calls.as_release(release).node_price(node, start, start + _HOUR)


async def _pod_price(stage: Stage, release: Release, start: datetime | None = None) -> Answer[float]:
    start = start or datetime.now(UTC)
    return await stage.calls.as_release(release).pod_price(_STABILIZE, start, start + _HOUR)
