"""`cloudgraft serve --check`: checks a configuration, and with `--online` its clouds too."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.status import Status

from cloudgraft.app import logs
from cloudgraft.app.check import Checked, check_file, misfits
from cloudgraft.app.online_check import CloudAnswer, Tell, ask_clouds
from cloudgraft.cli.terminal import clean, fail, print_json, print_table, text
from cloudgraft.config import Config, ConfigError, Problem
from cloudgraft.engine.groups.desired import DesiredState, GroupDeclaration
from cloudgraft.sdk.common.nearest import nearest
from cloudgraft.sdk.duration import format_duration
from cloudgraft.server.signals import run_or_interrupt


def run(path: Path, overrides: Mapping[str, object], *, online: bool, create_one: str | None, output: str) -> None:
    """Checks the file, prints what was found, and exits with 1 when something is wrong."""
    logs.configure(1, "console")  # it hides secrets, also in the traceback of a driver with a bug
    checked = check_file(path, overrides=overrides)
    problems, answers = list(checked.problems), list[CloudAnswer]()
    wanted = checked.parts.wanted if checked.parts is not None else None
    if online and checked.config is not None and wanted is not None:
        trial_of = _trial(wanted, create_one) if create_one is not None else None
        answers = _asked(checked.config, wanted, trial_of)
        problems += _unfit(checked.config, wanted, answers, problems)
    ordered = ConfigError(problems).problems
    is_good = not ordered and not any(answer.errors for answer in answers)
    if output == "json":
        found = {"file": str(path), "good": is_good, "problems": [dataclasses.asdict(one) for one in ordered]}
        print_json({**found, "clouds": [_as_json(answer) for answer in answers]})
    else:
        _print(path, checked, ordered, answers, is_good=is_good)
    if not is_good:
        raise SystemExit(1)


def _trial(wanted: DesiredState, group: str) -> GroupDeclaration:
    groups = {declared.id: declared for declared in wanted.groups}
    if group not in groups:
        close = nearest(group, groups)
        hint = f"did you mean {close}?" if close else f"there is: {', '.join(groups) or 'none'}"
        fail(f"there is no group {group}, or its settings are wrong", hint=hint)
    cloud = wanted.clouds.get(groups[group].cloud)
    if cloud is None or cloud.settings.observe_only:
        fail(f"no machine is created in cloud {groups[group].cloud}: observeOnly is set, or it has problems")
    return groups[group]


def _asked(config: Config, wanted: DesiredState, trial_of: GroupDeclaration | None) -> list[CloudAnswer]:
    if trial_of is not None:
        click.echo(
            f"creating one machine of group {trial_of.id} in cloud {trial_of.cloud}, which may cost money; it is "
            "deleted at the end, also after Ctrl-C",
            err=True,
        )
    with _progress() as tell:
        ended = asyncio.run(run_or_interrupt(_ask(config, wanted, trial_of, tell)))
    if isinstance(ended, signal.Signals):
        click.echo("interrupted", err=True)
        raise SystemExit(128 + ended)
    return list(ended)


async def _ask(
    config: Config, wanted: DesiredState, trial_of: GroupDeclaration | None, tell: Tell
) -> Sequence[CloudAnswer]:
    return await ask_clouds(config, wanted.clouds, tell=tell, trial_of=trial_of)


@contextmanager
def _progress() -> Iterator[Tell]:
    """Shows on a terminal what each cloud is asked for. Steps that change something are always printed."""
    screen, now = Console(stderr=True, highlight=False), dict[str, str]()

    def tell(cloud: str, step: str) -> None:
        if step.startswith(("create ", "delete ")):
            screen.print(f"{cloud}: {step}", markup=False, soft_wrap=True)
        now[cloud] = step
        busy = [f"{name}: {what}" for name, what in now.items() if what]
        if status is not None:
            status.update(clean(f"asking {', '.join(busy)} …") if busy else "…")

    status: Status | None = screen.status("asking the clouds …") if screen.is_terminal else None
    if status is None:
        yield tell
        return
    with status:
        yield tell


def _unfit(
    config: Config, wanted: DesiredState, answers: Sequence[CloudAnswer], known: Sequence[Problem]
) -> list[Problem]:
    """Groups that the answers of the clouds do not fit, without those that are reported already."""
    catalogs = {answer.cloud: answer.catalog for answer in answers if answer.catalog is not None}
    reported = {problem.key for problem in known}
    found = misfits(config, wanted, catalogs, with_prices=True)
    return [problem for problem in dict.fromkeys(found) if problem.key not in reported]


# -- output ------------------------------------------------------------------------------------------------------------


def _print(
    path: Path, checked: Checked, problems: Sequence[Problem], answers: Sequence[CloudAnswer], *, is_good: bool
) -> None:
    if answers:
        print_table(
            ["CLOUD", "DRIVER", "RESULT", "LIST", "MACHINES", "MACHINE TYPES", "LIST DELAY"], map(_row, answers)
        )
    for answer in answers:
        for kind, lines in (("note", [answer.skipped]), ("warning", answer.warnings)):
            for line in filter(None, lines):
                click.echo(f"{kind}: cloud {answer.cloud}: {clean(line)}")
    for answer in answers:
        for line in answer.errors:
            click.echo(f"error: cloud {answer.cloud}: {clean(line)}", err=True)
    if problems:
        click.echo(f"error: {ConfigError(problems)}", err=True)
    if is_good and checked.config is not None:
        config = checked.config
        found = [_counted(len(config.groups()), "group"), _counted(len(config.providers), "provider")]
        click.echo(f"{path}: good ({', '.join(filter(None, found)) or 'no groups'})")


def _row(answer: CloudAnswer) -> list[object]:
    result = text("not asked", "yellow") if answer.skipped else text("ok", "green")
    if answer.trial is not None and answer.trial.shown_after is None:
        result = text("inconclusive", "yellow")
    if answer.errors:
        result = text("failed", "red")
    return [
        answer.cloud,
        answer.driver,
        result,
        "-" if answer.list_seconds is None else f"{answer.list_seconds:.1f}s",
        "-" if answer.machines is None else answer.machines,
        _types(answer),
        _delay(answer),
    ]


def _types(answer: CloudAnswer) -> str:
    if answer.catalog is None:
        return "-"
    return str(len(answer.catalog.shapes)) if answer.catalog.shapes else "unknown to the driver"


def _delay(answer: CloudAnswer) -> str:
    if answer.traits is None:
        return "-"
    declared = f"{format_duration(answer.traits.list_delay)} declared"
    trial = answer.trial
    if trial is None:
        return declared
    if trial.shown_after is None:
        return f"{declared}, not measured"
    return f"{declared}, {trial.missing_for:.1f}s to {trial.shown_after:.1f}s measured"


def _as_json(answer: CloudAnswer) -> dict[str, Any]:
    trial = answer.trial
    return {
        "cloud": answer.cloud,
        "driver": answer.driver,
        "good": not answer.errors,
        "skipped": answer.skipped or None,
        "errors": answer.errors,
        "warnings": answer.warnings,
        "machines": answer.machines,
        "machineTypes": sorted(answer.catalog.shapes) if answer.catalog is not None else None,
        "listSeconds": answer.list_seconds,
        "listDelaySeconds": answer.traits.list_delay.total_seconds() if answer.traits is not None else None,
        "created": None
        if trial is None
        else {
            "group": trial.group,
            "machine": trial.machine,
            "createSeconds": trial.create_seconds,
            "missingFromListSeconds": trial.missing_for,
            "shownInListSeconds": trial.shown_after,
            "deleteSeconds": trial.delete_seconds,
        },
    }


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}" if count else ""
