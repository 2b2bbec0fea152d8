"""Signatures of AWS's version 4, as the other side sees them: whether a caller is who it says it is."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["Caller", "caller_of", "is_signed_by", "is_stale"]

_HEADER: Final = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/(?P<scope>[^,]+), *SignedHeaders=(?P<signed>[^,]+), *"
    r"Signature=(?P<signature>[0-9a-f]{64})"
)
_STALE: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who has signed a request, by its own words."""

    key: str
    scope: str  # day/region/service/aws4_request
    signed: tuple[str, ...]  # names of headers
    signature: str
    date: str

    @property
    def service(self) -> str:
        """Such as ec2."""
        return self.scope.split("/")[2]


def caller_of(headers: Mapping[str, str]) -> Caller | None:
    """By the headers, whose names are in lower case; None when the request is not signed."""
    found = _HEADER.fullmatch(headers.get("authorization", ""))
    if found is None or "x-amz-date" not in headers:
        return None
    return Caller(
        key=found["key"],
        scope=found["scope"],
        signed=tuple(found["signed"].split(";")),
        signature=found["signature"],
        date=headers["x-amz-date"],
    )


def is_stale(caller: Caller, now: datetime) -> bool:
    """Whether the clocks of the two differ too much."""
    return abs(now - datetime.strptime(caller.date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)) > _STALE


def is_signed_by(caller: Caller, secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """Whether the signature is that of a POST to / with this secret."""
    lines = [f"{name}:{' '.join(headers.get(name, '').split())}" for name in caller.signed]
    payload = hashlib.sha256(body).hexdigest()
    request = "\n".join(["POST", "/", "", *lines, "", ";".join(caller.signed), payload])
    text = "\n".join(["AWS4-HMAC-SHA256", caller.date, caller.scope, hashlib.sha256(request.encode()).hexdigest()])
    key = f"AWS4{secret}".encode()
    for part in caller.scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.compare_digest(hmac.digest(key, text.encode(), "sha256").hex(), caller.signature)
