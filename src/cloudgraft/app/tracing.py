"""Builds the tracer of a configuration. Imports OpenTelemetry only where the file has a section `tracing`."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudgraft.config import Config, ConfigError, refusals
from cloudgraft.config.section import convert
from cloudgraft.config.sections.tracing import Tracing
from cloudgraft.sdk.common.extras import needing
from cloudgraft.sdk.common.tracing import Tracer
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.service.metrics import ServiceMetrics

if TYPE_CHECKING:
    from cloudgraft.tracing.exporter import Collector  # needs an extra
    from cloudgraft.tracing.tracer import OtlpTracer


@dataclass(frozen=True, slots=True)
class Traces:
    """The tracer of a process; none where nothing is traced."""

    tracer: Tracer | None = None
    _otlp: OtlpTracer | None = None

    @classmethod
    def of(cls, config: Config, metrics: ServiceMetrics) -> Traces:
        """The tracer of a configuration; raises ConfigError."""
        section = config.tracing
        if section is None:
            return cls()
        collector = _collector(config, section)
        from cloudgraft.tracing.tracer import OtlpTracer, Sampling  # noqa: PLC0415 - needs an extra

        try:
            otlp = OtlpTracer(
                collector,
                convert(section, Sampling),
                service=section.service_name,
                cluster=config.cluster,
                on_spans=lambda result, count: metrics.trace_spans.labels(result).inc(count),
            )
        except CloudgraftError as error:  # a file of the section
            raise ConfigError(refusals(error, config.where("tracing"))) from error
        for result in ("sent", "failed", "dropped"):
            metrics.trace_spans.labels(result)
        return cls(otlp, otlp)

    def running(self) -> AbstractContextManager[None]:
        """Sends what waits when the block ends, within a few seconds."""
        return self._otlp.running() if self._otlp is not None else nullcontext()


def check_tracing(config: Config) -> None:
    """Raises ConfigError if the section cannot be used; opens nothing."""
    if config.tracing is not None:
        collector = _collector(config, config.tracing)
        try:
            collector.check()
        except CloudgraftError as error:
            raise ConfigError(refusals(error, config.where("tracing"))) from error


def _collector(config: Config, section: Tracing) -> Collector:
    try:
        with needing("tracing", "tracing"):
            from cloudgraft.tracing.exporter import Collector  # noqa: PLC0415 - needs an extra
    except CloudgraftError as error:
        raise ConfigError(refusals(error, config.where("tracing"))) from error
    tls = section.tls
    if tls is None:
        return Collector(endpoint=section.endpoint, headers_file=section.headers_file)
    return convert(
        tls,
        Collector,
        endpoint=section.endpoint,
        is_encrypted=True,
        headers_file=section.headers_file,
        server_name=tls.server_name or "",
    )
