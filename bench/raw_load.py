"""The load generator that costs next to nothing: gRPC's frames written by hand on a plain socket.

A gRPC client in Python takes about as much of the processor as the server does, and with two cores that hides a part
of what a server costs. This one leaves the machine to the server, so its ratios are the strictest there are. It knows
just enough of HTTP/2 for small unary calls to a server on the same machine.
"""

from __future__ import annotations

import itertools
import socket
import ssl
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.load import DEADLINE, Block
from bench.processes import ServerProcess
from cloudgraft.certs.authority import Bundle
from cloudgraft.wire.externalgrpc import RPCS

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GO_AWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_END_STREAM = _ACK = 1
_END_HEADERS = 4
_FRAME_HEAD, _MESSAGE_HEAD = 9, 5
_INITIAL_WINDOW = 4  # the number of that setting
_LARGEST_WINDOW = 2**31 - 1


class RawCaller:
    """A caller on one socket. It blocks the event loop on purpose: nothing else runs while a block is measured."""

    def __init__(self, server: ServerProcess, certificates: Path | None) -> None:
        self.server = server
        self._secure = certificates is not None
        self._socket = _connect(server.address, certificates)
        self._received = b""
        self._streams = itertools.count(1, 2)
        self._headers: dict[str, bytes] = {}
        # Answers are never held up: the windows are as large as they can be, and small answers never fill them.
        windows = _frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW, _LARGEST_WINDOW))
        windows += _frame(_WINDOW_UPDATE, 0, 0, struct.pack(">I", _LARGEST_WINDOW - 65_535))
        self._socket.sendall(_PREFACE + windows)

    async def answer(self, rpc: str, request: bytes) -> bytes:
        """One call, to look at what it answers."""
        self._send(rpc, request)
        message = b""
        for kind, flags, _, payload in self._frames():
            if kind == _DATA:
                message += payload
            if flags & _END_STREAM:
                break
        return message[_MESSAGE_HEAD:]

    async def block(self, rpc: str, requests: Sequence[bytes], *, callers: int) -> Block:
        """Sends all requests, so many at a time; raises when one of them fails."""
        clock, micros, queue = time.perf_counter_ns, list[float](), iter(requests)
        begun = clock()
        sent_at = {self._send(rpc, request): clock() for request in itertools.islice(queue, callers)}
        answered = set()
        for kind, flags, stream, _ in self._frames():
            if kind == _DATA:
                answered.add(stream)
            if not flags & _END_STREAM:
                continue
            micros.append((clock() - sent_at.pop(stream)) / 1000)
            if stream not in answered:  # an error has no message, only a status
                raise RuntimeError(f"the {self.server.kind} server failed {rpc}")
            for request in itertools.islice(queue, 1):
                now = clock()
                sent_at[self._send(rpc, request)] = now
            if not sent_at:
                break
        return Block(micros, (clock() - begun) / 1e9)

    async def close(self) -> None:
        """Ends the connection."""
        self._socket.close()

    def _send(self, rpc: str, request: bytes) -> int:
        if rpc not in self._headers:
            self._headers[rpc] = _request_headers(RPCS[rpc].path, self.server.address, secure=self._secure)
        stream, message = next(self._streams), b"\0" + len(request).to_bytes(4) + request
        headers = _frame(_HEADERS, _END_HEADERS, stream, self._headers[rpc])
        self._socket.sendall(headers + _frame(_DATA, _END_STREAM, stream, message))
        return stream

    def _frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        """The frames of answers as they come: kind, flags, stream, payload. Housekeeping is done on the way."""
        while True:
            while (frame := self._next_frame()) is None:
                more = self._socket.recv(65_536)
                if not more:
                    raise ConnectionError(f"the {self.server.kind} server closed the connection")
                self._received += more
            kind, flags, _, payload = frame
            if kind in (_DATA, _HEADERS):
                yield frame
            elif kind in (_SETTINGS, _PING) and not flags & _ACK:
                self._socket.sendall(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
            elif kind in (_RESET, _GO_AWAY):
                raise ConnectionError(f"the {self.server.kind} server gave up: {payload!r}")

    def _next_frame(self) -> tuple[int, int, int, bytes] | None:
        head = self._received[:_FRAME_HEAD]
        end = _FRAME_HEAD + int.from_bytes(head[:3])
        if len(head) < _FRAME_HEAD or len(self._received) < end:
            return None
        payload, self._received = self._received[_FRAME_HEAD:end], self._received[end:]
        return head[3], head[4], int.from_bytes(head[5:]), payload


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def _request_headers(path: str, host: str, *, secure: bool) -> bytes:
    """The headers of a unary call, as literals: names by their number in HPACK's static table where they have one."""
    return b"".join(
        (
            b"\x83" + (b"\x87" if secure else b"\x86"),  # :method POST, :scheme https or http
            b"\x04" + _text(path),
            b"\x01" + _text(host),
            b"\x0f\x10" + _text("application/grpc"),
            b"\x00" + _text("te") + _text("trailers"),
            b"\x00" + _text("grpc-timeout") + _text(f"{DEADLINE:.0f}S"),
        )
    )


def _text(value: str) -> bytes:
    assert len(value) < 127, "longer texts have a length of several bytes"
    return bytes((len(value),)) + value.encode()


def _connect(address: str, certificates: Path | None) -> socket.socket:
    host, _, port = address.rpartition(":")
    plain = socket.create_connection((host, int(port)), timeout=DEADLINE)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if certificates is None:
        return plain
    files = Bundle.at(certificates)
    context = ssl.create_default_context(cafile=str(files.ca_cert))
    context.load_cert_chain(files.client_cert, files.client_key)
    context.set_alpn_protocols(["h2"])
    return context.wrap_socket(plain, server_hostname=host)
