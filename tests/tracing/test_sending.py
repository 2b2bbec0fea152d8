"""How spans reach the collector: TLS, secret headers, files that change, limits, and a process that forks."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from opentelemetry.sdk import trace

from cloudgraft.certs.authority import Bundle, create_bundle
from cloudgraft.client.driver_calls import call_driver
from cloudgraft.sdk.common.tracing import active, current_span, step
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError, PreconditionError
from cloudgraft.sdk.secrecy import hide
from cloudgraft.tracing.exporter import Collector, SpanCounts
from cloudgraft.tracing.tracer import OtlpTracer, Sampling
from cloudgraft.wire.driver import SERVICE
from cloudgraft.wire.pb import driver_pb2 as pb
from tests.conditions import until
from tests.own_port import OWN_PORT
from tests.tracing.otlp_receiver import Receiver

SECRET = "Bearer 5f2c8e0d9b7a4c31"


@contextmanager
def tracing(collector: Collector, counts: Counter[str] | None = None) -> Iterator[OtlpTracer]:
    counted = Counter[str]() if counts is None else counts

    def on_spans(result: str, count: int) -> None:
        counted[result] += count

    tracer = OtlpTracer(collector, Sampling(), service="test", cluster="test", on_spans=on_spans)
    with tracer.running():
        yield tracer


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def test_what_waits_is_sent_when_the_process_stops(receiver: Receiver) -> None:
    counts = Counter[str]()
    with tracing(Collector(endpoint=receiver.address), counts) as tracer:
        for number in range(1000):
            tracer.begin(f"span {number}", {}).end()
    assert len(receiver.spans) == counts["sent"] == 1000


def test_steps_are_children_and_a_failed_one_hides_what_is_secret(receiver: Receiver) -> None:
    hide("hunter2hunter2")
    with tracing(Collector(endpoint=receiver.address)) as tracer:
        with active(tracer.begin("whole", {})):
            with pytest.raises(PreconditionError), step("part", {"note": "it is hunter2hunter2"}):
                raise PreconditionError("not with hunter2hunter2")
            with pytest.raises(ZeroDivisionError), step("bug", {}):
                raise ZeroDivisionError("hunter2hunter2")
        assert current_span() is None
        with step("outside", {}) as nothing:
            assert nothing is None
    (whole,), (part,), (bug,) = (receiver.named(name) for name in ("whole", "part", "bug"))
    assert (part.trace, part.parent, bug.parent) == (whole.trace, whole.id, whole.id)
    assert (part.is_failed, part.message, part.about["error.type"]) == (True, "not with [secret]", "precondition")
    assert part.about["note"] == "it is [secret]"
    assert (bug.is_failed, bug.message, bug.about["error.type"]) == (True, "", "ZeroDivisionError")
    assert not receiver.named("outside")


async def test_mutual_tls_and_secret_headers_are_read_again_when_they_change(tmp_path: Path) -> None:
    bundle = create_bundle(tmp_path / "certs", hosts=["127.0.0.1"])
    headers = tmp_path / "headers"
    headers.write_text(f"Authorization: {SECRET}\n\nX-Tenant: a\n")
    with (
        Receiver(_mutual(bundle)) as receiver,
        tracing(
            Collector(
                endpoint=receiver.address,
                is_encrypted=True,
                ca=bundle.ca_cert,
                cert=bundle.client_cert,
                key=bundle.client_key,
                headers_file=headers,
            )
        ) as tracer,
    ):
        tracer.begin("first", {"about": SECRET}).end()
        await receiver.has("first")
        headers.write_text("authorization: other\n")
        tracer.begin("second", {}).end()
        await receiver.has("second")
        headers.write_text("broken")  # half of a change
        tracer.begin("third", {}).end()
        await receiver.has("third")
    assert [call.get("authorization") for call in receiver.calls] == [SECRET, "other", "other"]
    assert receiver.calls[0]["x-tenant"] == "a"
    assert receiver.named("first")[0].about == {"about": "[secret]"}


@pytest.mark.parametrize("files", [{}, {"ca": "ca"}])
async def test_a_collector_without_a_good_certificate_gets_nothing(
    tmp_path: Path, files: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    bundle, other = (create_bundle(tmp_path / name, hosts=["127.0.0.1"]) for name in ("certs", "other"))
    ca = other.ca_cert if files else None
    counts = Counter[str]()
    with (
        Receiver(_mutual(bundle)) as receiver,
        tracing(Collector(endpoint=receiver.address, is_encrypted=True, ca=ca), counts) as tracer,
    ):
        tracer.begin("never", {}).end()
    assert not receiver.spans
    assert counts == {"failed": 1}
    assert "1 spans of traces were lost" in caplog.text


async def test_a_call_to_a_plugin_continues_the_trace_and_without_one_says_nothing(receiver: Receiver) -> None:
    seen: list[str] = []

    async def answer(_: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        seen.extend(str(value) for key, value in context.invocation_metadata() or () if key == "traceparent")
        return b""

    server = grpc.aio.server(options=OWN_PORT)
    handler = grpc.method_handlers_generic_handler(SERVICE, {"List": grpc.unary_unary_rpc_method_handler(answer)})
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            with tracing(Collector(endpoint=receiver.address)) as tracer:
                await call_driver("it", channel, "List", pb.ListRequest(), seconds=20)
                with active(tracer.begin("list", {})) as span:
                    await call_driver("it", channel, "List", pb.ListRequest(), seconds=20)
    finally:
        await server.stop(None)
    assert seen == [span.traceparent]
    assert seen[0].split("-")[1:3] == [span.trace_id, span.span_id]


def _mutual(bundle: Bundle) -> grpc.ServerCredentials:
    ca, cert, key = (path.read_bytes() for path in (bundle.ca_cert, bundle.server_cert, bundle.server_key))
    return grpc.ssl_server_credentials([(key, cert)], ca, require_client_auth=True)


@pytest.mark.parametrize("text", ["no colon", "a b: c", ": c", "a:", "ä: b", "blob-bin: x", f"x {SECRET}"])
def test_a_file_of_headers_that_cannot_be_used_is_named_and_not_quoted(tmp_path: Path, text: str) -> None:
    path = tmp_path / "headers"
    path.write_text(text)
    with pytest.raises(PreconditionError) as caught:
        Collector(endpoint="127.0.0.1:1", headers_file=path).check()
    assert str(path) in caught.value.message
    assert text not in caught.value.message


def test_a_key_that_does_not_fit_is_found_before_the_start(tmp_path: Path) -> None:
    bundle = create_bundle(tmp_path / "certs", hosts=["127.0.0.1"])
    wrong = Collector(endpoint="x:1", is_encrypted=True, cert=bundle.client_cert, key=bundle.server_key)
    with pytest.raises(InvalidArgumentError, match="does not belong"):
        wrong.check()
    with pytest.raises(CloudgraftError), tracing(wrong):
        pass


async def test_what_a_hanging_collector_does_not_take_is_dropped_and_counted(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.hang()
    counts = Counter[str]()
    with tracing(Collector(endpoint=receiver.address), counts) as tracer:
        for _ in range(10_000):
            tracer.begin("one of many", {}).end()
        await until(lambda: bool(receiver.calls), what="it hangs in a call")
        assert counts["dropped"] == 10_000 - 4096
    assert counts == {"dropped": 10_000 - 4096, "failed": 4096}
    assert sum(int(record.getMessage().split()[0]) for record in caplog.records) == 10_000


def test_a_failure_of_the_library_costs_the_span_alone(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with tracing(Collector(endpoint=receiver.address)) as tracer:
        first = tracer.begin("first", {})
        with monkeypatch.context() as broken:
            broken.setattr(trace.Tracer, "start_span", _fails)
            for span in (tracer.begin("second", {}), first.child("part", {})):
                with active(span):
                    assert not span.is_sampled
        first.end()
    assert [span.name for span in receiver.spans] == ["first"]
    assert caplog.text.count("a span cannot be begun") == 2


def _fails(*_: object) -> None:
    raise ZeroDivisionError


def test_losses_are_logged_once_a_minute_and_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    counts = SpanCounts(lambda result, count: None, clock=lambda: now[0])
    caplog.set_level(logging.INFO)
    for second in range(150):
        now[0] = second
        assert counts.admit()
        counts.ended(1, "away")
        counts.report()
    counts.report(is_last=True)
    counts.report(is_last=True)
    assert [record.getMessage().split()[0] for record in caplog.records] == ["1", "60", "60", "29"]
    assert {getattr(record, "error", "") for record in caplog.records} == {"away"}


_FORK = """
import os, sys
from cloudgraft.tracing.exporter import Collector
from cloudgraft.tracing.tracer import OtlpTracer, Sampling
collector = Collector(endpoint=sys.argv[1])
tracer = OtlpTracer(collector, Sampling(), service="t", cluster="t", on_spans=lambda *_: None)
with tracer.running():
    tracer.begin("before", {}).end()
    child = os.fork()
    if child == 0:
        os._exit(0)
    _, status = os.waitpid(child, 0)
    tracer.begin("after", {}).end()
sys.exit(status)
"""


def test_a_child_that_is_forked_sends_nothing_again_and_ends(receiver: Receiver) -> None:
    done = subprocess.run([sys.executable, "-c", _FORK, receiver.address], check=False, timeout=50, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert sorted(span.name for span in receiver.spans) == ["after", "before"]
