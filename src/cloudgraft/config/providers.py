"""The `providers` section: where node groups come from."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    StrictStr,
    Tag,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from cloudgraft.config.fields import (
    Directory,
    Kind,
    LoadContext,
    Name,
    PositiveDuration,
    ReadableFile,
    RemoteAddress,
    Text,
    refuse,
)
from cloudgraft.config.section import Section

__all__ = [
    "TAGS",
    "Backoff",
    "EntryPointProvider",
    "ExternalGrpcProvider",
    "PluginProvider",
    "ProviderConfig",
    "RemoteTls",
    "Snapshot",
]


class Snapshot(Section):
    """How a provider that is slow or remote is kept in memory, so that no call of the autoscaler waits for it."""

    refresh_every: PositiveDuration = Field(timedelta(seconds=5), description="How often the provider is read.")
    max_staleness: PositiveDuration = Field(
        timedelta(minutes=5),
        validate_default=True,
        description="When nothing could be read for longer than this, Refresh fails and the autoscaler pauses.",
    )

    @field_validator("max_staleness")
    @classmethod
    def _check_staleness(cls, value: timedelta, info: ValidationInfo) -> timedelta:
        every: timedelta | None = info.data.get("refresh_every")
        if every is not None and value < every:
            raise refuse("must not be shorter than refreshEvery", "several times as long is reasonable")
        return value


class RemoteTls(Section):
    """Mutual TLS towards another server."""

    cert: ReadableFile = Field(description="Our certificate, PEM.", examples=["certs/client.crt"])
    key: ReadableFile = Field(description="Its private key, PEM.", examples=["certs/client.key"])
    ca: ReadableFile = Field(
        description="The authority that signed the server's certificate.", examples=["certs/ca.crt"]
    )
    server_name: Text | None = Field(
        None, description="The name to look for in the server's certificate, if it is not the host of `address`."
    )


class Backoff(Section):
    """How long to wait before a plugin that ended is started again; the time doubles with each failure."""

    initial: PositiveDuration = Field(timedelta(milliseconds=500), description="The first wait.")
    max: PositiveDuration = Field(timedelta(minutes=1), validate_default=True, description="The longest wait.")

    @field_validator("max")
    @classmethod
    def _check_max(cls, value: timedelta, info: ValidationInfo) -> timedelta:
        initial: timedelta | None = info.data.get("initial")
        if initial is not None and value < initial:
            raise refuse("must not be shorter than initial", "for example 1m")
        return value


class _Provider(Section):
    name: Name | None = Field(None, description="For logs and metrics; by default its type.", examples=["lab"])


class ExternalGrpcProvider(_Provider):
    """Another server that speaks the autoscaler's protocol, in any language."""

    type: Literal["externalgrpc"] = Field(description="`externalgrpc`.")
    address: RemoteAddress = Field(
        description="Where it is, as in the autoscaler's cloud-config.", examples=["other:8086"]
    )
    tls: RemoteTls | None = Field(None, description="Mutual TLS towards it; without it the connection is plain text.")
    timeout: PositiveDuration = Field(timedelta(seconds=5), description="The most that one call to it may take.")
    snapshot: Snapshot = Field(Snapshot(), description="How it is kept in memory.")


def _command(value: Any) -> Any:
    if isinstance(value, str):
        raise refuse("must be a list, program first", "for example [python3, my_plugin.py]; no shell is involved")
    return value


def _program(value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    """A program named by a relative path is looked for beside the file; one without a slash in PATH."""
    program = value[0]
    if isinstance(info.context, LoadContext) and "/" in program:
        program = str(info.context.base_dir / program)
    return (program, *value[1:])


def _environment(value: Mapping[str, str]) -> Mapping[str, str]:
    if any("=" in name or "\0" in name or not name or "\0" in text for name, text in value.items()):
        raise refuse("names of environment variables must not be empty, and neither '=' nor NUL is allowed")
    return value


class PluginProvider(_Provider):
    """A program that cloudgraft starts, keeps alive and stops."""

    type: Literal["plugin"] = Field(description="`plugin`.")
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
        None, validate_default=True, description="Where it runs; by default the directory of this file."
    )
    options: Mapping[str, Any] = Field(
        default_factory=dict, repr=False, description="Handed to the plugin, which checks them. Never shown in logs."
    )
    start_timeout: PositiveDuration = Field(
        timedelta(seconds=15), description="How long it may take to report its address."
    )
    backoff: Backoff = Field(Backoff(), description="When it is started again after it ended.")
    snapshot: Snapshot = Field(Snapshot(), description="How it is kept in memory.")

    @field_validator("working_directory")
    @classmethod
    def _beside_the_file(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        # So that the arguments of the command, too, may name files beside this one.
        return info.context.base_dir if value is None and isinstance(info.context, LoadContext) else value


def _installed(value: str, info: ValidationInfo) -> str:
    known = info.context.provider_types if isinstance(info.context, LoadContext) else None
    if known is not None and value not in known:
        raise PydanticCustomError(
            "choice",
            "no such provider is installed",
            {"given": value, "choices": sorted({"externalgrpc", "plugin", *known})},
        )
    return value


def _snapshot_or_false(value: Any) -> Any:
    if value is None:
        raise refuse("has no value", "write false for no snapshot, or remove the key")
    return None if value is False else value


class EntryPointProvider(_Provider):
    """A provider that a Python package brings along (entry-point group `cloudgraft.providers`), in this process."""

    type: Annotated[StrictStr, AfterValidator(_installed), Kind("string")] = Field(
        description="Its name, such as `memory`; `cloudgraft drivers` lists what is installed."
    )
    options: Mapping[str, Any] = Field(
        default_factory=dict, repr=False, description="Its own options; unknown ones are refused. Never shown in logs."
    )
    snapshot: Annotated[Snapshot | None, BeforeValidator(_snapshot_or_false), Kind("mapping or false")] = Field(
        Snapshot(), description="How it is kept in memory; false for a provider that answers from memory itself."
    )


# Not the names of the types: an element of an error's path must not be taken for a key of the file.
TAGS = {
    "type=externalgrpc": ExternalGrpcProvider,
    "type=plugin": PluginProvider,
    "type=…": EntryPointProvider,
}


def _tag(value: Any) -> str | None:
    kind = value.get("type") if isinstance(value, Mapping) else getattr(value, "type", None)
    if not isinstance(kind, str):
        return None
    return f"type={kind}" if kind in {"externalgrpc", "plugin"} else "type=…"


ProviderConfig = Annotated[
    Annotated[ExternalGrpcProvider, Tag("type=externalgrpc")]
    | Annotated[PluginProvider, Tag("type=plugin")]
    | Annotated[EntryPointProvider, Tag("type=…")],
    Discriminator(_tag),
]
