"""Reads the kit's own configuration: the server, the group, and the commands of the server's author.

    address: 127.0.0.1:8086            # or cloudConfig: FILE, the autoscaler's own
    group: small                       # else the first group without machines and with room for three
    floorGroup: always-two             # a group without machines and with minSize > 0, to go below it
    allowExisting: false               # true: the group may have machines; they are never touched
    machines: 10                       # the most that the kit makes at a time
    providerID: '^openstack:///.+'     # the form of the ids of real nodes
    nodeName: '([^/]+)$'               # the part of an instance's id that is its node's name (the first group)
    patience: {boot: 2m, delete: 2m, restart: 1m, hook: 1m, cleanup: 2m}
    hooks:
      stockOut: {begin: [cloudctl, quota, "0"], end: [cloudctl, quota, "10"]}
      slowCloud: {begin: [./stall.sh, "on"], end: [./stall.sh, "off"]}
      restart: [systemctl, restart, my-provider]
      lostMachine: [cloudctl, destroy, "{id}"]      # {id} is the instance's id

Relative paths are relative to the working directory, as in a cloud-config.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

from cloudgraft.client.cloud_config import Address, CloudConfig
from cloudgraft.conformance.check import Need
from cloudgraft.sdk.duration import parse_duration
from cloudgraft.sdk.errors import InvalidArgumentError

_LARGEST_FILE: Final = 1 << 20
_MESSAGES: Final = {  # replace pydantic's own messages
    "extra_forbidden": "there is no such key",
    "missing": "it is missing",
    "too_short": "give a command: a list of a program and its arguments",
    "tuple_type": "give a command: a list of a program and its arguments",
    "greater_than_equal": "it must be at least {ge}",
    "less_than_equal": "it must be at most {le}",
}


def _duration(value: object) -> object:
    """A Go duration such as 2m; a timedelta as it is."""
    if not isinstance(value, str | timedelta):
        raise ValueError("a duration needs a unit: write 90s or 2m")  # noqa: TRY004 - pydantic wants this one
    duration = value if isinstance(value, timedelta) else parse_duration(value)
    if duration <= timedelta(0):
        raise ValueError("it must be longer than 0s")
    return duration


def _pattern(value: object) -> object:
    if isinstance(value, str):
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"it is not a regular expression: {error}") from error
    return value


Duration = Annotated[timedelta, BeforeValidator(_duration)]
Pattern = Annotated[str, BeforeValidator(_pattern)]
Word = Annotated[str, StringConstraints(min_length=1)]
Command = Annotated[tuple[Word, ...], Field(min_length=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class BeginEnd(_Section):
    """A state of the cloud that is switched on and off."""

    begin: Command
    end: Command


class Hooks(_Section):
    """Commands of the server's author. Each one has ended, and what it does has begun, when it exits with 0."""

    stock_out: BeginEnd | None = None
    """From begin to end the cloud has no machines for the group under test."""
    slow_cloud: BeginEnd | None = None
    """From begin to end the cloud's own calls hang for a minute."""
    restart: Command | None = None
    """Kills the server and starts it again at the same address."""
    lost_machine: Command | None = None
    """Destroys a machine behind the server's back; ``{id}`` in it is the instance's id."""

    def has(self, need: Need) -> bool:
        """Whether the commands for it are given."""
        return getattr(self, need.name.lower()) is not None


class TimeLimits(_Section):
    """How long the kit waits for what takes time."""

    boot: Duration = timedelta(minutes=2)
    """For a machine that was asked for to be listed, and to leave the state creating."""
    delete: Duration = timedelta(minutes=2)
    """For a deleted machine to leave the list, and for an error of a stock-out to show."""
    start: Duration = timedelta(minutes=5)
    """For a server that refuses every call with UNAVAILABLE, because it has just started, to answer the first."""
    restart: Duration = timedelta(minutes=1)
    """For the server to answer again."""
    hook: Duration = timedelta(minutes=1)
    """For a command of the author to end."""
    cleanup: Duration = timedelta(minutes=2)
    """For the machines that the kit made to be deleted at the end."""


class KitConfig(_Section):
    """What a run needs to know."""

    address: str = ""
    cloud_config: str = ""
    group: str = ""
    floor_group: str = ""
    allow_existing: bool = False
    machines: int = Field(default=10, ge=3, le=100)
    provider_id: Pattern = Field(default=r"^[A-Za-z][A-Za-z0-9+.-]*://.+", alias="providerID")
    node_name: Pattern = ""
    patience: TimeLimits = TimeLimits()
    hooks: Hooks = Hooks()

    def connection(self) -> CloudConfig:
        """How to reach the server."""
        if bool(self.address) == bool(self.cloud_config):
            raise InvalidArgumentError("say where the server is: with `address` or with `cloudConfig`, not with both")
        if self.cloud_config:
            return CloudConfig.load(self.cloud_config)
        return CloudConfig(address=Address.parse(self.address))

    @classmethod
    def load(cls, path: str | Path) -> KitConfig:
        """Reads a kit.yaml; every error names the file, and all of them come at once."""
        try:
            with Path(path).open("rb") as file:
                text = file.read(_LARGEST_FILE).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgumentError(f"cannot read {path}: {error}") from error
        try:
            return cls.parse(text)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{path}: {error.message}") from error

    @classmethod
    def parse(cls, text: str) -> KitConfig:
        """Reads the text of a kit.yaml."""
        try:
            document: Any = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError) as error:
            raise InvalidArgumentError(f"it is not valid YAML: {error}") from error
        if not isinstance(document, Mapping | None):
            raise InvalidArgumentError("it must be a mapping with at least one line 'address: host:port'")
        try:
            return cls.model_validate(document or {})
        except ValidationError as error:
            raise InvalidArgumentError("; ".join(map(_message, error.errors()))) from error


def _message(problem: Any) -> str:
    """A problem of pydantic as a message of ours."""
    where = ".".join(str(part) for part in problem["loc"]) or "the file"
    if problem["type"] in _MESSAGES:
        return f"{where}: {_MESSAGES[problem['type']].format(**problem.get('ctx', {}))}"
    return f"{where}: {problem['msg'].removeprefix('Value error, ')}"
