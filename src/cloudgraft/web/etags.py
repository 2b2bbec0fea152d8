"""Revisions as entity tags, so that two who edit the same thing do not overwrite each other (RFC 9110, 13.1)."""

from __future__ import annotations

import re

from cloudgraft.sdk.errors import InvalidArgumentError

__all__ = ["etag_of", "revision_of"]


def etag_of(revision: int | str) -> str:
    """The tag of a revision."""
    return f'"{revision}"'


def revision_of(if_match: str | None) -> int | None:
    """The revision that an ``If-Match`` header names; None without one, or when any will do (``*``)."""
    if if_match is None or if_match.strip() == "*":
        return None
    found = re.fullmatch(r'\s*"(\d{1,18})"\s*', if_match)
    if found is None:
        raise InvalidArgumentError(f'If-Match is {if_match[:40]!r}: give the ETag that was read, such as "7"')
    return int(found[1])
