"""Defines the `providers` section: where node groups come from."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, StrictStr, Tag, ValidationInfo, field_validator

from cloudgraft.config.fields import (
    Kind,
    Name,
    PositiveDuration,
    ReadableFile,
    RemoteAddress,
    Text,
    chosen_by,
    installed,
    is_loopback,
    refuse,
)
from cloudgraft.config.section import Section
from cloudgraft.config.sections.process import PluginProcess

_OWN = {"externalgrpc", "node-manager", "plugin"}  # the types that need no package


class Snapshot(Section):
    """A snapshot in memory of a slow or remote provider, so that no call of the autoscaler waits for it."""

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


class _Provider(Section):
    name: Name | None = Field(None, description="For logs and metrics; by default its type.", examples=["lab"])


class ExternalGrpcProvider(_Provider):
    """Another server that speaks the autoscaler's protocol, in any language."""

    type: Literal["externalgrpc"] = Field(description="`externalgrpc`.")
    address: RemoteAddress = Field(
        description="Its address, as in the autoscaler's cloud-config.", examples=["other:8086"]
    )
    tls: RemoteTls | None = Field(None, description="Mutual TLS towards it; without it the connection is plain text.")
    timeout: PositiveDuration = Field(timedelta(seconds=5), description="The time limit of one call to it.")
    snapshot: Snapshot = Field(Snapshot(), description="Its snapshot in memory.")


class ManagerTls(Section):
    """TLS towards a node manager. `cert` and `key` authenticate us, unless `tokenFile` does."""

    ca: ReadableFile | None = Field(
        None, description="The authority that signed the server's certificate; by default the system's authorities."
    )
    cert: ReadableFile | None = Field(None, description="The client's certificate, PEM.", examples=["certs/client.crt"])
    key: ReadableFile | None = Field(
        None, validate_default=True, description="Its private key, PEM.", examples=["certs/client.key"]
    )

    @field_validator("key")
    @classmethod
    def _check_pair(cls, value: Any, info: ValidationInfo) -> Any:
        if "cert" in info.data and (value is None) != (info.data["cert"] is None):
            raise refuse("cert and key go together", "write both, or neither")
        return value


def _url(value: str) -> str:
    parts = urlsplit(value)
    is_local = parts.scheme == "http" and is_loopback(parts.netloc if parts.port else f"{parts.netloc}:80")
    if not parts.hostname or not (parts.scheme == "https" or is_local):
        raise refuse("must be an https address, or an http address on this host", "for example https://manager:9009")
    return value


class NodeManagerProvider(_Provider):
    """A node manager: an engine that runs elsewhere, behind HTTPS. Several fronts may share one."""

    type: Literal["node-manager"] = Field(description="`node-manager`.")
    address: Annotated[StrictStr, AfterValidator(_url), Kind("URL")] = Field(
        description="Where it is.", examples=["https://manager:9009"]
    )
    tls: ManagerTls | None = Field(None, description="How it is verified, and how we authenticate.")
    token_file: ReadableFile | None = Field(None, description="A file with our token.", examples=["front.token"])
    timeout: PositiveDuration = Field(
        timedelta(seconds=4), description="The time limit of one request to it, including a second attempt."
    )
    snapshot: Snapshot = Field(
        Snapshot(),
        description="Its snapshot in memory. It sends changes itself; `refreshEvery` is the shortest "
        "time between two reads while much changes.",
    )


class PluginProvider(_Provider, PluginProcess):
    """A program that cloudgraft starts, restarts and stops."""

    type: Literal["plugin"] = Field(description="`plugin`.")
    snapshot: Snapshot = Field(Snapshot(), description="Its snapshot in memory.")


def _snapshot_or_false(value: Any) -> Any:
    if value is None:
        raise refuse("has no value", "write false for no snapshot, or remove the key")
    return None if value is False else value


class EntryPointProvider(_Provider):
    """A provider from a Python package (entry-point group `cloudgraft.providers`), in this process."""

    type: Annotated[StrictStr, installed("provider of the type", "provider_types", _OWN), Kind("string")] = Field(
        description="Its name, such as `memory`; `cloudgraft drivers` lists what is installed."
    )
    options: Mapping[str, Any] = Field(
        default_factory=dict, repr=False, description="Its own options; unknown ones are refused. Never shown in logs."
    )
    snapshot: Annotated[Snapshot | None, BeforeValidator(_snapshot_or_false), Kind("mapping or false")] = Field(
        Snapshot(), description="Its snapshot in memory; false for a provider that answers from memory itself."
    )


ProviderConfig = Annotated[
    Annotated[ExternalGrpcProvider, Tag("type=externalgrpc")]
    | Annotated[NodeManagerProvider, Tag("type=node-manager")]
    | Annotated[PluginProvider, Tag("type=plugin")]
    | Annotated[EntryPointProvider, Tag("type=…")],
    chosen_by("type", _OWN),
]
