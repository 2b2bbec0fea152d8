"""How a planted fault is written: a class with one mistake, what the mistake is, and who must notice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tests.conformance.planted.sound import SoundServer

_Kind = TypeVar("_Kind", bound=type[SoundServer])


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A server with exactly one mistake."""

    name: str
    mistake: str
    rules: tuple[str, ...]
    """The rules that the mistake breaks; the first failure that is listed must name one of them."""
    check: str
    """The check that must be listed first."""
    server: type[SoundServer]
    with_help: bool
    """It shows only in a stock-out, a slow cloud, a restart or an accident, which the kit brings about by commands."""
    is_slow: bool
    """It lets the autoscaler wait for too long, so that it had better not wait for 5 s in a test."""


ENTERED: defaultdict[str, list[Fault]] = defaultdict(list)  # by module


def fault(*rules: str, check: str, with_help: bool = False, is_slow: bool = False) -> Callable[[_Kind], _Kind]:
    """Enters a class into the table; its docstring says what it does wrong."""

    def enter(server: _Kind) -> _Kind:
        mistake = " ".join((server.__doc__ or "").split())
        entry = Fault(
            name=server.__name__,
            mistake=mistake,
            rules=rules,
            check=check,
            server=server,
            with_help=with_help,
            is_slow=is_slow,
        )
        ENTERED[server.__module__].append(entry)
        return server

    return enter
