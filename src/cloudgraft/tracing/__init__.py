"""Sends traces to an OpenTelemetry collector, over OTLP with gRPC. Needs the extra `tracing`."""
