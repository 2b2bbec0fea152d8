"""Runs the checks of the kit in order, and leaves a clean server behind."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from cloudgraft.client.cloud_config import CloudConfig
from cloudgraft.client.connection import Connection
from cloudgraft.conformance.calls import Calls, Probe, expected_failures
from cloudgraft.conformance.check import Check, Hindered, Inconclusive, NotJudged, Violation
from cloudgraft.conformance.checks import CHECKS
from cloudgraft.conformance.hooks import to_its_end
from cloudgraft.conformance.kit import KitConfig
from cloudgraft.conformance.prepare import comes_back, look_around, with_crash
from cloudgraft.conformance.releases import NEWEST, Release
from cloudgraft.conformance.report import Report, Result, Status
from cloudgraft.conformance.rules import RULES
from cloudgraft.conformance.stage import Stage
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError

# -- cleanup -----------------------------------------------------------------------------------------------------------
# Ends a run: deletes what the kit made, whatever happened, and reports what cannot be deleted.


_PAUSE: Final = 0.2
_LAST_CALLS: Final = 20.0  # seconds for calls under way when the time is over


async def clean_up(stage: Stage) -> tuple[str, ...]:
    """Deletes the kit's machines and lowers targets that have no machine; returns what is left. Never raises."""
    limit = stage.config.patience.cleanup.total_seconds()
    left: dict[str, list[str]] = {group: [f"{group}: not looked at"] for group in stage.touched}
    end = time.monotonic() + limit
    try:
        async with asyncio.timeout(limit + _LAST_CALLS):
            for group in stage.touched:
                left[group] = await _clean_group(stage, group)
            while any(left.values()) and time.monotonic() < end:
                await asyncio.sleep(_PAUSE)
                for group in [group for group, machines in left.items() if machines]:
                    left[group] = await _clean_group(stage, group)
    except TimeoutError:
        pass  # what is known to be left is reported
    return tuple(machine for machines in left.values() for machine in machines)


async def _clean_group(stage: Stage, group: str) -> list[str]:
    """Makes one attempt; returns what is left after it."""
    listed = await stage.calls.instances(group)
    if listed.value is None:
        return [f"{group}: unknown, NodeGroupNodes answered {listed.outcome}"]
    if own := stage.owned(group, listed.value):
        await stage.discard(own, group)
        listed = await stage.calls.instances(group)
        own = stage.owned(group, listed.value) if listed.value is not None else own
    return own or await _give_back(stage, group)


async def _give_back(stage: Stage, group: str) -> list[str]:
    """Lowers the target by requests that are not listed."""
    before = stage.scene.before.get(group)
    target = await stage.calls.target(group)
    if before is None or target.value is None or target.value <= before.target:
        return []
    await stage.calls.decrease(group, before.target - target.value)
    target = await stage.calls.target(group)
    surplus = (target.value or 0) - before.target
    return [f"{group}: {surplus} machines that were asked for and never listed"] if surplus > 0 else []


# -- one run -----------------------------------------------------------------------------------------------------------


Progress = Callable[[Result], None]
_OLD_DEADLINE: Final = timedelta(seconds=5)  # releases before 1.29 know no other (R6)
_ENDINGS: Final = {
    Violation: Status.FAILED,
    NotJudged: Status.SKIPPED,
    Hindered: Status.BLOCKED,
    Inconclusive: Status.INCONCLUSIVE,
}
_REASONS: Final = (Status.FAILED, Status.ERROR)
_log = logging.getLogger("cloudgraft.conformance")


async def run(
    config: KitConfig, *, only: Iterable[str] = (), release: str = str(NEWEST), progress: Progress | None = None
) -> Report:
    """Judges a server. ``only`` are rules (R49, T6) or names of checks; ``progress`` is called after each check.

    Raises an error of the sdk when nothing can be judged: no server, no group that may be used. When it is cancelled it
    still deletes what it made.
    """
    return await Session(config, only=only, release=release, progress=progress).run()


def run_blocking(
    config: KitConfig, *, only: Iterable[str] = (), release: str = str(NEWEST), progress: Progress | None = None
) -> Report:
    """The same for programs without an event loop."""
    return asyncio.run(run(config, only=only, release=release, progress=progress))


def selected(only: Iterable[str]) -> tuple[Check[Stage], ...]:
    """The checks that ``only`` names by check or rule; all when it is empty."""
    wanted = {name.strip().upper() if name.strip().upper() in RULES else name.strip() for name in only}
    known = {*RULES, *(check.name for check in CHECKS)}
    if unknown := sorted(wanted - known):
        raise InvalidArgumentError(
            f"there is no rule and no check named {', '.join(unknown)}: give R1 to R90, T1 to T10 or names of checks"
        )
    if not wanted:
        return CHECKS
    return tuple(check for check in CHECKS if check.name in wanted or wanted.intersection(check.rules))


