"""Options of groups against the release that is to be told: B1, B2, B3 and B6."""

from __future__ import annotations

from collections.abc import Iterator

from cloudgraft.doctor.catalog import found
from cloudgraft.doctor.findings import Finding
from cloudgraft.doctor.picture import GroupSettings, Picture
from cloudgraft.doctor.release import Release
from cloudgraft.sdk.types import AutoscalingOptions

__all__ = ["check"]


def check(picture: Picture) -> Iterator[Finding]:
    """Every group with options, for every autoscaler."""
    settings = picture.settings
    if settings is None:
        return
    for autoscaler in picture.autoscalers:
        release = autoscaler.release
        for group in settings.groups:
            if release is None or group.options is None:
                continue
            where = f"group {group.id} in {settings.file}"
            yield from _told(group, group.options, release, where, is_forced=settings.force_options)


def _told(
    group: GroupSettings, options: AutoscalingOptions, release: Release, where: str, *, is_forced: bool
) -> Iterator[Finding]:
    bug = _bug(options, release)
    if bug is not None and is_forced:
        what = f"server.forceOptions is true, and the autoscaler is {release}"
        yield found(_HARM[bug], where=where, what=what)
    elif bug is not None:
        yield found("options-held-back", where=where, what=f"the autoscaler is {release}, which has {bug}")
    if options.zero_or_max_node_scaling and group.max_size > 1 and release.is_of >= (1, 28):
        yield found("zero-or-max-never-shrinks", where=where, what=f"zeroOrMaxNodeScaling, maxSize {group.max_size}")


_HARM = {"B1": "options-delete-new-machines", "B2": "options-turn-off", "B3": "options-buy-twice"}


def _bug(options: AutoscalingOptions, release: Release) -> str | None:
    """Which bug keeps cloudgraft from sending them; see docs/explanation/releases.md."""
    if release.is_of <= (1, 28):
        return "B1"
    if release < Release(1, 34, 2):  # on the wire they cannot be told from those that have the bug
        says_both = options.ignore_daemon_sets_utilization is False and not options.zero_or_max_node_scaling
        return None if says_both else "B2"
    return "B3" if release.is_of >= (1, 35) else None
