"""Defines the wire format and the socket of the admin service: names, limits, JSON objects, paths."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from cloudgraft.sdk.errors import InvalidArgumentError, PreconditionError

SERVICE: Final = "cloudgraft.admin.v1.Admin"
LONGEST_REQUEST: Final = 4 * 1024 * 1024
LONGEST_ANSWER: Final = 64 * 1024 * 1024

_WHOLE: Final = 100  # values
_SLICE: Final = 0.002  # seconds of work before the event loop gets control


def path_of(method: str) -> str:
    """The gRPC path of a method."""
    return f"/{SERVICE}/{method}"


def decode(data: bytes) -> dict[str, object]:
    """Reads a JSON object; raises InvalidArgumentError for anything else."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError("these bytes are not JSON") from error
    if not isinstance(value, dict):
        raise InvalidArgumentError("this is JSON, but not an object")
    return value


async def encode_in_slices(value: Mapping[str, object]) -> bytes:
    """The object as JSON, without blocking the event loop while thousands of machines are encoded.

    Raises TypeError or ValueError when it is not JSON. The value must not change meanwhile.
    """
    if not isinstance(value, Mapping):
        raise TypeError(f"a JSON object is wanted, not {type(value).__name__}")
    parts: list[str] = []
    began = time.perf_counter()
    for part in _parts(value):
        parts.append(part)
        if time.perf_counter() - began > _SLICE:
            await asyncio.sleep(0)
            began = time.perf_counter()
    return "".join(parts).encode()


def _parts(value: object) -> Iterator[str]:
    """The pieces of a JSON text, each quick to make: containers of a few plain values stay whole."""
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("the keys of a JSON object are strings")
        if _is_plain(value.values()):
            yield _dump(dict(value))
            return
        yield "{"
        for number, (key, item) in enumerate(value.items()):
            yield f"{',' if number else ''}{_dump(key)}:"
            yield from _parts(item)
        yield "}"
    elif isinstance(value, list | tuple) and not _is_plain(value):
        yield "["
        for number, item in enumerate(value):
            if number:
                yield ","
            yield from _parts(item)
        yield "]"
    else:
        yield _dump(value)


def _is_plain(values: Collection[object]) -> bool:
    return len(values) <= _WHOLE and not any(isinstance(value, Mapping | list | tuple) for value in values)


def _dump(value: object) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


# -- socket ------------------------------------------------------------------------------------------------------------


LONGEST_PATH: Final = 107 if sys.platform == "linux" else 103  # bytes; the kernel keeps it in an array
_CONNECT_SECONDS: Final = 2.0


def check_path(path: Path) -> Path:
    """The absolute path; raises InvalidArgumentError when no socket can have it."""
    full = path.absolute()
    length = len(os.fsencode(full))
    if length > LONGEST_PATH:
        raise InvalidArgumentError(
            f"the path of the admin socket, {full}, has {length} bytes, and a unix socket's path has at most "
            f"{LONGEST_PATH}: give it a shorter one, for example /run/cloudgraft/{full.name[:40]}"
        )
    return full


def grpc_address(path: Path) -> str:
    """The path as a gRPC address, which is a URL: percent signs and spaces have to be escaped."""
    return f"unix:{quote(os.fsencode(path))}"


def remove_stale_socket(path: Path) -> None:
    """Removes the socket of a dead process; raises PreconditionError for anything else at the path.

    gRPC itself would remove a socket even while another process listens on it.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise PreconditionError(f"cannot make the admin socket {path}: its directory does not exist") from None
        return
    except OSError as error:
        raise PreconditionError(f"cannot make the admin socket {path}: {error.strerror}") from error
    if not stat.S_ISSOCK(found.st_mode):
        raise PreconditionError(f"cannot make the admin socket {path}: there is something else by that name")
    if _is_alive(path):
        raise PreconditionError(
            f"another process answers at the admin socket {path}: stop it, or give this server another path"
        )
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def _is_alive(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True  # a full queue, or no permission: a process may listen there
    return True
