"""What drivers and engines of a dock say about each other: each must be known, and be told from all the others.

As in :mod:`cloudgraft.config.checks`, this looks at the plain values of the file, so that all is told at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cloudgraft.config.document import Document
from cloudgraft.config.problems import KeyPath, Problem, printable

__all__ = ["dock_checks"]

_LISTS = {"drivers": "driver", "engines": "engine"}


def dock_checks(document: Document, root: dict[str, Any]) -> Iterator[Problem]:
    """All problems between those who may call a dock."""
    dock = root.get("dock")
    if not isinstance(dock, dict):
        return
    callers = [caller for key, noun in _LISTS.items() for caller in _callers(dock, key, noun)]
    tls = dock.get("tls")
    if isinstance(tls, dict) and not dock.get("drivers"):
        hint = "for example [{name: acme, …, clientNames: [a]}]"
        yield document.problem(("dock", "drivers"), "is missing: with tls it says who may dial in", hint)
    for caller in callers:
        if caller.lacks_version:
            hint = "for example apiVersion: machine.example/v1"
            yield document.problem((*caller.path, "apiVersion"), "is missing", hint)
        yield from _proofs(document, caller, tls, has_tokens=any(other.token for other in callers))
    yield from _twice(document, callers)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Caller:
    path: KeyPath
    noun: str
    name: str
    client_names: list[str]
    token: object
    lacks_version: bool

    def __str__(self) -> str:
        return f"the {self.noun} {printable(self.name)}" if self.name else f"another {self.noun}"


def _callers(dock: dict[str, Any], key: str, noun: str) -> Iterator[_Caller]:
    entries = dock.get(key)
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, dict):
            name, names = entry.get("name"), entry.get("clientNames")
            yield _Caller(
                path=("dock", key, index),
                noun=noun,
                name=name if isinstance(name, str) else "",
                client_names=[one for one in names if isinstance(one, str)] if isinstance(names, list) else [],
                token=entry.get("tokenFile"),
                lacks_version="kind" in entry and "kinds" not in entry and entry.get("apiVersion") is None,
            )


def _proofs(document: Document, caller: _Caller, tls: Any, *, has_tokens: bool) -> Iterator[Problem]:
    """It can be told from every other caller."""
    if tls is not None and not isinstance(tls, dict):
        return  # told itself
    has_authority = tls is not None and tls.get("clientCA") is not None
    if caller.client_names and not has_authority:
        message = "needs dock.tls.clientCA, which signs such certificates"
        yield document.problem((*caller.path, "clientNames"), message)
    if (tls is not None or has_tokens) and not caller.client_names and caller.token is None:
        proof = "clientNames or tokenFile" if has_authority else "tokenFile"
        yield document.problem(caller.path, f"{caller} needs {proof}, to be known by")


def _twice(document: Document, callers: list[_Caller]) -> Iterator[Problem]:
    """No two have one name, or the same proofs: which of them it is would depend on their order."""
    names: dict[str, _Caller] = {}
    proofs: dict[tuple[str, str], _Caller] = {}
    for caller in callers:
        first = names.setdefault(caller.name, caller)
        if caller.name and first is not caller:
            hint = f"each {caller.noun} needs its own"
            yield document.problem((*caller.path, "name"), f"the name {caller.name} is already that of {first}", hint)
        token = caller.token if isinstance(caller.token, str) else ""
        for client in caller.client_names or [""]:
            other = proofs.setdefault((client, token), caller)
            if (client or token) and other is not caller:
                # A token's file may by mistake be the token: it is not repeated.
                shown, key = (printable(client), "clientNames") if client else ("this token", "tokenFile")
                message = f"{shown} is already one of {other}"
                yield document.problem((*caller.path, key), message, "one entry may have several kinds")
