"""Defines the HTTP contract with receivers: paths, query parameters, headers, and the signature.

The driver, the OpenAPI description and the example receiver all use these definitions. They are the wire format: a
change here breaks receivers in use.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

IDEMPOTENCY_KEY: Final = "Idempotency-Key"  # of a create: the machine's name, which is in the path too
PAGE_TOKEN: Final = "pageToken"  # noqa: S105 - where a page of the list begins
NAME: Final = "name"  # of a deletion: the machine's name, beside its id
RETRY_AFTER: Final = "Retry-After"
SIGNATURE: Final = "Cloudgraft-Signature"
SIGNATURE_VERSION: Final = "v1"
SIGNATURE_AGE: Final = timedelta(minutes=5)  # a receiver refuses older signatures, and those as far in the future
SHORTEST_KEY: Final = 16  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One endpoint. ``path`` is below the base URL; a change is a call that may change something."""

    id: str
    method: str
    path: str
    is_change: bool = False
    is_optional: bool = False


OPERATIONS: Final = (
    Operation(id="createMachine", method="PUT", path="/machines/{machine}", is_change=True),
    Operation(id="deleteMachine", method="DELETE", path="/machines/{machine}", is_change=True),
    Operation(id="listMachines", method="GET", path="/machines"),
    Operation(id="listShapes", method="GET", path="/shapes", is_optional=True),
    Operation(id="listPrices", method="GET", path="/prices", is_optional=True),
)


def sign(key: bytes, method: str, target: str, body: bytes, *, at: int, nonce: str) -> str:
    """Returns the value of the signature header.

    ``target`` is the path with its query, byte for byte as it is in the request line; ``at`` is the time in seconds
    since 1970; ``nonce`` is different in every request, so that a receiver can refuse one that it has seen.
    """
    digest = hashlib.sha256(body).hexdigest()
    text = "\n".join((SIGNATURE_VERSION, method, target, str(at), nonce, digest))
    mac = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    return f"t={at},n={nonce},{SIGNATURE_VERSION}={mac}"
