"""The one file a user writes, as frozen values. Keys in the file are camelCase; unknown keys are refused.

The descriptions here are the reference page: see :mod:`cloudgraft.config.reference`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, PrivateAttr, StrictBool, StrictInt, ValidationInfo, field_validator

from cloudgraft.config.document import Document
from cloudgraft.config.fields import (
    Duration,
    ListenAddress,
    Name,
    PositiveDuration,
    ReadableFile,
    Text,
    is_loopback,
    refuse,
)
from cloudgraft.config.problems import KeyPath
from cloudgraft.config.providers import ProviderConfig
from cloudgraft.config.section import Section

__all__ = ["Config", "Log", "Server", "ServerTls", "Where"]


class ServerTls(Section):
    """Mutual TLS. `cloudgraft certs init DIR` makes the files; they are read again when they change."""

    cert: ReadableFile = Field(description="The server's certificate, PEM.", examples=["certs/server.crt"])
    key: ReadableFile = Field(description="Its private key, PEM.", examples=["certs/server.key"])
    client_ca: ReadableFile = Field(
        alias="clientCA", description="The authority that signs the clients' certificates.", examples=["certs/ca.crt"]
    )
    allowed_clients: tuple[Text, ...] = Field(
        min_length=1,
        description="Who may call: DNS names, URIs or common names of client certificates. All others are refused.",
        examples=["[cluster-autoscaler-grpc-client]"],
    )


class Server(Section):
    """Where and how the autoscaler is served."""

    # `listen` comes after the two that decide which addresses are allowed.
    tls: ServerTls | None = Field(None, description="Mutual TLS; without it only this host may call.")
    insecure: StrictBool = Field(
        False,
        description="Listen on other addresses without TLS. Whoever reaches the port can then delete machines.",
    )
    listen: ListenAddress = Field(
        "127.0.0.1:8086",
        description="Address of the gRPC server; port 0 takes a free one, `unix:/path` a socket. Without `tls` it must "
        "be a loopback address.",
    )
    ops: ListenAddress | None = Field(
        "127.0.0.1:8087",
        validate_default=True,
        description="Address for `/metrics`, `/healthz` and `/readyz`, plain HTTP and read-only; null for none.",
    )
    deadline: PositiveDuration = Field(
        timedelta(seconds=4.5),
        description="The most that one call may take. The autoscaler itself gives up after 5s unless told otherwise.",
    )
    grace: Duration = Field(
        timedelta(seconds=10), description="How long calls that are under way may go on when the server stops."
    )
    force_options: StrictBool = Field(
        False,
        description="Send a group's options even to autoscaler releases that mishandle them.",
    )

    @field_validator("insecure")
    @classmethod
    def _check_insecure(cls, value: bool, info: ValidationInfo) -> bool:  # noqa: FBT001 - pydantic calls it
        if value and info.data.get("tls") is not None:
            raise refuse("does not go together with tls", "remove one of the two")
        return value

    @field_validator("listen")
    @classmethod
    def _check_listen(cls, value: str, info: ValidationInfo) -> str:
        """Law 9: closed by default."""
        is_open = info.data.get("insecure", True) or info.data.get("tls", True)  # one that is wrong is told itself
        if not is_open and not is_loopback(value):
            raise refuse(
                "without TLS only a loopback address is allowed, because whoever reaches this port can create and "
                "delete machines",
                "add server.tls with the files of `cloudgraft certs init`, or listen on 127.0.0.1, "
                "or set server.insecure: true",
            )
        return value

    @field_validator("ops")
    @classmethod
    def _check_ops(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and value == info.data.get("listen") and not value.endswith(":0"):
            raise refuse("is the same address as server.listen", "take another port, or null for none")
        return value


class Log(Section):
    """What is written to standard error."""

    level: StrictInt = Field(
        2, ge=0, le=10, description="As the autoscaler's `--v`: 1 errors, 2 what happens, 5 every call."
    )
    format: Literal["console", "json"] = Field("console", description="For people, or one JSON object a line.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """A place in a configuration file, so that what is found wrong there later can be told like everything else."""

    document: Document
    base_dir: Path
    path: KeyPath


class Config(Section):
    """The whole file."""

    cluster: Name = Field(
        description="The name of the cluster that is served; one server serves one cluster.", examples=["prod"]
    )
    server: Server = Field(Server(), description="Where and how the autoscaler is served.")
    log: Log = Field(Log(), description="What is written to standard error.")
    providers: tuple[ProviderConfig, ...] = Field(
        min_length=1,
        description="Where node groups come from; several are merged. What a provider may say depends on its `type`.",
        examples=["[{type: memory}]"],
    )
    _document: Document = PrivateAttr(default_factory=Document.without_file)
    _base_dir: Path = PrivateAttr(default_factory=Path)

    @field_validator("providers")
    @classmethod
    def _check_names(cls, value: tuple[ProviderConfig, ...]) -> tuple[ProviderConfig, ...]:
        names = [provider.name for provider in value]
        twice = {name: index for index, name in enumerate(names) if name is not None and name in names[:index]}
        if twice:
            message = f"more than one provider has the name {', '.join(twice)}"
            raise refuse(message, "each needs its own", at=(min(twice.values()), "name"))
        return value

    def read_from(self, document: Document, base_dir: Path) -> Self:
        """The same configuration, knowing the file it came from."""
        self._document, self._base_dir = document, base_dir
        return self

    def where(self, *path: str | int) -> Where:
        """A place in the file this was read from: ``where("providers", 0, "options")``."""
        return Where(document=self._document, base_dir=self._base_dir, path=path)

    def names(self) -> tuple[str, ...]:
        """A name for each provider, all different: its own, else its type, numbered where that is not enough."""
        taken = Counter(provider.name for provider in self.providers if provider.name)
        names: list[str] = []
        for provider in self.providers:
            name, number = provider.name or provider.type, 1
            while not provider.name and taken[name]:
                number += 1
                name = f"{provider.type}-{number}"
            taken[name] += 1
            names.append(name)
        return tuple(names)
