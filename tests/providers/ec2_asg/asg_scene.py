"""Helpers of the tests of Auto Scaling groups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from cloudgraft.providers.ec2_asg.provider import Ec2AsgProvider
from cloudgraft.sdk.types import NodeRef

NewAsg = Callable[..., str]
NewProvider = Callable[..., Awaitable[Ec2AsgProvider]]


def nodes(*ids: str) -> list[NodeRef]:
    return [NodeRef(name=one, provider_id=one) for one in ids]
