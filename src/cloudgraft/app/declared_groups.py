"""Validates groups that operators declare at run time, by the rules of the file and together with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from cloudgraft.app.dock_wiring import DockLink
from cloudgraft.app.engine_wiring import desired_state
from cloudgraft.app.joining_wiring import ClusterLink
from cloudgraft.config import Config, ConfigError, with_groups
from cloudgraft.engine.groups.desired import DesiredState, Joining
from cloudgraft.store.records import DeclaredGroup

log = logging.getLogger("cloudgraft.cli")


class FileComposer:
    """Combines the last valid file with declared groups."""

    def __init__(self, config: Config, link: ClusterLink, dock: DockLink | None) -> None:
        self.config = config
        self.turn = asyncio.Lock()
        self._link = link
        self._dock = dock

    def file_ids(self) -> frozenset[str]:
        """The ids of the groups in the file."""
        return frozenset(group.id for group in self.config.groups())

    async def checked(self, documents: Sequence[Mapping[str, object]]) -> tuple[DesiredState, Joining]:
        """The whole configuration with these groups; raises ConfigError when they are not valid."""
        return await asyncio.to_thread(self._made, documents)

    async def compose(self, declared: Sequence[DeclaredGroup]) -> tuple[DesiredState, Joining]:
        """The whole configuration; omits and reports a group that conflicts with the file."""
        try:
            return await self.checked([group.document for group in declared])
        except ConfigError:
            good: list[Mapping[str, object]] = []
            for group in declared:
                try:
                    await self.checked([*good, group.document])
                    good.append(group.document)
                except ConfigError as error:
                    log.error(  # noqa: TRY400 - a traceback would not help to find the mistake
                        "a group that an operator declared is not served: %s", error.message, extra={"group": group.id}
                    )
            return await self.checked(good)

    def _made(self, documents: Sequence[Mapping[str, object]]) -> tuple[DesiredState, Joining]:
        whole = with_groups(self.config, documents)
        return desired_state(whole, self._dock), self._link.joining_for(whole)
