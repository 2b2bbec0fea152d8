"""What listeners share: descriptors, connections, log lines."""

from __future__ import annotations

import fcntl
import logging
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

import pytest

from cloudgraft.net import connections as own_sockets
from cloudgraft.net.connections import (
    TOO_MANY,
    TOO_SLOW,
    Connections,
    LimitedSocket,
    RateLimitedLog,
    choose,
)
from cloudgraft.net.descriptors import connection_limit, raise_descriptor_limit


@contextmanager
def soft_limit(files: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


class Place:
    """A listening socket with limited connections, and clients of it."""

    def __init__(self, limit: int) -> None:
        self.now = 0.0
        self.refused: list[str] = []
        self.connections = Connections(limit, self.refused.append, clock=lambda: self.now)
        self._stack = ExitStack()
        self.listening = LimitedSocket(socket.AF_INET, socket.SOCK_STREAM)
        self.listening.connections = self.connections
        self.listening.bind(("127.0.0.1", 0))
        self.listening.listen()

    def connect(self) -> tuple[socket.socket, socket.socket]:
        """Both ends of a new connection: the client's, and the one that was accepted."""
        client = self._stack.enter_context(socket.create_connection(self.listening.getsockname()))
        client.settimeout(10)
        accepted, _ = self.listening.accept()
        self._stack.enter_context(accepted)
        return client, accepted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self.listening.close()


def is_closed(client: socket.socket) -> bool:
    client.settimeout(0.0)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False


def test_the_oldest_of_the_address_with_the_most_goes_first() -> None:
    untrusted = {1: "a", 2: "b", 3: "b", 4: "b", 5: "a"}
    assert choose(untrusted, 0) == []
    assert choose(untrusted, 1) == [2]
    assert sorted(choose(untrusted, 3)) == [1, 2, 3]
    assert sorted(choose(untrusted, 99)) == [1, 2, 3, 4, 5]


def test_one_connection_too_many_closes_the_oldest_untrusted_one() -> None:
    with Place(limit=2) as place:
        trusted, accepted = place.connect()
        place.connections.trust(accepted.fileno())
        oldest, _ = place.connect()
        newest, _ = place.connect()
        assert [is_closed(one) for one in (trusted, oldest, newest)] == [False, True, False]
        assert place.refused == [TOO_MANY]
        assert len(place.connections) == 2


def test_a_newcomer_goes_when_all_others_are_trusted() -> None:
    with Place(limit=1) as place:
        trusted, accepted = place.connect()
        place.connections.trust(accepted.fileno())
        newcomer, _ = place.connect()
        assert [is_closed(trusted), is_closed(newcomer)] == [False, True]


def test_closed_connections_make_room() -> None:
    with Place(limit=2) as place:
        for _ in range(5):
            _, accepted = place.connect()
            accepted.close()
        assert place.refused == []
        assert len(place.connections) == 0


def test_a_handshake_that_takes_too_long_is_ended() -> None:
    with Place(limit=9) as place:
        slow, _ = place.connect()
        greeted, accepted = place.connect()
        place.connections.greet(accepted.fileno())
        place.now = 11.0
        young, _ = place.connect()
        place.connections.close_ungreeted(10.0)
        assert [is_closed(one) for one in (slow, greeted, young)] == [True, False, False]
        assert place.refused == [TOO_SLOW]


def test_no_listener_gets_more_than_its_share_of_the_descriptors() -> None:
    with soft_limit(1024):
        assert connection_limit(512) == 170
        assert 4 * connection_limit(10_000) < 1024 * 0.7  # all listeners together leave a third
        assert connection_limit(20) == 20
    with soft_limit(600):
        assert connection_limit(512) == 100


def test_the_soft_limit_of_open_files_is_raised() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with soft_limit(512):
        raised = raise_descriptor_limit()
        assert raised == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert raised > 512 or hard == 512


def test_each_client_gets_one_log_line_a_minute_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    limited = RateLimitedLog(logging.getLogger("cloudgraft.test"), clock=lambda: now[0])
    for number in range(4):
        limited.warning("line %d", number, extra={"peer": "x"})
    limited.warning("another", who="another client")
    now[0] = 61.0
    limited.warning("line %d", 5)
    limited.warning("another", who="another client")
    said = [record.getMessage() for record in caplog.records]
    assert said == ["line 0", "another", "line 5 (and 3 times more since the last such line)", "another"]


def test_clients_beyond_the_first_hundred_share_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    limited = RateLimitedLog(logging.getLogger("cloudgraft.test"), clock=lambda: 0.0)
    for number in range(1000):
        limited.warning("refused", who=number)
    assert len(caplog.records) == 101


def test_connections_that_a_library_accepted_can_be_found_and_ended() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_server(("127.0.0.1", 0)) as other:
        port = listening.getsockname()[1]
        with (
            socket.create_connection(listening.getsockname()) as client,
            socket.create_connection(other.getsockname()) as elsewhere,
            listening.accept()[0] as accepted,
            other.accept()[0] as also_accepted,
        ):
            peer = client.getsockname()
            assert own_sockets.accepted(port) == {peer: accepted.fileno()}
            assert not own_sockets.hang_up(also_accepted.fileno(), peer, port)  # the number belongs to another now
            assert not is_closed(elsewhere)
            assert own_sockets.hang_up(accepted.fileno(), peer, port)
            client.settimeout(10)
            assert client.recv(1) == b""


def test_looking_for_connections_keeps_the_locks_on_files(tmp_path: Path) -> None:
    """SQLite's are POSIX locks: the journal must look in use to another process."""
    path = tmp_path / "journal.db"
    with path.open("w+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        own_sockets.accepted(1)
        attempt = f"import fcntl; fcntl.lockf(open({str(path)!r}, 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
        done = subprocess.run([sys.executable, "-c", attempt], capture_output=True, text=True, timeout=60, check=False)
    assert "BlockingIOError" in done.stderr
