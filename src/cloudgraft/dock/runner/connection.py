"""Dials the hub: channel, credentials, ordered writes, and why a connection failed or ended."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from cloudgraft.client.channel import channel_credentials, open_channel, read_token
from cloudgraft.client.errors import error_from_rpc
from cloudgraft.dock.runner.options import RunnerOptions, Speech
from cloudgraft.sdk.errors import InternalError
from cloudgraft.sdk.secrecy import hide, redacted, unhide

# -- Connection --------------------------------------------------------------------------------------------------------


log = logging.getLogger("cloudgraft.dock")

Answer = TypeVar("Answer", bound=Message)
Stream = grpc.aio.StreamStreamCall[bytes, bytes]
_ANSWER: Final = 20.0  # seconds at most for the hub's answer to a ping
_FETCH: Final = 10.0  # seconds for fetching a class or a secret
LARGEST_MESSAGE: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Why a connection is over."""

    reason: str  # may be the hub's own message; redacted
    was_drained: bool = False  # the hub asked for it
    retry_after: float = 0.0  # seconds that the hub asks the driver to wait

    def __post_init__(self) -> None:
        """Redacts now, while the token is still known as a secret."""
        object.__setattr__(self, "reason", redacted(self.reason))


class Dialled:
    """A channel with the driver's credentials, which every call over it carries."""

    def __init__(self, channel: grpc.aio.Channel, token: str) -> None:
        self._channel = channel
        self._token = token
        self._metadata = (("authorization", f"Bearer {token}"),) if token else None

    def stream(self, path: str) -> Stream:
        """Opens the stream of operations."""
        method: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = self._channel.stream_stream(path)
        return method(metadata=self._metadata)

    async def ask(self, path: str, request: Message, answer: type[Answer]) -> Answer:
        """Makes a unary call beside the stream; raises an error of the sdk."""
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(path)
        try:
            data = await method(request.SerializeToString(), timeout=_FETCH, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error) from error
        try:
            return answer.FromString(data)
        except DecodeError as error:
            raise InternalError(f"the hub answered {path} with undecodable bytes") from error

    async def close(self) -> None:
        """Closes the channel and all calls over it."""
        await self._channel.close()
        unhide(self._token)


def dial(options: RunnerOptions) -> Dialled:
    """Opens a channel for one connection. Reads the files now, so that rotated ones are used from the next one on."""
    channel_options: list[tuple[str, int | str]] = [
        ("grpc.enable_retries", 0),
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.max_receive_message_length", LARGEST_MESSAGE),
        ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ]
    if options.settings.speech is not Speech.V1:
        channel_options += _pings(options.settings.keepalive)
    config = options.config()
    credentials = channel_credentials(config)
    token = read_token(Path(options.token_file)) if options.token_file else ""
    hide(token)
    return Dialled(open_channel(config, credentials, channel_options), token)


def _pings(every: float) -> Sequence[tuple[str, int]]:
    """Keepalive options: nothing else shows a driver of v0 that its hub has silently gone."""
    answer = int(min(every, _ANSWER) * 1000)
    return (
        ("grpc.keepalive_time_ms", int(every * 1000)),
        ("grpc.keepalive_timeout_ms", answer),
        ("grpc.http2.ping_timeout_ms", answer),  # else it is a minute, whatever keepalive says
    )


async def first_of(*parts: Coroutine[Any, Any, End]) -> End:
    """Runs the tasks of a connection until one of them ends; then cancels and awaits the others."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        ended = [task for task in tasks if task.done()]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return ended[0].result()


# -- Ordered writes ----------------------------------------------------------------------------------------------------
# One writer for each stream. The reader waits while the hub does not read.


_ROOM: Final = 1000  # messages


class Outbox:
    """Messages that wait to be written to the hub."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._waiting: deque[Message | None] = deque()
        self._changed = asyncio.Event()
        self._space = asyncio.Event()
        self._space.set()
        self._since: float | None = None  # when the current write began

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: Message) -> None:
        """Queues a message without waiting: what has happened must be reported."""
        self._waiting.append(message)
        self._changed.set()
        if len(self._waiting) >= _ROOM:
            self._space.clear()

    def end(self) -> None:
        """Half-closes the stream after all queued messages."""
        self._waiting.append(None)
        self._changed.set()

    async def room(self) -> None:
        """Waits until there is room: the reader accepts more work only when there is room for its result."""
        await self._space.wait()

    async def watch(self, patience: float) -> End:
        """Returns when one write has blocked for this many seconds. A timer for each message would cost too much."""
        now = asyncio.get_running_loop().time
        # Polls, because no event marks that a write makes no progress.
        while self._since is None or now() - self._since < patience:  # noqa: ASYNC110
            await asyncio.sleep(patience / 4)
        return End(reason="the hub does not read what it is sent")

    async def write(self) -> NoReturn:
        """Writes the queued messages in order; raises what the stream raises when it is over."""
        loop = asyncio.get_running_loop()
        while True:
            while not self._waiting:
                self._changed.clear()
                await self._changed.wait()
            message = self._waiting.popleft()
            if len(self._waiting) < _ROOM:
                self._space.set()
            self._since = loop.time()
            if message is None:
                await self._stream.done_writing()
            else:
                await self._stream.write(message.SerializeToString())
            self._since = None


# -- Connection failures with advice -----------------------------------------------------------------------------------
# gRPC's messages name no file and no option.


_ADVICE: Final = (
    ("Hostname Verification Check failed", "the hub's certificate is for another name: give server_name, or dial that"),
    ("CERTIFICATE_VERIFY_FAILED", "tls.ca is not who signed the hub's certificate, or the certificate has expired"),
    ("WRONG_VERSION_NUMBER", "what listens there does not speak TLS: leave tls out, or give the hub a certificate"),
)
_CLOSED: Final = "Socket closed"  # all that remains of a handshake that the hub has rejected
_REFUSED: Final = {
    True: "the hub may have refused the certificate: give cert and key that its clientCA has signed",
    False: "the hub may speak TLS: give tls",
}
_UNKNOWN: Final = "the hub does not know this driver: see its `drivers`, and the token or certificate here"


def why(error: grpc.aio.AioRpcError, *, is_encrypted: bool) -> str:
    """Returns gRPC's message, with advice for known causes."""
    code = error.code()
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return "what listens there does not speak this version of the protocol"
    text = error.details() or "no reason was given"
    advice = next((advice for words, advice in _ADVICE if words in text), "")
    if not advice and _CLOSED in text:
        advice = _REFUSED[is_encrypted]
    if code is grpc.StatusCode.UNAUTHENTICATED:
        advice = _UNKNOWN
    return f"{code.name}: {text}{advice and f' ({advice})'}"
