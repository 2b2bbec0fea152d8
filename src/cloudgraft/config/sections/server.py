"""Defines the `server`, `admin`, `log` and `limits` sections: addresses, clients, connections, and what is logged."""

from __future__ import annotations

import importlib.util
from datetime import timedelta
from typing import Literal

from pydantic import Field, StrictBool, StrictInt, ValidationInfo, field_validator

from cloudgraft.config.fields import (
    Duration,
    ListenAddress,
    LoadContext,
    PositiveDuration,
    ReadableFile,
    Text,
    check_closed,
    refuse,
)
from cloudgraft.config.section import Section
from cloudgraft.config.sections.web_server import WebServerTls
from cloudgraft.sdk.common.extras import NATIVE, install_command

# -- limits ------------------------------------------------------------------------------------------------------------


_CONNECTIONS = (
    "Concurrent connections, at most a sixth of the process's open files. Above the limit, the oldest connections that "
    "have not authenticated are closed."
)


class WebLimits(Section):
    """Limits on connections to the server."""

    connections: StrictInt = Field(512, ge=8, le=100_000, description=_CONNECTIONS)


class ServerLimits(WebLimits):
    """Limits on connections to the server. The defaults fit an autoscaler with several replicas."""

    streams: StrictInt = Field(
        50, ge=1, le=10_000, description="Concurrent calls on one connection; a client with more waits."
    )
    handshake: PositiveDuration = Field(
        timedelta(seconds=10), description="The time limit of the TLS and HTTP/2 handshakes of a connection."
    )
    idle: PositiveDuration = Field(
        timedelta(minutes=10), description="A connection without a call for this long is closed gracefully."
    )


class DockLimits(Section):
    """Limits on connections to the dock."""

    connections: StrictInt = Field(2500, ge=8, le=100_000, description=_CONNECTIONS)


class ServerTls(WebServerTls):
    """Mutual TLS. `cloudgraft certs init DIR` makes the files; they are read again when they change."""

    client_ca: ReadableFile = Field(
        alias="clientCA", description="The authority that signs the clients' certificates.", examples=["certs/ca.crt"]
    )
    allowed_clients: tuple[Text, ...] = Field(
        min_length=1,
        description="Who may call: DNS names, URIs or common names of client certificates. All others are refused.",
        examples=["[cluster-autoscaler-grpc-client]"],
    )


class Server(Section):
    """The gRPC server for the autoscaler."""

    # `listen` comes after the two that decide which addresses are allowed.
    tls: ServerTls | None = Field(None, description="Mutual TLS; without it only this host may call.")
    insecure: StrictBool = Field(
        False,
        description="Listen on other addresses without TLS. Anyone who reaches the port can then delete machines.",
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
        description="The time limit of one call. The autoscaler itself gives up after 5s by default.",
    )
    grace: Duration = Field(timedelta(seconds=10), description="How long pending calls may take when the server stops.")
    force_options: StrictBool = Field(
        False,
        description="Send a group's options even to autoscaler releases that mishandle them.",
    )
    limits: ServerLimits = Field(ServerLimits(), description="Limits on connections.")
    transport: Literal["auto", "native", "grpcio"] = Field(
        "auto",
        description="The transport of the autoscaler's calls: `native` is several times faster, `auto` uses it where "
        "the package cloudgraft-native is installed, and else `grpcio`.",
    )

    @field_validator("transport")
    @classmethod
    def _check_transport(cls, value: str, info: ValidationInfo) -> str:
        is_here = not isinstance(info.context, LoadContext) or info.context.needs_files
        if value == "native" and is_here and importlib.util.find_spec("cloudgraft_native") is None:
            raise refuse("cloudgraft-native is not installed", f"{install_command(NATIVE)}, or say auto")
        return value

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
        is_open = info.data.get("insecure", True) or info.data.get("tls", True)  # a wrong one has its own problem
        power, instead = "create and delete machines", ", or set server.insecure: true"
        return check_closed(value, is_open or None, section="server.", power=power, instead=instead)

    @field_validator("ops")
    @classmethod
    def _check_ops(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and value == info.data.get("listen") and not value.endswith(":0"):
            raise refuse("is the same address as server.listen", "take another port, or null for none")
        return value


class Log(Section):
    """What is written to standard error."""

    level: StrictInt = Field(
        2,
        ge=0,
        le=10,
        description="As the autoscaler's `--v`: 1 errors, 2 what happens, 4 calls that Python answers, 5 every call.",
    )
    format: Literal["console", "json"] = Field("console", description="For people, or one JSON object a line.")


class Admin(Section):
    """Where `cloudgraft status`, `explain`, `pause` and others reach the running server."""

    # `listen` comes after `tls`, which decides which addresses are allowed.
    tls: ServerTls | None = Field(None, description="Mutual TLS, which an address `host:port` needs.")
    listen: ListenAddress | None = Field(
        None,
        validate_default=True,
        description="`unix:/path` for a socket that only this user can open, or `host:port` with `tls`. By default a "
        "socket beside the journal.",
    )

    @field_validator("listen")
    @classmethod
    def _check_listen(cls, value: str | None, info: ValidationInfo) -> str | None:
        """Law 9: a client that reaches it can delete machines, so a port is never open to all users of a host."""
        is_socket = value is None or value.startswith("unix:")
        has_tls = info.data.get("tls", value) is not None  # a wrong one has its own problem
        if not is_socket and not has_tls:
            raise refuse("needs admin.tls", "add it with the files of `cloudgraft certs init`, or use unix:/path")
        if is_socket and info.data.get("tls") is not None:
            raise refuse("must be host:port when there is admin.tls", "for example 0.0.0.0:8088; a socket needs no TLS")
        return value
