"""Checks NodeGroupGetOptions, as every release asks it and reads the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import fields, replace
from datetime import timedelta
from typing import Final

from cloudgraft.conformance.check import Violation, server_checks
from cloudgraft.conformance.releases import AGES, CrashError, Options, Release
from cloudgraft.conformance.rules import Level
from cloudgraft.conformance.stage import Stage
from cloudgraft.sdk.duration import format_duration
from cloudgraft.sdk.errors import StatusCode

CHECKS: Final = server_checks()

# Two autoscalers with flags that share no value: an option that is the same in both answers is the server's own.
_FLAGS: Final = Options()
_OTHER_FLAGS: Final = Options(
    threshold=0.61,
    gpu_threshold=0.73,
    unneeded=timedelta(minutes=7),
    unready=timedelta(minutes=23),
    provision=timedelta(minutes=19),
)
_BOTH_ON: Final = replace(_FLAGS, zero_or_max=True, ignore_daemon_sets=True)
_SINCE_1_29: Final = AGES[1:]
_QUICK: Final = 0.024  # seconds: slower on average, and 5000 nodes take longer than --max-inactivity allows


@CHECKS.check("R13", "R76", after=("groups_are_listed",))
async def options_do_not_fail(stage: Stage) -> None:
    """NodeGroupGetOptions gives no error but code 12, to any release."""
    for group in stage.groups:
        for release in AGES:
            answer = await stage.calls.as_release(release).options(group.id, _FLAGS)
            if answer.status is not StatusCode.UNIMPLEMENTED:
                answer.expect(f"of {group.id!r}, as {release} asks")


@CHECKS.check("R8", "R73", after=("options_do_not_fail",))
async def old_releases_get_no_code_12_for_options(stage: Stage) -> None:
    """Releases up to 1.28 are answered OK with nothing set: they take code 12 for a failure and never scale down."""
    for group in stage.groups:
        for release in (Release(25), Release(28)):
            answer = await stage.calls.as_release(release).options(group.id, _FLAGS)
            if answer.status is StatusCode.UNIMPLEMENTED:
                raise Violation(f"{release} asked for the options of {group.id!r} and got code 12 (Unimplemented)")


@CHECKS.check("R75", "T8", after=("options_do_not_fail",))
async def options_crash_no_release(stage: Stage) -> None:
    """Options that are set have every duration in the form that the asking release reads: an absent one crashes it."""
    async for group, release, _ in _replies(stage, AGES):
        for flags in (_FLAGS, _OTHER_FLAGS):
            answer = await stage.calls.as_release(release).options(group, flags)
            try:
                release.read_options(answer.expect())
            except CrashError as error:
                raise Violation(f"the options of {group!r} crash the autoscaler: {error}") from error


@CHECKS.check("R74", "R75", after=("options_crash_no_release",))
async def options_leave_time_to_boot(stage: Stage) -> None:
    """Options that are set have a MaxNodeProvisionTime above zero: with zero every new machine is deleted at once."""
    async for group, release, found in _replies(stage, _SINCE_1_29):
        if found is not None and found.provision <= timedelta(0):
            raise Violation(
                f"the options of {group!r} are set without MaxNodeProvisionTime, as {release} reads them: new machines "
                "are deleted in the next loop"
            )


@CHECKS.check("R74", after=("options_crash_no_release",))
async def options_are_not_set_for_1_27_and_1_28(stage: Stage) -> None:
    """1.27 and 1.28 get no options at all: any that are set force their MaxNodeProvisionTime to zero (B1)."""
    async for group, release, found in _replies(stage, (Release(27), Release(28))):
        if found is not None:
            raise Violation(
                f"the options of {group!r} are set for {release}, which has no MaxNodeProvisionTime on its wire: it "
                "takes it for zero and deletes new machines in the next loop"
            )


@CHECKS.check("R75", after=("options_crash_no_release",))
async def options_are_not_set_for_1_35_and_later(stage: Stage) -> None:
    """1.35 to 1.37 get no options: any that are set force their MaxNodeStartupTime to zero (B3)."""
    async for group, release, found in _replies(stage, (Release(35), Release(37))):
        if found is not None:
            raise Violation(
                f"the options of {group!r} are set for {release}, whose MaxNodeStartupTime then is zero: booting nodes "
                "count as unready at once, and are bought a second time"
            )


@CHECKS.check("R74", after=("options_crash_no_release",))
async def options_are_complete(stage: Stage) -> None:
    """Options that are set leave nothing at zero that the autoscaler's own flags set."""
    async for group, release, found in _replies(stage, _SINCE_1_29):
        for name in _zeros(found):
            raise Violation(
                f"the options of {group!r} are set with {name} = 0, as {release} reads them: the default that came "
                "with the request is to be echoed"
            )


