"""Validates the path of the admin socket, and removes a stale socket but never one in use."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import sys
from pathlib import Path
from typing import Final
from urllib.parse import quote

from cloudgraft.sdk.errors import InvalidArgumentError, PreconditionError

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


def make_way(path: Path) -> None:
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
