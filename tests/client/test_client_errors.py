"""A failed call becomes the error of the sdk that it stands for."""

from __future__ import annotations

import grpc
import grpc.aio
import pytest

from cloudgraft.client import NotImplementedByProtocolError, error_from_rpc
from cloudgraft.client.errors import ERROR_KEY, RETRY_AFTER_KEY, status_of
from cloudgraft.sdk.errors import (
    CloudgraftError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfStockError,
    PermissionDeniedError,
    QuotaExceededError,
    RateLimitedError,
    StatusCode,
    UnavailableError,
    UnsupportedError,
    error_table,
)
from cloudgraft.server.listener import metadata_of

_CODES = {code.value[0]: code for code in grpc.StatusCode}


def failed(code: grpc.StatusCode, message: str | None = "why", **metadata: str) -> grpc.aio.AioRpcError:
    trailing = grpc.aio.Metadata(*((key.replace("_", "-"), value) for key, value in metadata.items()))
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, message)


@pytest.mark.parametrize("kind", error_table(), ids=lambda kind: kind.slug)
def test_every_error_of_the_table_survives_the_way_over_the_wire(kind: type[CloudgraftError]) -> None:
    received = error_from_rpc(
        failed(_CODES[kind.status], "the reason", cloudgraft_error=kind.slug, cloudgraft_retry_after="2.5")
    )
    assert (type(received), received.message, received.retry_after) == (kind, "the reason", 2.5)
    assert not received.is_final


@pytest.mark.parametrize("kind", error_table(), ids=lambda kind: kind.slug)
def test_a_final_error_is_final_on_the_other_side(kind: type[CloudgraftError]) -> None:
    metadata = {key.replace("-", "_"): value for key, value in metadata_of(kind("why").as_final())}
    received = error_from_rpc(failed(_CODES[kind.status], **metadata))
    assert (type(received), received.is_final) == (kind, True)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNIMPLEMENTED, UnsupportedError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, QuotaExceededError),
        (grpc.StatusCode.UNKNOWN, InternalError),
        (grpc.StatusCode.DATA_LOSS, InternalError),
        (grpc.StatusCode.CANCELLED, DeadlineError),
        (grpc.StatusCode.OUT_OF_RANGE, InvalidArgumentError),
        (grpc.StatusCode.UNAVAILABLE, UnavailableError),
        (grpc.StatusCode.PERMISSION_DENIED, PermissionDeniedError),
    ],
)
def test_a_foreign_servers_status_alone_decides(code: grpc.StatusCode, kind: type[CloudgraftError]) -> None:
    received = error_from_rpc(failed(code))
    assert type(received) is kind
    assert received.retry_after is None


@pytest.mark.parametrize("slug", ["no_such_error", "", "out_of_stock"])
def test_a_name_that_is_unknown_or_does_not_fit_the_status_is_not_believed(slug: str) -> None:
    assert type(error_from_rpc(failed(grpc.StatusCode.NOT_FOUND, cloudgraft_error=slug))) is NotFoundError


def test_errors_that_share_a_status_differ_by_their_name() -> None:
    exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED
    assert type(error_from_rpc(failed(exhausted, cloudgraft_error="out_of_stock"))) is OutOfStockError
    assert type(error_from_rpc(failed(exhausted, cloudgraft_error="rate_limited"))) is RateLimitedError


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf", "", "1e999"])
def test_a_senseless_time_to_wait_is_ignored(text: str) -> None:
    assert error_from_rpc(failed(grpc.StatusCode.UNAVAILABLE, cloudgraft_retry_after=text)).retry_after is None


def test_an_error_without_a_message_gets_one() -> None:
    assert "NOT_FOUND" in error_from_rpc(failed(grpc.StatusCode.NOT_FOUND, "")).message
    assert "NOT_FOUND" in error_from_rpc(failed(grpc.StatusCode.NOT_FOUND, None)).message


def test_a_message_that_is_too_large_is_not_taken_for_a_quota() -> None:
    exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED
    answer = error_from_rpc(failed(exhausted, "CLIENT: Received message larger than max (5 vs. 4)"))
    assert type(answer) is InternalError
    request = error_from_rpc(failed(exhausted, "grpc: received message larger than max (5 vs. 4)"))
    assert type(request) is InvalidArgumentError


def test_the_status_on_the_wire_is_known_even_when_the_error_has_another() -> None:
    wire = failed(grpc.StatusCode.CANCELLED)
    with pytest.raises(DeadlineError) as raised:
        raise error_from_rpc(wire) from wire
    assert status_of(raised.value) is StatusCode.CANCELLED
    assert status_of(NotFoundError("x")) is StatusCode.NOT_FOUND
    assert status_of(ValueError("x")) is StatusCode.UNKNOWN


def test_what_the_protocol_lacks_is_a_kind_of_unsupported() -> None:
    assert issubclass(NotImplementedByProtocolError, UnsupportedError)
    assert (ERROR_KEY, RETRY_AFTER_KEY) == ("cloudgraft-error", "cloudgraft-retry-after")  # what servers send