@CHECKS.check("R74", after=("options_are_complete",))
async def options_echo_the_right_defaults(stage: Stage) -> None:
    """Each option is the server's own or the default of the same name, never another one's default."""
    async for group, release, first in _replies(stage, _SINCE_1_29):
        answer = await stage.calls.as_release(release).options(group, _OTHER_FLAGS)
        second = release.read_options(answer.expect())
        if first is None or second is None:
            continue
        for field in fields(Options):
            name = field.name
            own, other = getattr(first, name), getattr(second, name)
            if own != other and (own, other) != (getattr(_FLAGS, name), getattr(_OTHER_FLAGS, name)):
                raise Violation(
                    f"{name} of {group!r} is {_shown(own)} where the default is {_shown(getattr(_FLAGS, name))}, and "
                    f"{_shown(other)} where it is {_shown(getattr(_OTHER_FLAGS, name))}: it follows another default"
                )


@CHECKS.check("R74", "R77", level=Level.SHOULD, after=("options_are_complete",))
async def options_keep_the_booleans(stage: Stage) -> None:
    """Options that are set for 1.33 and later keep --ignore-daemonsets-utilization (B2)."""
    async for group, release, found in _replies(stage, AGES[2:], _BOTH_ON):
        if found is not None and not found.ignore_daemon_sets:
            plain = await stage.calls.as_release(release).options(group, _OTHER_FLAGS)
            if plain.value is not None and release.read_options(plain.value) is not None:
                raise Violation(
                    f"{release} sent ignoreDaemonSetsUtilization: true, and the options of {group!r} lack it"
                )


@CHECKS.check("R73", "R76", after=("options_do_not_fail",))
async def options_stay_the_same(stage: Stage) -> None:
    """The options of a group are the same however often they are asked."""
    for group in stage.groups:
        answers = [(await stage.calls.options(group.id, _FLAGS)) for _ in range(4)]
        if len({(answer.status, str(answer.value)) for answer in answers}) > 1:
            raise Violation(f"four calls in a row gave different options of {group.id!r}")


@CHECKS.check("R76", "R6", level=Level.NOTE, after=("options_do_not_fail",))
async def options_are_answered_from_memory(stage: Stage) -> None:
    """NodeGroupGetOptions takes milliseconds: it is four fifths of all calls."""
    quickest = min([(await stage.calls.options(stage.groups[0].id, _FLAGS)).seconds for _ in range(30)])
    if quickest > _QUICK:
        raise Violation(f"the quickest of 30 calls took {quickest * 1000:.0f} ms; the way to the server counts too")


async def _replies(
    stage: Stage, releases: Iterable[Release], flags: Options = _FLAGS
) -> AsyncIterator[tuple[str, Release, Options | None]]:
    """The options that each release reads, for each group; code 12 only for releases that know it."""
    for group in stage.groups:
        for release in releases:
            answer = await stage.calls.as_release(release).options(group.id, flags)
            if answer.status is StatusCode.UNIMPLEMENTED:
                continue
            try:
                found = release.read_options(answer.expect(f"of {group.id!r}, as {release} asks"))
            except CrashError as error:
                raise Violation(f"the options of {group.id!r} crash the autoscaler: {error}") from error
            yield group.id, release, found


def _zeros(found: Options | None) -> list[str]:
    names = ("threshold", "gpu_threshold", "unneeded", "unready", "provision")
    return [] if found is None else [name for name in names if not getattr(found, name)]


def _shown(value: object) -> str:
    return format_duration(value) if isinstance(value, timedelta) else str(value)
