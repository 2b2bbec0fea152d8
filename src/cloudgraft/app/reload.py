"""Reloads a changed configuration file: on SIGHUP, and when the file changes. Combines it with declared groups."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Generic, TypeVar

from cloudgraft.app.dock_wiring import DockLink
from cloudgraft.app.engine_wiring import desired_state
from cloudgraft.app.joining_wiring import ClusterLink
from cloudgraft.config import Config, ConfigError, Problems, with_groups
from cloudgraft.config.section import changed_keys
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.groups.desired import DesiredState, Joining
from cloudgraft.engine.new_records import happened
from cloudgraft.sdk.common.causes import cause
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.store.records import Change, DeclaredGroup

# -- declared groups ---------------------------------------------------------------------------------------------------


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
        return _made(with_groups(self.config, documents), self._link, self._dock)


def _made(whole: Config, link: ClusterLink, dock: DockLink | None) -> tuple[DesiredState, Joining]:
    """Builds both, so that a ConfigError has the problems of both."""
    problems = Problems()
    with problems.collecting():
        wanted = desired_state(whole, dock)
    with problems.collecting():
        joining = link.joining_for(whole)
    problems.raise_any()
    return wanted, joining


# -- watched file ------------------------------------------------------------------------------------------------------


_EVERY = 2.0  # seconds between two checks of the file
C = TypeVar("C")


class WatchedFile(Generic[C]):
    """A configuration file that is read again on SIGHUP, and when it changes."""

    def __init__(self, path: Path, load: Callable[[], C]) -> None:
        """``load`` reads the file, with the options of the command line. Make this before it is first called."""
        self.path = path
        self.load = load
        self._seen = _signature(path)

    @contextlib.asynccontextmanager
    async def watching(self, reload: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
        """Calls ``reload`` on changes while the block lasts."""
        loop, sighup = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(signal.SIGHUP, sighup.set)
        task = asyncio.create_task(self._watch(reload, sighup), name="configuration")
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)
            task.cancel()
            await asyncio.wait({task})

    def following(self, apply: Callable[[C], None], own_log: logging.Logger) -> AbstractAsyncContextManager[None]:
        """Applies each valid version of the file while the block lasts. An invalid one changes nothing."""

        async def reload() -> None:
            try:
                apply(await asyncio.to_thread(self.load))
            except CloudgraftError as error:
                own_log.warning("%s is not valid, and the old configuration stays: %s", self.path.name, error)
            else:
                own_log.info("the configuration was read again")

        return self.watching(reload)

    async def _watch(self, reload: Callable[[], Awaitable[None]], sighup: asyncio.Event) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_EVERY):
                    await sighup.wait()
            found = await asyncio.to_thread(_signature, self.path)
            if found != self._seen or sighup.is_set():
                self._seen = found
                sighup.clear()
                await reload()


def _signature(path: Path) -> tuple[int, ...]:
    """A value that changes when the file was changed or replaced; a mounted ConfigMap is replaced by its link."""
    try:
        found = os.stat(path)  # noqa: PTH116 - follows links, in one call
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_size, found.st_ino)


# -- engine ------------------------------------------------------------------------------------------------------------


# A change of these sections needs no restart, apart from the parts in _FIXED.
_REPLACED = {"clouds", "join", "observe_only", "guards", "engine", "node_groups", "dock", "node_manager"}
_FIXED: Mapping[str, Callable[[Config], object]] = {
    "engine.webhook": lambda config: config.engine.webhook,
    "dock": lambda config: config.dock is None,
    "nodeManager": lambda config: config.node_manager is None,
    "nodeManager.listen": lambda config: config.node_manager and config.node_manager.listen,
    "nodeManager.tls": lambda config: config.node_manager and config.node_manager.tls,
    "nodeManager.auditLog": lambda config: config.node_manager and config.node_manager.audit_log,
}


class Reloader:
    """Watches one configuration file for one engine."""

    def __init__(
        self,
        file: WatchedFile[Config],
        config: Config,
        engine: Engine,
        link: ClusterLink,
        *,
        dock: DockLink | None = None,
        then: Callable[[Config], None] | None = None,
    ) -> None:
        """``then`` is called with each valid configuration."""
        self.problem = ""  # the error of the current file
        self._file = file
        self._config = config
        self._engine = engine
        self._link = link
        self._dock = dock
        self._then = then

    def watching(self) -> AbstractAsyncContextManager[None]:
        """Watches for as long as the block lasts."""
        return self._file.watching(self.reload)

    async def reload(self) -> None:
        """Reads the file and passes it to the engine, or reports why it cannot."""
        composer = self._engine.composer
        async with composer.turn if composer is not None else nullcontext():
            await self._reload()

    async def _reload(self) -> None:
        try:
            config = await asyncio.to_thread(self._file.load)
            wanted, joining = await asyncio.to_thread(self._composed, config)
        except CloudgraftError as error:
            await self._refuse(str(error))
            return
        except Exception as error:  # a driver's bug must not end the watch
            log.exception("the changed configuration cannot be used")
            await self._refuse(f"a driver failed with {cause(error)}; the log has the details")
            return
        self.problem = ""
        fixed = changed_keys(self._config, config, _REPLACED)
        fixed += [key for key, value in _FIXED.items() if value(config) != value(self._config)]
        if fixed:
            log.warning("a change of these needs a restart: %s", ", ".join(fixed))
        self._engine.reconfigure(wanted, joining)
        if self._dock is not None:
            self._dock.replace(config.dock)
        if self._then is not None:
            self._then(config)
        log.info("the configuration was read again; it is applied at the next Refresh")

    def _composed(self, config: Config) -> tuple[DesiredState, Joining]:
        """Combines the file with the groups that operators declared, and refuses a file that conflicts with them.
        Declared groups that the former file already had are ignored: the file takes precedence.
        """
        composer = self._engine.composer
        own = composer.file_ids() if isinstance(composer, FileComposer) else frozenset()
        declared = [group.document for group in list(self._engine.fleet.declared.values()) if group.id not in own]
        whole = with_groups(config, declared)
        made = _made(whole, self._link, self._dock)
        if isinstance(composer, FileComposer):
            composer.config = config
        return made

    async def _refuse(self, problem: str) -> None:
        self.problem = problem
        message = (
            f"{self._file.path.name} is not valid, and the old configuration stays: {'; '.join(problem.splitlines())}"
        )
        event = happened("refused_config", self._engine.clock.now(), message)
        try:
            self._engine.check_leader()
            await self._engine.writer.write(lambda: Change(events=(event,)))  # the writer logs the event
        except CloudgraftError:  # a follower may not write
            log.error(message)  # noqa: TRY400 - a traceback would not help to find the mistake
