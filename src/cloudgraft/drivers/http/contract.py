"""Defines the HTTP contract with receivers: query parameters, headers, and the signature.

The driver uses these definitions; scripts/http_receiver.py generates the OpenAPI description and the example receiver
from them. They are the wire format: a
change here breaks receivers in use.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib.resources
from datetime import timedelta
from pathlib import Path
from typing import Final

from cloudgraft.sdk.errors import AlreadyExistsError, UnavailableError

IDEMPOTENCY_KEY: Final = "Idempotency-Key"  # of a create: the machine's name, which is in the path too
PAGE_TOKEN: Final = "pageToken"  # noqa: S105 - where a page of the list begins
NAME: Final = "name"  # of a deletion: the machine's name, beside its id
RETRY_AFTER: Final = "Retry-After"
SIGNATURE: Final = "Cloudgraft-Signature"
SIGNATURE_VERSION: Final = "v1"
SIGNATURE_AGE: Final = timedelta(minutes=5)  # a receiver refuses older signatures, and those as far in the future
SHORTEST_KEY: Final = 16  # bytes
_EXAMPLE: Final = "receiver.py.txt"  # the suffix keeps tools from taking it for code


def sign(key: bytes, method: str, target: str, body: bytes, *, at: int, nonce: str) -> str:
    """Returns the value of the signature header.

    ``target`` is the path with its query, byte for byte as it is in the request line; ``at`` is the time in seconds
    since 1970; ``nonce`` is different in every request, so that a receiver can refuse one that it has seen.
    """
    digest = hashlib.sha256(body).hexdigest()
    text = "\n".join((SIGNATURE_VERSION, method, target, str(at), nonce, digest))
    mac = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    return f"t={at},n={nonce},{SIGNATURE_VERSION}={mac}"


def write_receiver(path: Path) -> None:
    """Writes the example receiver to a new file: a program that runs as it is."""
    program = importlib.resources.files(__package__).joinpath(_EXAMPLE).read_text("utf-8")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(program)
    except FileExistsError:
        raise AlreadyExistsError(f"{path} is there already: choose another name, or move it away") from None
    except OSError as error:
        raise UnavailableError(f"cannot write {path}: {error.strerror}") from error
