"""Builds from the configuration what machines need to join: the client of the cluster, its nodes, user data."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from cloudgraft.config import Config, ConfigError, Problem
from cloudgraft.config.sections.cluster import Reach
from cloudgraft.engine.groups.desired import Joining
from cloudgraft.joining.cluster import Cluster
from cloudgraft.joining.tokens import Tokens
from cloudgraft.kube.connect import connect, connect_in_cluster
from cloudgraft.kube.event_recorder import EventRecorder
from cloudgraft.sdk.errors import CloudgraftError

if TYPE_CHECKING:
    from cloudgraft.joining.user_data import UserDataMaker
    from cloudgraft.kube.client import KubeClient


class ClusterLink:
    """The connection to the cluster of one configuration. It lives as long as the process."""

    def __init__(self, config: Config) -> None:
        """Makes no call yet. Raises ConfigError with every error of `kubernetes` and `join`."""
        self._client = client_of(config)
        self.cluster: Cluster | None = None
        self.recorder: EventRecorder | None = None
        self._tokens: Tokens | None = None
        if self._client is not None and config.kubernetes is not None:
            self.cluster = Cluster(self._client, config.kubernetes.as_settings())
            if (events := config.kubernetes.events) is not None:
                own = {"namespace": events.namespace, "deployment": events.deployment}
                self.recorder = EventRecorder(self._client, **own)
            self._tokens = Tokens(self._client, cluster=config.cluster)
        self.joining = self.joining_for(config)

    def joining_for(self, config: Config) -> Joining:
        """The cluster and the user data of a configuration, which may be newer than that of the start."""
        return Joining(cluster=self.cluster, user_data=self._user_data(config))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watches the cluster and writes events to it for as long as the block lasts."""
        parts = [part for part in (self.cluster, self.recorder) if part is not None]
        tasks = {asyncio.create_task(part.run(), name=type(part).__name__) for part in parts}
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
            if self._client is not None:
                await self._client.close()

    def _user_data(self, config: Config) -> UserDataMaker | None:
        joins = config.joins()
        if not joins:
            return None
        # Imported here: Jinja2 loads slowly, and most servers never need it.
        from cloudgraft.joining.template import TemplateError  # noqa: PLC0415
        from cloudgraft.joining.user_data import UserDataMaker  # noqa: PLC0415

        settings = {group.id: group.machine for group in config.groups()}
        plans = {id_: join.as_plan(settings[id_]) for id_, join in joins.items()}
        authority = self._client.authority if self._client is not None else ""
        try:
            return UserDataMaker(plans, cluster=config.cluster, tokens=self._tokens, ca_cert=authority)
        except TemplateError as error:
            problems = [Problem(file=m.file, line=m.line, message=m.message) for m in error.mistakes]
            raise ConfigError(problems) from error


def client_of(config: Config) -> KubeClient | None:
    """A client of the configured cluster; None without one. Raises ConfigError when it cannot be made."""
    wanted = config.kubernetes
    if wanted is None:
        return None
    try:
        return connected(wanted)
    except CloudgraftError as error:
        key = "inCluster" if wanted.in_cluster else "kubeconfig"
        raise config.where("kubernetes", key).error(error.message) from error


def connected(reach: Reach) -> KubeClient:
    """A client of the cluster that a section names."""
    return connect(reach.kubeconfig) if reach.kubeconfig is not None else connect_in_cluster()
