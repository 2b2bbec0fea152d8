"""Defines the options of commands, and of the driver ``exec``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from cloudgraft.sdk.driver import (
    DriverTraits,
    Idempotency,
    Ownership,
    ProviderIdBy,
    WorkingDirectory,
    check_provider_id,
)
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.flaws import Flaws

Command = str | Sequence[str]
"""A program and its arguments. A text is split as a shell would; no shell is involved."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS: Final = "CLOUDGRAFT_"
_FOR_A_SHELL: Final = frozenset({"|", "||", "&&", "&", ";", ">", ">>", "<", "2>&1", "2>/dev/null", ">/dev/null"})


def words(command: Command) -> tuple[str, ...]:
    """Returns the program and its arguments; raises InvalidArgumentError for an invalid command."""
    example = "write it like [./lab.sh, --verbose], the program first"
    try:
        split = tuple(shlex.split(command) if isinstance(command, str) else command)
    except ValueError as error:  # an unclosed quotation mark
        raise InvalidArgumentError(f"cannot be split into words: {error}; {example}") from None
    if not split or not split[0]:
        raise InvalidArgumentError(f"is empty; {example}")
    if isinstance(command, str) and (found := _FOR_A_SHELL.intersection(split)):
        raise InvalidArgumentError(
            f"has {min(found)!r}, which only a shell understands, and none is involved: write it like "
            '[bash, -c, "..."], or put it into a script'
        )
    if any("\0" in word for word in split):
        raise InvalidArgumentError("has a NUL character, which no program can be given")
    return split


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOptions:
    """The options for running any command."""

    working_directory: WorkingDirectory = None  # where they run; their relative paths start there
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # added to our own environment
    env_files: Mapping[str, Path] = field(default_factory=dict)  # the same from files, for secrets; read for every call
    concurrency: int = 8  # commands that change something, at a time; as many again may only read
    grace: timedelta = timedelta(seconds=2)  # from SIGTERM to SIGKILL, for a command that must end

    def __post_init__(self) -> None:
        """Refuses invalid values."""
        self.flaws().raise_any()

    def flaws(self) -> Flaws:
        """Returns the validation errors; subclasses add theirs."""
        flaws = Flaws()
        for key, names in {"env": self.env, "envFiles": self.env_files}.items():
            for name in names:
                is_name = _VARIABLE.fullmatch(name)
                flaws.expect(is_name, key, f"{name!r} is no name for an environment variable: letters, digits and _")
                is_free = not name.startswith(_OURS)
                flaws.expect(is_free, (key, name), f"names that begin with {_OURS} are set by cloudgraft itself")
        for name in sorted(set(self.env) & set(self.env_files)):
            flaws.tell(("env", name), "is in envFiles too; remove one of them")
        for name, text in self.env.items():
            flaws.expect("\0" not in text, ("env", name), "has a NUL character, which no program can be given")
        flaws.expect(1 <= self.concurrency <= 1000, "concurrency", "must be from 1 to 1000")
        is_grace = timedelta(0) <= self.grace <= timedelta(minutes=1)
        flaws.expect(is_grace, "grace", "must be from 0s to 1m")
        for key, command in self.given().items():
            with flaws.at(key):
                words(command)
        return flaws

    def given(self) -> Mapping[str, Command]:
        """Returns the commands by their keys, as in the file; subclasses define them."""
        return {}

    def commands(self) -> dict[str, tuple[str, ...]]:
        """Returns the commands by their keys, split into words."""
        return {key: words(command) for key, command in self.given().items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """The timeout of each command. Shorter than the engine's, so that the last output of a script is not lost."""

    create: timedelta = timedelta(seconds=110)
    delete: timedelta = timedelta(seconds=110)
    list: timedelta = timedelta(seconds=50)
    shapes: timedelta = timedelta(seconds=50)
    prices: timedelta = timedelta(seconds=50)

    def __post_init__(self) -> None:
        """Refuses timeouts of zero or less."""
        flaws = Flaws()
        flaws.expect_positive(
            create=self.create, delete=self.delete, list=self.list, shapes=self.shapes, prices=self.prices
        )
        flaws.raise_any()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecOptions(CommandOptions):
    """A cloud behind three commands, or five, with the traits that its author declares."""

    create: Command
    delete: Command
    list: Command
    shapes: Command | None = None
    prices: Command | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    ownership: Ownership = Ownership.TAGS
    idempotency: Idempotency = Idempotency.NONE
    list_delay: timedelta = timedelta(0)  # how long a new machine may be missing from the list
    complete_list: bool = True  # false: absence from the list proves nothing
    providerID: str = ""  # noqa: N815 - spelt as Kubernetes spells it. Such as "lab://{name}", if known beforehand
    providerIDBy: ProviderIdBy = ProviderIdBy.CLOUDGRAFT  # noqa: N815 - likewise
    user_data_limit: int | None = None  # the most bytes that the cloud accepts

    def flaws(self) -> Flaws:
        """Returns the validation errors."""
        flaws = CommandOptions.flaws(self)  # super() does not work: a dataclass with slots is a new class
        flaws.expect_not_negative(listDelay=self.list_delay, userDataLimit=self.user_data_limit)
        with flaws.at("providerID"):
            check_provider_id(self.providerID)
        return flaws

    def given(self) -> Mapping[str, Command]:
        """Returns the commands by verb."""
        more = {key: value for key, value in (("shapes", self.shapes), ("prices", self.prices)) if value is not None}
        return {"create": self.create, "delete": self.delete, "list": self.list, **more}

    def traits(self) -> DriverTraits:
        """Returns the traits that the author declares."""
        return DriverTraits(
            ownership=self.ownership,
            idempotency=self.idempotency,
            list_delay=self.list_delay,
            complete_list=self.complete_list,
            provider_id=self.providerID,
            provider_id_by=self.providerIDBy,
            user_data_limit=self.user_data_limit,
        )
