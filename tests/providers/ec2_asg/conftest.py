"""Auto Scaling groups in moto, and providers that read them."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.drivers.ec2.options import AccountOptions
from cloudgraft.drivers.ec2.session import Clients
from cloudgraft.providers.ec2_asg.options import Ec2AsgOptions
from cloudgraft.providers.ec2_asg.provider import Ec2AsgProvider
from clouds.servers.asg_groups import CLUSTER, AsgGroups, make_templates
from clouds.servers.aws_cloud import AwsCloud
from tests.providers.ec2_asg.asg_scene import NewAsg, NewProvider


class LastingClients(Clients):
    """Not closed with the provider: to make them anew for each test takes longer than most tests."""

    def close(self) -> None:
        """Stays open."""


@pytest.fixture(scope="session")
def templates(aws: AwsCloud) -> None:
    make_templates(aws)


@pytest.fixture(scope="session")
def account(aws: AwsCloud) -> dict[str, Any]:
    return aws.account("asg")


@pytest.fixture(scope="session")
def lasting() -> dict[object, LastingClients]:
    return {}


@pytest.fixture
def cloud(aws: AwsCloud, templates: None) -> Iterator[AwsCloud]:
    yield aws
    aws.proxy.clear()


@pytest.fixture
def new_asg(cloud: AwsCloud) -> Iterator[NewAsg]:
    """Makes groups, each with a name of its own; they are removed in the end."""
    groups = AsgGroups(cloud)
    yield groups.make
    groups.remove()


@pytest.fixture
async def new_provider(
    account: dict[str, Any], lasting: dict[object, LastingClients], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[NewProvider]:
    """Makes providers for groups; they are started, have looked once, and are closed in the end."""

    def clients(options: AccountOptions) -> LastingClients:
        key = (options.access_key_id_file, options.timeout)
        return lasting.setdefault(key, LastingClients(options))

    monkeypatch.setattr("cloudgraft.providers.ec2_asg.cloud.Clients", clients)
    monkeypatch.setattr(
        "cloudgraft.providers.ec2_asg.changes._CHANGE_SECONDS", 60.0
    )  # moto may be slow; no autoscaler waits
    own = account
    async with AsyncExitStack() as stack:

        async def make(*groups: str, account: dict[str, Any] | None = None, **changes: Any) -> Ec2AsgProvider:
            options = account or own
            given = Ec2AsgOptions(
                region=options["region"],
                endpoint_url=options["endpointUrl"],
                access_key_id_file=Path(options["accessKeyIdFile"]),
                secret_access_key_file=Path(options["secretAccessKeyFile"]),
                groups=groups,
                tags={} if groups else {CLUSTER: "owned"},
                interval=timedelta(0),
                change_timeout=timedelta(seconds=10),
            )
            provider = Ec2AsgProvider(dataclasses.replace(given, **changes))
            await provider.start()
            stack.push_async_callback(provider.close)
            if account is None:
                await provider.refresh()
            return provider

        yield make
