"""Receivers that misbehave, over real sockets and TLS: each has a clear error, nothing hangs, nothing is done twice."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.certs.authority import Bundle, create_bundle
from cloudgraft.certs.defaults import DEFAULT_HOSTS
from cloudgraft.drivers.http.client import Connections
from cloudgraft.drivers.http.driver import HttpDriver
from cloudgraft.drivers.http.options import Options
from cloudgraft.sdk.driver import Idempotency, Machine, MachineSpec
from cloudgraft.sdk.errors import (
    AuthenticationError,
    CloudgraftError,
    DeadlineError,
    InternalError,
    OutOfStockError,
    PreconditionError,
    RateLimitedError,
    Retry,
    UnavailableError,
)
from cloudgraft.sdk.list_budget import ListBudget
from tests.conditions import until
from tests.drivers.http.misbehaving_server import Rogue, Seen, answers, hangs, machine, makes, says
from tests.drivers.http.receiver_process import ReceiverProcess

Started = Callable[[Options], HttpDriver]
SPEC = MachineSpec(name="pool-1", group="pool", settings={"shape": "small"}, tags={"a": "b"}, user_data="#cloud-config")
PAGE = {"machines": [machine("pool-1")]}
SHORT = timedelta(milliseconds=300)


# -- certificates ------------------------------------------------------------------------------------------------------


async def test_an_expired_certificate_is_told_as_such_and_nothing_was_sent(tmp_path: Path, started: Started) -> None:
    now = datetime.now(UTC)
    expired = create_bundle(
        tmp_path / "certs",
        hosts=DEFAULT_HOSTS,
        not_before=now - timedelta(days=9),
        not_after=now - timedelta(days=2),
    )
    with Rogue(makes, bundle=expired) as rogue:
        with pytest.raises(UnavailableError, match="certificate has expired: renew it"):
            await started(rogue.options()).create(SPEC)
        assert rogue.seen == []


async def test_a_certificate_of_an_unknown_authority_is_not_trusted(
    bundle: Bundle, stranger: Bundle, started: Started
) -> None:
    with Rogue(makes, bundle=stranger) as rogue:
        for options in (rogue.options(ca_file=bundle.ca_cert), rogue.options(ca_file=None)):
            with pytest.raises(UnavailableError, match=r"signed by nobody that is trusted here .* caFile"):
                await started(options).create(SPEC)
        assert rogue.seen == []


async def test_a_certificate_for_another_host_is_not_trusted(tmp_path: Path, started: Started) -> None:
    other = create_bundle(tmp_path / "certs", hosts=["machines.example"])
    with Rogue(makes, bundle=other) as rogue:
        with pytest.raises(UnavailableError, match=r"is for another host .* into `url`"):
            await started(rogue.options()).create(SPEC)
        assert rogue.seen == []


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda one: one.name)
async def test_a_receiver_that_misses_our_certificate_says_so(
    newest: ssl.TLSVersion, bundle: Bundle, started: Started
) -> None:
    with Rogue(makes, bundle=bundle, asks_client=True, newest_tls=newest) as rogue:
        with pytest.raises((AuthenticationError, UnavailableError), match="certFile and keyFile"):
            await started(rogue.options()).create(SPEC)
        assert rogue.seen == []


async def test_a_certificate_of_ours_that_the_receiver_does_not_know_is_an_authentication_error(
    bundle: Bundle, stranger: Bundle, started: Started
) -> None:
    ours = {"cert_file": stranger.client_cert, "key_file": stranger.client_key}
    with Rogue(makes, bundle=bundle, asks_client=True) as rogue:
        with pytest.raises(AuthenticationError, match=r"does not accept our certificate \(.*unknown ca\)"):
            await started(rogue.options(**ours)).create(SPEC)
        assert rogue.seen == []


async def test_a_receiver_without_tls_is_no_receiver(bundle: Bundle, started: Started) -> None:
    with Rogue(makes) as rogue:
        options = rogue.options(url=f"https://127.0.0.1:{rogue.port}", ca_file=bundle.ca_cert, connect_timeout=SHORT)
        with pytest.raises(UnavailableError, match="cannot be reached"):
            await started(options).list()


# -- answers that are none ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_refused_and_not_followed(status: int, bundle: Bundle, started: Started) -> None:
    with (
        Rogue(makes, bundle=bundle) as elsewhere,
        Rogue(answers(status, Location=f"https://127.0.0.1:{elsewhere.port}/x?token=y"), bundle=bundle) as rogue,
    ):
        driver = started(rogue.options())
        with pytest.raises(PreconditionError, match=rf"answered {status} to .*{elsewhere.port}/x\", redirects are not"):
            await driver.create(SPEC)
        with pytest.raises(PreconditionError, match="redirects are not followed"):
            await driver.list()
        assert len(rogue.seen) == 2
        assert elsewhere.seen == []


async def test_half_an_answer_leaves_the_outcome_of_a_change_open(bundle: Bundle, started: Started) -> None:
    half = b'HTTP/1.1 201 Created\r\nContent-Length: 1000\r\n\r\n{"machine": {"name": "pool-1"'
    with Rogue(says(half), bundle=bundle) as rogue:
        driver = started(rogue.options())
        with pytest.raises(DeadlineError, match="whether it was done is not known"):
            await driver.create(SPEC)
        with pytest.raises(DeadlineError, match="whether it was done is not known"):
            await driver.delete(Machine(name="pool-1", machine_id="1"))
        with pytest.raises(UnavailableError, match="before there was a whole answer"):
            await driver.list()


async def test_half_a_list_without_a_length_is_no_list(bundle: Bundle, started: Started) -> None:
    """Nothing but the JSON itself tells that it is cut off."""
    half = b"HTTP/1.0 200 OK\r\n\r\n" + json.dumps(PAGE).encode()[:-1]
    with (
        Rogue(says(half), bundle=bundle) as rogue,
        pytest.raises(InternalError, match="list: the receiver's answer is not JSON"),
    ):
        await started(rogue.options()).list()


async def test_an_answer_of_100_mb_is_not_read_to_its_end(bundle: Bundle, started: Started) -> None:
    sent = 0

    def floods(connection: socket.socket, _: Seen) -> None:
        nonlocal sent
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        while sent < 100_000_000:
            connection.sendall(b" " * 1_000_000)
            sent += 1_000_000

    with Rogue(floods, bundle=bundle) as rogue:
        driver = started(rogue.options())
        with pytest.raises(InternalError, match=r"more than 16777216 bytes \(maxBody\)"):
            await driver.list()
        with pytest.raises(InternalError) as caught:
            await started(rogue.options(max_body=1024)).create(SPEC)
    assert caught.value.retry is Retry.SETTLE_FIRST
    assert sent < 60_000_000


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b"\xff\xfe", b'{"machine": 7}', b"[" * 100_000])
async def test_garbage_settles_nothing(body: bytes, bundle: Bundle, started: Started) -> None:
    with Rogue(answers(200, body), bundle=bundle) as rogue:
        driver = started(rogue.options())
        for call in (driver.create(SPEC), driver.list(), driver.shapes(), driver.prices()):
            with pytest.raises(InternalError, match="the receiver's answer"):
                await call


async def test_what_is_not_even_http_is_told(bundle: Bundle, started: Started) -> None:
    with Rogue(says(b"220 mail.example ESMTP\r\n"), bundle=bundle) as rogue:
        driver = started(rogue.options())
        with pytest.raises(DeadlineError, match="not known"):
            await driver.create(SPEC)
        with pytest.raises(UnavailableError):
            await driver.list()


async def test_an_answer_that_is_packed_is_not_unpacked(bundle: Bundle, started: Started) -> None:
    """A few packed bytes may be gigabytes."""
    with Rogue(answers(200, b"\x1f\x8b\x08", Content_Encoding="gzip"), bundle=bundle) as rogue:
        with pytest.raises(InternalError, match="encoding that was not asked for"):
            await started(rogue.options()).list()
        assert rogue.seen[0].headers["accept-encoding"] == "identity"


async def test_a_receiver_that_hangs_costs_no_more_than_the_timeout(bundle: Bundle, started: Started) -> None:
    with Rogue(hangs, bundle=bundle) as rogue:
        driver = started(rogue.options(timeout=SHORT))
        for call, words in ((lambda: driver.create(SPEC), "in time; whether it was done"), (driver.list, "in time")):
            rogue.seen.clear()
            error: CloudgraftError = UnavailableError("not called yet")
            while not rogue.seen:  # on a busy computer, even the handshake may take longer than that
                with pytest.raises((DeadlineError, UnavailableError)) as caught:
                    await call()
                error = caught.value
            assert isinstance(error, DeadlineError)
            assert words in error.message


async def test_a_receiver_that_hangs_in_the_handshake_got_nothing(bundle: Bundle, started: Started) -> None:
    with (
        Rogue(makes, bundle=bundle, shakes_hands=False) as rogue,
        pytest.raises(UnavailableError, match=r"no connection in time \(connectTimeout\)"),
    ):
        await started(rogue.options(connect_timeout=SHORT)).create(SPEC)


async def test_a_call_that_is_given_up_in_the_handshake_leaves_no_connection(bundle: Bundle, started: Started) -> None:
    with Rogue(makes, bundle=bundle, shakes_hands=False) as rogue:
        call = asyncio.create_task(started(rogue.options()).create(SPEC))
        await until(lambda: rogue.connections > 0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: rogue.connections == 0)


async def test_close_ends_calls_that_are_under_way(bundle: Bundle, started: Started) -> None:
    """Also those that wait to come again."""
    with Rogue(hangs, bundle=bundle) as rogue, Rogue(answers(429, Retry_After="30"), bundle=bundle) as busy:
        for server in (rogue, busy):
            driver = started(server.options())
            call = asyncio.create_task(driver.create(SPEC))
            await until(lambda server=server: len(server.seen) > 0)  # type: ignore[misc]  # a default in a lambda
            await driver.close()
            with pytest.raises(DeadlineError, match="closed in the middle"):
                await call


async def test_a_receiver_that_is_not_there_got_nothing(started: Started) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        with pytest.raises(UnavailableError, match="cannot be reached"):
            await started(Options(url=f"https://127.0.0.1:{unheard.getsockname()[1]}")).create(SPEC)


# -- when to come again ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 503])
async def test_a_call_comes_again_when_it_is_told_when(status: int, bundle: Bundle, started: Started) -> None:
    soon = format_datetime(datetime.now(UTC), usegmt=True)
    later = (answers(status, Retry_After="0"), answers(status, Retry_After=soon))
    with Rogue(*later, makes, bundle=bundle) as rogue:
        assert (await started(rogue.options()).create(SPEC)).machine_id == "id-pool-1"
        assert [request.headers["idempotency-key"] for request in rogue.seen] == ["pool-1"] * 3


@pytest.mark.parametrize(
    ("status", "error", "words"), [(429, RateLimitedError, "nothing was done"), (503, DeadlineError, "is not known")]
)
async def test_a_call_does_not_wait_longer_than_it_may(
    status: int, error: type[CloudgraftError], words: str, bundle: Bundle, started: Started
) -> None:
    """The engine gets the hint, and waits without a call that is open."""
    with Rogue(answers(status, Retry_After="3000"), answers(status), bundle=bundle) as rogue:
        driver = started(rogue.options())
        for hint in (3000, None):
            with pytest.raises(error, match=words) as caught:
                await driver.create(SPEC)
            assert caught.value.retry_after == hint
        assert len(rogue.seen) == 2


async def test_a_receiver_that_always_says_later_is_left(bundle: Bundle, started: Started) -> None:
    told = {"error": {"code": "rate_limited", "message": "slow down", "retryAfter": "0s"}}
    with Rogue(answers(429, told), bundle=bundle) as rogue:
        with pytest.raises(RateLimitedError, match="slow down"):
            await started(rogue.options(retries=2)).list()
        assert len(rogue.seen) == 3


@pytest.mark.parametrize("headers", [{}, {"Retry_After": "0"}], ids=["when: not told", "when: now"])
async def test_a_proxy_that_lost_the_receiver_leaves_open_what_was_done(
    headers: dict[str, str], bundle: Bundle, started: Started
) -> None:
    """Law 3. Envoy, Varnish and others answer 503 when the connection behind them broke in the middle of a request."""
    lost = answers(503, "upstream connect error or disconnect/reset before headers", **headers)
    with Rogue(lost, bundle=bundle) as rogue:
        with pytest.raises(DeadlineError, match="whether it was done is not known"):
            await started(rogue.options(idempotency=Idempotency.NONE)).create(SPEC)
        assert len(rogue.seen) == 1, "a second machine was ordered"
    told = {"error": {"code": "unavailable", "message": "maintenance"}}
    with Rogue(answers(503, told), bundle=bundle) as rogue, pytest.raises(UnavailableError, match="maintenance"):
        await started(rogue.options(idempotency=Idempotency.NONE)).create(SPEC)


async def test_what_an_earlier_try_may_have_done_stays_open(bundle: Bundle, started: Started) -> None:
    """Law 3. The second answer is about the second try only."""
    full = answers(409, {"error": {"code": "out_of_stock", "message": "no more"}})
    with Rogue(answers(503, Retry_After="0"), full, bundle=bundle) as rogue:
        with pytest.raises(DeadlineError, match="no more; whether an earlier try did it is not known"):
            await started(rogue.options()).create(SPEC)
        assert len(rogue.seen) == 2


# -- one machine -------------------------------------------------------------------------------------------------------


async def test_after_a_lost_answer_a_second_create_finds_the_same_machine(
    tmp_path: Path, bundle: Bundle, started: Started
) -> None:
    """Law 3. The first call reaches the receiver, and its answer is lost on the way back."""
    with ReceiverProcess(tmp_path) as receiver:

        def pass_on(request: Seen) -> tuple[int, object]:
            return receiver.ask(request.method, request.target, request.body, request.headers)

        def loses(connection: socket.socket, request: Seen) -> None:
            assert pass_on(request)[0] == 201
            connection.shutdown(socket.SHUT_RDWR)

        def passes(connection: socket.socket, request: Seen) -> None:
            answers(*pass_on(request))(connection, request)

        with Rogue(loses, passes, bundle=bundle) as rogue:
            driver = started(rogue.options())
            with pytest.raises(DeadlineError, match="whether it was done is not known"):
                await driver.create(SPEC)
            (found,) = await driver.list()
            assert await driver.create(SPEC) == found
            assert await driver.list() == [found]


async def test_an_answer_with_another_name_is_no_answer(bundle: Bundle, started: Started) -> None:
    with Rogue(answers(201, {"machine": machine("pool-2")}), bundle=bundle) as rogue:
        with pytest.raises(InternalError, match=r"pool-2.*pool-1") as caught:
            await started(rogue.options()).create(SPEC)
        assert caught.value.retry is Retry.SETTLE_FIRST


# -- lists -------------------------------------------------------------------------------------------------------------


async def test_a_list_has_all_pages(bundle: Bundle, started: Started) -> None:
    token = "a/b c&d=ü"
    pages = (
        {"machines": [machine("a"), machine("b")], "nextPageToken": token},
        {"machines": [], "nextPageToken": "2"},
        {"machines": [machine("c")], "nextPageToken": ""},
    )
    with Rogue(*(answers(200, page) for page in pages), bundle=bundle) as rogue:
        assert [found.name for found in await started(rogue.options()).list()] == ["a", "b", "c"]
        assert [request.target for request in rogue.seen] == [
            "/machines",
            "/machines?pageToken=a%2Fb%20c%26d%3D%C3%BC",
            "/machines?pageToken=2",
        ]


async def test_a_page_token_that_leads_in_a_circle_is_no_list(bundle: Bundle, started: Started) -> None:
    pages = [answers(200, {"machines": [machine(name)], "nextPageToken": token}) for name, token in ("a1", "b2", "c1")]
    with Rogue(*pages, bundle=bundle) as rogue:
        with pytest.raises(InternalError, match="leads back to a page"):
            await started(rogue.options()).list()
        assert len(rogue.seen) == 3


async def test_a_page_that_fails_is_no_end_of_the_list(bundle: Bundle, started: Started) -> None:
    first = answers(200, {**PAGE, "nextPageToken": "2"})
    for second in (answers(500), answers(404), answers(200, {}), says(b"")):
        with Rogue(first, second, bundle=bundle) as rogue, pytest.raises(CloudgraftError, match="list: "):
            await started(rogue.options()).list()


async def test_a_machine_on_two_pages_is_told(bundle: Bundle, started: Started) -> None:
    with (
        Rogue(answers(200, {**PAGE, "nextPageToken": "2"}), answers(200, PAGE), bundle=bundle) as rogue,
        pytest.raises(UnavailableError, match="two pages have the machineID 'id-pool-1'"),
    ):
        await started(rogue.options()).list()


# -- errors ------------------------------------------------------------------------------------------------------------


async def test_a_5xx_leaves_a_create_open_whatever_its_body_says(bundle: Bundle, started: Started) -> None:
    """It may come from a proxy, or after the machine was made: a list settles it (law 3)."""
    told = {"error": {"code": "out_of_stock", "message": "no more of small"}}
    with Rogue(answers(500, told), answers(502), answers(409, told), bundle=bundle) as rogue:
        driver = started(rogue.options())
        for status in (500, 502):
            with pytest.raises(DeadlineError, match=f"answered {status}.*whether it was done is not known"):
                await driver.create(SPEC)
        with pytest.raises(OutOfStockError, match=r"answered 409 \(out_of_stock\): no more of small"):
            await driver.create(SPEC)


@pytest.mark.parametrize("status", [404, 410])
async def test_deleting_what_is_gone_is_fine(status: int, bundle: Bundle, started: Started) -> None:
    with Rogue(answers(status), bundle=bundle) as rogue:
        await started(rogue.options()).delete(Machine(name="pool 1", machine_id="rack/7"))
        assert rogue.seen[0].target == "/machines/rack%2F7?name=pool%201"


@pytest.mark.parametrize("machine_id", ["", ".", ".."])
async def test_an_id_that_names_another_path_is_refused(machine_id: str, bundle: Bundle, started: Started) -> None:
    with Rogue(answers(204), bundle=bundle) as rogue:
        with pytest.raises(CloudgraftError, match="cannot be put into a path"):
            await started(rogue.options()).delete(Machine(name="pool-1", machine_id=machine_id))
        assert rogue.seen == []


async def test_user_data_that_a_receiver_quotes_is_not_shown(bundle: Bundle, started: Started) -> None:
    """Law 9."""
    told = {"error": {"code": "invalid_argument", "message": "line 2: token: abcdef.0123456789 is not YAML"}}
    spec = MachineSpec(name="pool-1", group="pool", user_data="#cloud-config\n  token: abcdef.0123456789\n")
    with (
        Rogue(answers(400, told), bundle=bundle) as rogue,
        pytest.raises(CloudgraftError, match=r"line 2: \[user data\] is not YAML"),
    ):
        await started(rogue.options()).create(spec)


async def test_a_driver_that_was_not_started_says_so() -> None:
    with pytest.raises(PreconditionError, match="not started"):
        await HttpDriver(Options(url="https://machines.example")).list()


def endless(connection: socket.socket, request: Seen) -> None:
    """A page of a hundred machines, and the way to the next."""
    number = int(request.target.rpartition("=")[2] or 0) if "=" in request.target else 0
    machines = [machine(f"m{number}-{one}") for one in range(100)]
    answers(200, {"machines": machines, "nextPageToken": str(number + 1)})(connection, request)


@pytest.mark.parametrize(
    ("limits", "bound"), [({"machines": 1000}, "maxListMachines"), ({"size": 50_000}, "maxListBytes")]
)
async def test_a_list_without_end_is_an_error_and_no_shorter_list(
    limits: dict[str, Any], bound: str, bundle: Bundle, started: Started
) -> None:
    with Rogue(endless, bundle=bundle) as rogue, ListBudget(**limits).applied():
        driver = started(rogue.options())
        with pytest.raises(InternalError, match=bound):
            await driver.list()
        assert len(rogue.seen) < 20


@pytest.mark.parametrize(
    ("start", "more", "why"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n", "chunks of less than 16 bytes"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", "KiB of headers"),
    ],
    ids=["one-byte chunks", "interim answers"],
)
async def test_an_answer_in_tiny_parts_is_not_read_for_ever(
    start: bytes, more: bytes, why: str, bundle: Bundle, started: Started
) -> None:
    def trickles(connection: socket.socket, _request: Seen) -> None:
        connection.sendall(start)
        for _ in range(100):
            connection.sendall(more * 10_000)

    with Rogue(trickles, bundle=bundle) as rogue:
        driver = started(rogue.options())
        with pytest.raises(InternalError, match=why):
            await driver.list()


async def test_others_get_their_turn_while_tiny_parts_are_read(bundle: Bundle) -> None:
    """Between two turns of others no more is handled than one small read may hold: 7 bytes for each 2 here."""
    chunks = b"2\r\n[]\r\n" * 10_000 + b"0\r\n\r\n"
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    turn = 0

    async def others() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    read: Counter[int] = Counter()
    with Rogue(says(head + chunks), bundle=bundle) as rogue:
        connections = Connections(rogue.options())
        waiting = asyncio.create_task(others())
        async with connections.lent() as http, http.stream("GET", f"https://127.0.0.1:{rogue.port}/") as answer:
            async for data in answer.aiter_raw():
                read[turn] += len(data)
        waiting.cancel()
        await connections.close()
    assert read.total() == 20_000
    assert max(read.values()) <= 2 * (4096 // 7 + 1)
