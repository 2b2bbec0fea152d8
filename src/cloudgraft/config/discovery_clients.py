"""What the clients of a discovery server say about each other: each must be known, and be told from all the others.

As in :mod:`cloudgraft.config.checks`, this looks at the plain values of the file, so that all is told at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cloudgraft.config.document import Document
from cloudgraft.config.problems import KeyPath, Problem, printable

__all__ = ["client_checks"]

_AGENT = "agent"


def client_checks(document: Document) -> Iterator[Problem]:
    """All problems between those who may call."""
    root = document.root.value
    if not isinstance(root, dict):
        return
    tls, entries = root.get("tls"), root.get("clients")
    clients: list[tuple[KeyPath, dict[str, Any]]] = [
        (("clients", index), entry)
        for index, entry in enumerate(entries if isinstance(entries, list) else ())
        if isinstance(entry, dict)
    ]
    if isinstance(tls, dict) and not entries:
        hint = "for example [{name: manager, role: node-manager, certificate: node-manager}]"
        yield document.problem(("clients",), "is missing: with tls it says who may call", hint)
    for path, entry in clients:
        yield from _proofs(document, path, entry, tls)
        yield from _cluster(document, path, entry)
    yield from _twice(document, clients)


def _proofs(document: Document, path: KeyPath, entry: dict[str, Any], tls: Any) -> Iterator[Problem]:
    if tls is not None and not isinstance(tls, dict):
        return  # told itself
    has_authority = tls is not None and tls.get("clientCA") is not None
    if entry.get("certificate") is not None and not has_authority:
        yield document.problem((*path, "certificate"), "needs tls.clientCA, which signs such certificates")
    if entry.get("certificate") is None and entry.get("tokenFile") is None:
        proof = "certificate or tokenFile" if has_authority else "tokenFile"
        yield document.problem(path, f"needs {proof}, to be known by")


def _cluster(document: Document, path: KeyPath, entry: dict[str, Any]) -> Iterator[Problem]:
    """An agent speaks for one cluster; nobody else is limited to one."""
    if entry.get("role") == _AGENT and entry.get("cluster") is None:
        yield document.problem((*path, "cluster"), "is missing: an agent speaks for one cluster", "give its id")
    if entry.get("role") != _AGENT and entry.get("cluster") is not None:
        yield document.problem((*path, "cluster"), "only goes together with role: agent", "remove it")


def _twice(document: Document, clients: list[tuple[KeyPath, dict[str, Any]]]) -> Iterator[Problem]:
    """No two have one name, or the same proofs: which of them it is would depend on their order."""
    names: set[str] = set()
    proofs: set[tuple[str, str]] = set()
    for path, entry in clients:
        name = entry.get("name")
        if isinstance(name, str):
            if name in names:
                yield document.problem((*path, "name"), f"the name {printable(name)} is there twice")
            names.add(name)
        proof = (str(entry.get("certificate") or ""), str(entry.get("tokenFile") or ""))
        if any(proof) and proof in proofs:
            yield document.problem(path, "has the same certificate and tokenFile as a client before it")
        proofs.add(proof)
