"""The native transport: HTTP/2, TLS, gRPC's framing and ready replies, without Python."""

from collections.abc import Mapping, Sequence

__version__: str

class Call:
    """One call that Python answers, once: with `reply` or `fail`. Dropped without an answer it ends with INTERNAL."""

    number: int
    method: str
    peer: str
    client: str
    seconds_left: float | None
    traceparent: str
    message: bytes
    def reply(self, message: bytes, subjects: Sequence[str] | None = None) -> None: ...
    def fail(self, code: int, message: str, metadata: Sequence[tuple[str, str]]) -> None: ...

class Cancelled:
    """The caller of this call has left."""

    number: int

class Waiting:
    """Something waits until Python has brought the listener up to date: a "connection", or a "health" check."""

    reason: str
    def go_on(self) -> None: ...

class Certificate:
    """A client's certificate, of which Python says whose it is and whether that one may call."""

    der: bytes
    def identify(self, names: str, is_allowed: bool) -> None: ...

class Refused:
    """A call of a client that may not call; it was answered already."""

    peer: str
    client: str
    method: str

class Stopped:
    """The listener has stopped: no connection is left."""

class Listener:
    """One listening address for one gRPC service. All methods return at once."""

    def __init__(
        self,
        service: str,
        methods: Mapping[str, str],
        *,
        descriptors: bytes,
        healthy_names: Sequence[str],
        buckets: Sequence[float],
        table_bytes: int,
        connections: int,
        streams: int,
        calls: int,
        header_bytes: int,
        message_bytes: int,
        handshake: float,
        idle: float,
        stall: float,
    ) -> None: ...
    def start(self, address: str) -> str: ...
    def fileno(self) -> int: ...
    def take(self) -> list[Call | Cancelled | Waiting | Certificate | Refused | Stopped]: ...
    def set_tls(self, cert: bytes, key: bytes, client_ca: bytes) -> None: ...
    def beat(self, is_usable: bool) -> None: ...
    def valid_until(self, seconds: float) -> None: ...
    def bypass(self, is_bypassed: bool) -> None: ...
    def publish(self, subjects: Sequence[str]) -> None: ...
    def clear(self) -> None: ...
    def drop_connections(self) -> None: ...
    def stop(self) -> None: ...
    def connections(self) -> int: ...
    def refusals(self) -> dict[str, int]: ...
    def answered(self) -> dict[str, tuple[list[int], float]]: ...
    def table(self) -> tuple[int, int, int, int]: ...
    def last_call(self) -> float: ...
