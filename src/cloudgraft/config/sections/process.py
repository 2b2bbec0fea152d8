"""Defines the settings of a plugin: a program that cloudgraft starts as a provider or a driver."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, StrictStr, ValidationInfo, field_validator

from cloudgraft.config.fields import Directory, Kind, LoadContext, PositiveDuration, Text, refuse
from cloudgraft.config.section import Section


class Backoff(Section):
    """How long to wait before a plugin that ended is restarted; the time doubles with each failure."""

    initial: PositiveDuration = Field(timedelta(milliseconds=500), description="The first wait.")
    max: PositiveDuration = Field(timedelta(minutes=1), validate_default=True, description="The longest wait.")

    @field_validator("max")
    @classmethod
    def _check_max(cls, value: timedelta, info: ValidationInfo) -> timedelta:
        initial: timedelta | None = info.data.get("initial")
        if initial is not None and value < initial:
            raise refuse("must not be shorter than initial", "for example 1m")
        return value


def _command(value: Any) -> Any:
    if isinstance(value, str):
        raise refuse("must be a list, program first", "for example [python3, my_plugin.py]; no shell is involved")
    return value


def _program(value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    """Finds a program with a relative path beside the file, and one without a slash in PATH."""
    program = value[0]
    if isinstance(info.context, LoadContext) and "/" in program:
        program = str(info.context.base_dir / program)
    return (program, *value[1:])


def _environment(value: Mapping[str, str]) -> Mapping[str, str]:
    if any("=" in name or "\0" in name or not name or "\0" in text for name, text in value.items()):
        raise refuse("names of environment variables must not be empty, and neither '=' nor NUL is allowed")
    return value


class PluginProcess(Section):
    """How a plugin is started, and its options."""

    command: Annotated[
        tuple[Text, ...],
        BeforeValidator(_command),
        Field(min_length=1),
        AfterValidator(_program),
        Kind("list of strings"),
    ] = Field(
        description="The program and its arguments. A relative path with a slash starts at this file's directory.",
        examples=["[python3, my_plugin.py]"],
    )
    env: Annotated[Mapping[str, StrictStr], AfterValidator(_environment)] = Field(
        default_factory=dict, repr=False, description="Environment variables added to ours. Never shown in logs."
    )
    working_directory: Directory | None = Field(
        None, validate_default=True, description="Its working directory; by default the directory of this file."
    )
    options: Mapping[str, Any] = Field(
        default_factory=dict, repr=False, description="Options for the plugin, which checks them. Never shown in logs."
    )
    start_timeout: PositiveDuration = Field(
        timedelta(seconds=15), description="How long it may take to report its address."
    )
    backoff: Backoff = Field(Backoff(), description="When it is restarted after it ended.")

    @field_validator("working_directory")
    @classmethod
    def _beside_the_file(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        # So that the arguments of the command, too, may name files beside this one.
        return info.context.base_dir if value is None and isinstance(info.context, LoadContext) else value
