"""Defines the options of commands, and of the driver ``exec``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from cloudgraft.sdk.driver import DriverTraits, Idempotency, Ownership, ProviderIdBy, check_provider_id
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.flaws import Flaws

__all__ = ["Command", "CommandOptions", "ExecOptions", "Timeouts", "words"]

Command = str | Sequence[str]
"""A program and its arguments. A text is split as a shell splits it; no shell is involved."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS: Final = "CLOUDGRAFT_"
_FOR_A_SHELL: Final = frozenset({"|", "||", "&&", "&", ";", ">", ">>", "<", "2>&1", "2>/dev/null", ">/dev/null"})


def words(command: Command) -> tuple[str, ...]:
    """The program and its arguments; raises InvalidArgumentError for what is no command."""
    example = "write it like [./lab.sh, --verbose], the program first"
    try:
        split = tuple(shlex.split(command) if isinstance(command, str) else command)
    except ValueError as error:  # a quotation mark without its other half
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
    """How commands are run, whatever they are for."""

    working_directory: Path | None = None  # where they run, and where a relative path of theirs starts
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # added to our own environment
    env_files: Mapping[str, Path] = field(default_factory=dict)  # the same from files: for secrets; read for every call
    concurrency: int = 8  # commands that change something, at a time; as many again may look
    grace: timedelta = timedelta(seconds=2)  # from SIGTERM to SIGKILL, for a command that has to end

    def __post_init__(self) -> None:
        """Refuses what can never work."""
        self.flaws().raise_any()

    def flaws(self) -> Flaws:
        """What can never work; who has more options adds to it."""
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
        """The commands by their keys, as they are in the file; who has some says which."""
        return {}

    def commands(self) -> dict[str, tuple[str, ...]]:
        """The commands by their keys, split into words."""
        return {key: words(command) for key, command in self.given().items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long each command may take. Below those of the engine, so that what a script said last is not lost."""

    create: timedelta = timedelta(seconds=110)
    delete: timedelta = timedelta(seconds=110)
    list: timedelta = timedelta(seconds=50)
    shapes: timedelta = timedelta(seconds=50)
    prices: timedelta = timedelta(seconds=50)

    def __post_init__(self) -> None:
        """Refuses times in which nothing can be done."""
        flaws = Flaws()
        flaws.expect_positive(
            create=self.create, delete=self.delete, list=self.list, shapes=self.shapes, prices=self.prices
        )
        flaws.raise_any()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecOptions(CommandOptions):
    """A cloud that is three commands, or five; and what its author knows about it."""

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
    user_data_limit: int | None = None  # bytes that the cloud takes at most

    def flaws(self) -> Flaws:
        """What can never work."""
        flaws = CommandOptions.flaws(self)  # a dataclass with slots is made anew, which super() does not know
        flaws.expect_not_negative(listDelay=self.list_delay, userDataLimit=self.user_data_limit)
        with flaws.at("providerID"):
            check_provider_id(self.providerID)
        return flaws

    def given(self) -> Mapping[str, Command]:
        """By what they are for."""
        more = {key: value for key, value in (("shapes", self.shapes), ("prices", self.prices)) if value is not None}
        return {"create": self.create, "delete": self.delete, "list": self.list, **more}

    def traits(self) -> DriverTraits:
        """What the author declares about the cloud."""
        return DriverTraits(
            ownership=self.ownership,
            idempotency=self.idempotency,
            list_delay=self.list_delay,
            complete_list=self.complete_list,
            provider_id=self.providerID,
            provider_id_by=self.providerIDBy,
            user_data_limit=self.user_data_limit,
        )
