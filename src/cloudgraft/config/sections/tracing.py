"""Defines the `tracing` section: where traces are sent, and how many."""

from __future__ import annotations

from pydantic import Field, StrictBool, ValidationInfo, field_validator

from cloudgraft.config.fields import ReadableFile, RemoteAddress, Share, Text, is_loopback, refuse
from cloudgraft.config.section import Section
from cloudgraft.config.sections.providers import ManagerTls


class CollectorTls(ManagerTls):
    """TLS towards the collector. The files are read again when they change."""

    server_name: Text | None = Field(
        None, description="The name to look for in the collector's certificate, if it is not the host of `endpoint`."
    )


class Tracing(Section):
    """Traces, sent to an OpenTelemetry collector by OTLP over gRPC. Needs the extra `tracing`."""

    # `endpoint` comes after the two that decide which addresses are allowed, and `headersFile` after that.
    tls: CollectorTls | None = Field(None, description="TLS towards the collector.")
    insecure: StrictBool = Field(
        False,
        description="Send to another host without TLS. Everyone on the way can then read names of groups and machines, "
        "and messages of errors.",
    )
    endpoint: RemoteAddress = Field(
        description="Where the collector takes OTLP over gRPC. Without `tls` it must be on this host.",
        examples=["127.0.0.1:4317"],
    )
    headers_file: ReadableFile | None = Field(
        None,
        description="A file with headers for the collector, one `Name: value` per line, for secret values. Read again "
        "when it changes.",
        examples=["collector.headers"],
    )
    ratio: Share = Field(
        1.0,
        description="The share of traces that are recorded of those that begin with a change: calls of the autoscaler "
        "that change a size, and calls to clouds that create or delete. A caller's `traceparent` decides for its own.",
    )
    read_ratio: Share = Field(
        0.0, description="The same for calls that only read, and for lists of clouds, of which there are many more."
    )
    service_name: Text = Field("cloudgraft", description="The `service.name` of the traces.")

    @field_validator("insecure")
    @classmethod
    def _check_insecure(cls, value: bool, info: ValidationInfo) -> bool:  # noqa: FBT001 - pydantic calls it
        if value and info.data.get("tls") is not None:
            raise refuse("does not go together with tls", "remove one of the two")
        return value

    @field_validator("endpoint")
    @classmethod
    def _check_endpoint(cls, value: str, info: ValidationInfo) -> str:
        is_allowed = info.data.get("insecure", True) or info.data.get("tls", True) is not None
        if not is_allowed and not is_loopback(value):
            hint = "add tracing.tls, or set tracing.insecure: true in a network that you trust"
            raise refuse("without TLS only a collector on this host is allowed", hint)
        return value

    @field_validator("headers_file")
    @classmethod
    def _check_headers(cls, value: ReadableFile | None, info: ValidationInfo) -> ReadableFile | None:
        endpoint = info.data.get("endpoint")
        if value is not None and endpoint and info.data.get("tls", "") is None and not is_loopback(endpoint):
            raise refuse("must not be sent without TLS to another host", "add tracing.tls")
        return value
