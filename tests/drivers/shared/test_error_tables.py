"""What a cloud's errors mean, by its table and by the HTTP status; what a broken request means."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
import requests

from cloudgraft.drivers.common.error_table import ErrorTable, Known, error_of_status, retry_after
from cloudgraft.drivers.common.requests_calls import error_of_request
from cloudgraft.sdk.errors import (
    CloudgraftError,
    ConflictError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    OutOfStockError,
    PermissionDeniedError,
    QuotaExceededError,
    RateLimitedError,
    UnavailableError,
)

TABLE = ErrorTable(
    Known(code="NoRoom", error=OutOfStockError, fix="try another zone"),
    Known(status=403, text="quota exceeded", error=QuotaExceededError),
)


def test_a_row_decides_before_the_status_and_says_what_to_do() -> None:
    error = TABLE.error("nothing left", status=500, code="NoRoom", is_change=True)
    assert type(error) is OutOfStockError
    assert error.message == "nothing left; try another zone"


def test_all_that_a_row_says_must_fit() -> None:
    assert type(TABLE.error("Quota Exceeded for cores", status=403, is_change=True)) is QuotaExceededError
    assert type(TABLE.error("you may not", status=403, is_change=True)) is PermissionDeniedError
    assert type(TABLE.error("quota exceeded", status=409, is_change=True)) is ConflictError


def test_a_row_is_found_by_what_the_cloud_said_and_not_by_the_name_of_a_machine() -> None:
    error = TABLE.error("create m-quota exceeded: you may not", said="you may not", status=403, is_change=True)
    assert type(error) is PermissionDeniedError
    error = TABLE.error("create m-1: no (HTTP 403)", said="QUOTA EXCEEDED", status=403, is_change=True)
    assert type(error) is QuotaExceededError
    assert error.message == "create m-1: no (HTTP 403)"


@pytest.mark.parametrize("status", [500, 502, 503, 504, 408, None])
def test_a_server_that_failed_has_not_said_that_it_did_nothing(status: int | None) -> None:
    assert type(error_of_status(status, "oops", is_change=True)) is DeadlineError
    assert type(error_of_status(status, "oops", is_change=False)) is UnavailableError


@pytest.mark.parametrize(
    ("status", "error"), [(418, InvalidArgumentError), (429, RateLimitedError), (302, InternalError)]
)
def test_a_status_has_its_error(status: int, error: type[CloudgraftError]) -> None:
    assert type(error_of_status(status, "no", is_change=True)) is error


def test_retry_after_is_a_number_or_a_date_or_nothing() -> None:
    assert retry_after({"retry-after": "7"}) == 7.0
    later = datetime.now(UTC) + timedelta(hours=1)
    told = retry_after({"Retry-After": format_datetime(later, usegmt=True)})
    assert told is not None
    assert 3000 < told <= 3600
    assert retry_after({"Retry-After": format_datetime(later - timedelta(days=1), usegmt=True)}) == 0.0
    assert retry_after({"Retry-After": "soon"}) is None
    assert retry_after({"Retry-After": "1e400"}) is None
    assert retry_after({}) is None


# -- requests ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def rude_server(*, answers: bytes = b"") -> Iterator[str]:
    """Reads what it is sent, says what it has to say, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answers)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        thread.join()


def failure(url: str, *, is_change: bool, proxy: str = "") -> CloudgraftError:
    with pytest.raises(requests.RequestException) as caught:
        requests.post(url, data=b"x", timeout=5, proxies={"http": proxy, "https": proxy} if proxy else None)
    return error_of_request(caught.value, "create m-1", is_change=is_change)


@pytest.mark.parametrize("answers", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf"])
def test_a_connection_that_broke_after_the_request_leaves_a_change_unknown(answers: bytes) -> None:
    with rude_server(answers=answers) as url:
        error = failure(url, is_change=True)
    assert type(error) is DeadlineError
    assert error.message.startswith("create m-1: ")
    with rude_server() as url:
        assert type(failure(url, is_change=False)) is UnavailableError


@pytest.fixture
def nobody() -> str:
    """Where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}/"


def test_where_nobody_listens_nothing_was_done(nobody: str) -> None:
    error = failure(nobody, is_change=True)
    assert type(error) is UnavailableError
    assert "Nothing was done" in error.message


def test_a_proxy_that_hangs_up_may_have_handed_the_request_on() -> None:
    """urllib3 says of it that the proxy could not be reached."""
    with rude_server() as proxy:
        error = failure("http://cloud.invalid/", is_change=True, proxy=proxy)
    assert type(error) is DeadlineError
    assert "HTTPS_PROXY" in error.message


def test_a_proxy_that_is_not_there_or_that_makes_no_way_has_handed_nothing_on(nobody: str) -> None:
    with rude_server(answers=b"HTTP/1.1 407 Who are you\r\n\r\n") as proxy:
        refused = failure("https://cloud.invalid/", is_change=True, proxy=proxy)
    for error in (refused, failure("http://cloud.invalid/", is_change=True, proxy=nobody)):
        assert type(error) is UnavailableError
        assert "Nothing was done" in error.message
