"""Opens gRPC channels to the servers that cloudgraft calls: credentials from files, and their rotation."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from cloudgraft.certs.pem import Stamp, load_authority, load_tls, stamp
from cloudgraft.client.cloud_config import CloudConfig
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, PreconditionError, UnavailableError

_log = logging.getLogger("cloudgraft.client")

_LONGEST_TOKEN: Final = 8192  # characters: it is sent in a header

ChannelOptions = Sequence[tuple[str, int | str]]


def channel_credentials(config: CloudConfig) -> grpc.ChannelCredentials | None:
    """The credentials from the files of a config; None for plain text.

    gRPC's own library accepts any bytes and fails later, in a handshake, with a message that names no file. So this
    raises an error that names the file when one cannot be read or parsed, or when key and certificate do not belong
    together. The autoscaler checks them when it starts, too.
    """
    if not config.is_encrypted:
        return None
    ca = Path(config.cacert) if config.cacert else None
    if config.cert:
        loaded = load_tls(Path(config.cert), Path(config.key), ca)
        return grpc.ssl_channel_credentials(loaded.ca, private_key=loaded.key, certificate_chain=loaded.cert)
    return grpc.ssl_channel_credentials(load_authority(ca) if ca else None)


def read_token(path: Path) -> str:
    """The token that a client sends, from a file with one line; raises PreconditionError."""
    try:
        with path.open("rb") as file:
            token = file.read(_LONGEST_TOKEN + 1).decode("ascii").strip()
    except OSError as error:
        raise PreconditionError(f"cannot read the token file {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        token = ""
    if not token or not token.isprintable() or len(token) > _LONGEST_TOKEN:
        raise PreconditionError(f"the token file {path} does not hold a token: one line of plain characters")
    return token


def open_channel(
    config: CloudConfig, credentials: grpc.ChannelCredentials | None, options: ChannelOptions
) -> grpc.aio.Channel:
    """A channel to the server of a config; the first call dials."""
    address = config.address
    # Otherwise two channels to one address share their attempts and failures.
    options = [*options, ("grpc.use_local_subchannel_pool", 1)]
    if address.is_loopback:
        # Go never sends calls to this machine through a proxy of the environment; gRPC's library would.
        options.append(("grpc.enable_http_proxy", 0))
    if credentials is None:
        return grpc.aio.insecure_channel(address.target, options=options)
    # The name that the server's certificate must carry: as in Go the host of the address, unless configured.
    options.append(("grpc.ssl_target_name_override", config.server_name or address.host))
    return grpc.aio.secure_channel(address.target, credentials, options=options)


class ReloadingChannel:
    """A channel that follows the certificates on disk. Calls under way end on the old connection."""

    def __init__(
        self, config: CloudConfig, options: ChannelOptions, *, retire: float, channel: grpc.aio.Channel | None = None
    ) -> None:
        """Reads the certificates. After a rotation, calls under way have ``retire`` seconds to end.

        ``channel`` is a ready-made one, which is used instead and never replaced.
        """
        self._config = config
        self._options = options
        self._retire = retire
        self._stamp = self._files()
        self._credentials = channel_credentials(config) if channel is None else None
        self._channel = channel
        self._retired: dict[asyncio.Task[None], grpc.aio.Channel] = {}
        self.is_closed = False

    def open(self) -> None:
        """Allows calls again after :meth:`close`; a new channel allows them from the start."""
        self.is_closed = False

    def get(self) -> grpc.aio.Channel:
        """The channel to use now; raises UnavailableError after :meth:`close`."""
        if self.is_closed:
            raise UnavailableError(f"the connection to {self._config.address} is closed")
        if self._channel is None:
            self._channel = open_channel(self._config, self._credentials, self._options)
        return self._channel

    def reload(self) -> None:
        """Loads certificates that were replaced on disk, for the next :meth:`get`."""
        now = self._files()
        if self._credentials is None or now == self._stamp:
            return
        self._stamp = now
        try:
            self._credentials = channel_credentials(self._config)
        except CloudgraftError as error:  # half of a rotation: the other half changes the stamp again
            _log.warning("new certificates cannot be used, the old ones stay: %s", error.message)
            return
        old, self._channel = self._channel, None
        if old is not None:
            task = asyncio.create_task(old.close(self._retire))
            self._retired[task] = old
            task.add_done_callback(self._retired.pop)

    async def close(self) -> None:
        """Cancels calls under way and closes the connection. Idempotent."""
        self.is_closed = True
        tasks, channels = list(self._retired), list(self._retired.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._channel is not None:
            channels.append(self._channel)
            self._channel = None
        for channel in channels:
            await channel.close()

    def _files(self) -> Stamp | None:
        config = self._config
        return stamp(*(Path(path) for path in (config.cert, config.key, config.cacert) if path))


@contextlib.contextmanager
def cut_calls_are_errors() -> Iterator[None]:
    """Wraps a call: turns what gRPC raises in the caller when the channel is closed into an error.

    gRPC raises CancelledError, which would end the caller's task as if it had been cancelled.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise DeadlineError("the connection was closed during the call; whether it was done is not known") from error
