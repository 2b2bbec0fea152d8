"""An answer that comes byte by byte ends when its time is over: a driver's threads are few (D31)."""

from __future__ import annotations

import socket
import threading

import pytest
import requests

from cloudgraft.drivers.common.requests_calls import error_of_request, limit_answers
from cloudgraft.sdk.errors import DeadlineError
from tests.drivers.slow_server import HEAD, slow_server

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole"


@pytest.mark.parametrize("begins", [b"HTTP/1.1 200 ", HEAD], ids=["headers", "body"])
def test_an_answer_that_trickles_is_given_up_and_its_outcome_is_unknown(begins: bytes) -> None:
    with requests.Session() as session, slow_server(begins) as url:
        limit_answers(session)
        with pytest.raises(requests.RequestException) as caught:
            session.post(url, data=b"x", timeout=(5, 0.3))
    assert type(error_of_request(caught.value, "create m-1", is_change=True)) is DeadlineError


def test_a_proxy_is_held_to_it_too() -> None:
    with requests.Session() as session, slow_server(HEAD) as proxy:
        limit_answers(session)
        with pytest.raises(requests.RequestException):
            session.post("http://cloud.invalid/", data=b"x", timeout=(5, 0.3), proxies={"http": proxy})


def test_a_connection_is_used_again_and_each_answer_has_its_own_time() -> None:
    with requests.Session() as session, socket.create_server(("127.0.0.1", 0)) as server:
        limit_answers(session)

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                for _ in range(2):
                    connection.recv(65536)
                    connection.sendall(WHOLE)

        thread = threading.Thread(target=serve)
        thread.start()
        for timeout in (5, 7):
            answer = session.get(f"http://127.0.0.1:{server.getsockname()[1]}/", timeout=timeout)
            assert answer.content == b"whole"
        thread.join()