class Session:
    """One run whose report can be read before its end: after Ctrl-C :attr:`report` has the results until then."""

    def __init__(
        self,
        config: KitConfig,
        *,
        only: Iterable[str] = (),
        release: str = str(NEWEST),
        progress: Progress | None = None,
    ) -> None:
        """Validates the arguments; does not connect yet."""
        self._config = config
        self._release = Release.parse(release)
        self._release_name = release
        self._checks = selected(only)
        self._progress = progress
        self._target = _with_deadline(config.connection(), self._release)
        self._started = datetime.now(UTC)
        self._results: list[Result] = []
        self._left_behind: tuple[str, ...] = ()
        self._away_since = ""  # the check since which the server does not answer

    @property
    def report(self) -> Report:
        """The results so far."""
        return Report(
            server=str(self._target.address),
            release=self._release_name,
            started=self._started,
            results=tuple(self._results),
            left_behind=self._left_behind,
        )

    async def run(self) -> Report:
        """Runs all checks and cleans up."""
        with expected_failures():
            async with Connection(self._target) as connection:
                probe = Probe(connection, self._release)
                stage = Stage(self._config, calls := Calls(probe), await look_around(self._config, calls))
                probe.take_exchanges()
                try:
                    await self._make_all(stage)
                finally:
                    await to_its_end(self._clean_up(stage))
        return self.report

    async def _make_all(self, stage: Stage) -> None:
        for check in self._checks:
            made = await self._make(check, stage)
            result = with_crash(check, made)
            self._results.append(result)
            if self._progress is not None:
                self._progress(result)
            if result is not made and not await comes_back(stage):
                self._away_since = check.name
            stage.calls.probe.take_exchanges()

    async def _clean_up(self, stage: Stage) -> None:
        self._left_behind = await clean_up(stage)
        for machine in self._left_behind:
            _log.warning("left behind on the server: %s", machine)

    async def _make(self, check: Check[Stage], stage: Stage) -> Result:
        started = time.monotonic()
        status, message = self._foreseen(check)
        if status is Status.PASSED:
            status, message = await _attempt(check, stage)
        if status is Status.BLOCKED and not any(result.status in _REASONS for result in self._results):
            status = Status.ERROR  # no result explains it
        return Result(
            check=check.name,
            title=check.title,
            rules=check.rules,
            level=check.level,
            status=status,
            message=message,
            exchanges=stage.calls.probe.take_exchanges(),
            seconds=time.monotonic() - started,
        )

    def _foreseen(self, check: Check[Stage]) -> tuple[Status, str]:
        """The status of a check that must not run; PASSED when it may run."""
        if self._away_since:
            return Status.BLOCKED, f"the server has been away since {self._away_since}"
        if missing := [need for need in check.needs if not self._config.hooks.has(need)]:
            keys = ", ".join(f"hooks.{need.value}" for need in missing)
            return Status.SKIPPED, f"needs the author's help: give {keys} in kit.yaml"
        if check.since and not self._release.is_at_least(check.since):
            return Status.SKIPPED, f"the autoscaler does this since {check.since}, and {self._release} is judged"
        earlier = {result.check: result.status for result in self._results}
        for status in (Status.FAILED, Status.ERROR, Status.BLOCKED):
            if names := [name for name in check.after if earlier.get(name) is status]:
                return Status.BLOCKED, f"follows from {', '.join(names)}"
        if names := [name for name in check.after if earlier.get(name) is Status.SKIPPED]:
            return Status.SKIPPED, f"{', '.join(names)} was skipped too"
        return Status.PASSED, ""


async def _attempt(check: Check[Stage], stage: Stage) -> tuple[Status, str]:
    try:
        await check.run(stage)
    except (Violation, NotJudged, Hindered, Inconclusive) as finding:
        return next(status for kind, status in _ENDINGS.items() if isinstance(finding, kind)), str(finding)
    except CloudgraftError as error:
        return Status.ERROR, error.message
    except Exception as error:  # noqa: BLE001 - a fault of one check must not hide what the others find
        _log.exception("the check %s has a fault", check.name)
        return Status.ERROR, f"the check itself has a fault: {type(error).__name__}: {error}"
    return Status.PASSED, ""


def _with_deadline(config: CloudConfig, release: Release) -> CloudConfig:
    return config if release.is_at_least("1.29") else config.with_timeout(_OLD_DEADLINE)
