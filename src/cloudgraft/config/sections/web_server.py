"""Defines what all HTTPS servers have in common: TLS, addresses, and callers with their roles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from pydantic import Field, ValidationInfo, field_validator

from cloudgraft.config.fields import Name, ReadableFile, Text, check_closed, refuse
from cloudgraft.config.section import Section
from cloudgraft.validation.document import Document
from cloudgraft.validation.problems import KeyPath, Problem, printable


class WebServerTls(Section):
    """TLS of the server. `cloudgraft certs init DIR` makes the files; they are read again when they change."""

    cert: ReadableFile = Field(description="The server's certificate, PEM.", examples=["certs/server.crt"])
    key: ReadableFile = Field(description="Its private key, PEM.", examples=["certs/server.key"])
    client_ca: ReadableFile | None = Field(
        None,
        alias="clientCA",
        description="The authority that signs the clients' certificates; without it clients authenticate by token.",
        examples=["certs/ca.crt"],
    )


class WebClientEntry(Section):
    """A client. With `certificate` and `tokenFile`, it needs both."""

    name: Name = Field(description="For the audit log and messages.", examples=["manager"])
    certificate: Text | None = Field(
        None, description="A DNS name, URI or common name of its certificate.", examples=["node-manager"]
    )
    token_file: ReadableFile | None = Field(
        None,
        description="A file with its token, or with several, one per line. It is read again when it changes.",
        examples=["manager.token"],
    )


class WebServer(Section):
    """What all HTTPS servers have. `listen` comes after `tls`, which decides what it may be."""

    place: ClassVar[str]  # what stands before `tls` in messages
    power: ClassVar[str]  # what a client that reaches the port can do

    tls: WebServerTls | None = Field(None, description="TLS; without it only programs on this host can call.")

    @field_validator("listen", check_fields=False)
    @classmethod
    def _check_listen(cls, value: str, info: ValidationInfo) -> str:
        """Law 9: closed by default."""
        if value.startswith("unix:"):
            raise refuse("must be host:port", "for example 127.0.0.1:9009")
        tls = info.data.get("tls", "")  # a wrong `tls` has its own problem
        return check_closed(value, tls, section=cls.place, power=cls.power)


def web_clients(section: dict[str, Any], at: KeyPath) -> list[tuple[KeyPath, dict[str, Any]]]:
    """The entries of `clients` that are mappings, each with its place. Others have their own problem."""
    entries = section.get("clients")
    return [
        ((*at, "clients", index), entry)
        for index, entry in enumerate(entries if isinstance(entries, list) else ())
        if isinstance(entry, dict)
    ]


def web_client_checks(document: Document, section: dict[str, Any], at: KeyPath, *, example: str) -> Iterator[Problem]:
    """All problems between clients: each must authenticate, and be distinct from all the others.

    As in :mod:`cloudgraft.config.checks`, this reads the plain values of the file, so that all is reported at once.
    """
    tls, clients = section.get("tls"), web_clients(section, at)
    if isinstance(tls, dict) and not section.get("clients"):
        yield document.problem((*at, "clients"), "is missing: with tls it says who may call", f"for example {example}")
    if tls is None or isinstance(tls, dict):  # else it has its own problem
        has_authority = tls is not None and tls.get("clientCA") is not None
        for path, entry in clients:
            yield from _proofs(document, path, entry, at, has_authority=has_authority)
    yield from _twice(document, clients)


def _proofs(
    document: Document, path: KeyPath, entry: dict[str, Any], at: KeyPath, *, has_authority: bool
) -> Iterator[Problem]:
    if entry.get("certificate") is not None and not has_authority:
        where = ".".join(map(str, (*at, "tls", "clientCA")))
        yield document.problem((*path, "certificate"), f"needs {where}, which signs such certificates")
    if entry.get("certificate") is None and entry.get("tokenFile") is None:
        proof = "certificate or tokenFile" if has_authority else "tokenFile"
        yield document.problem(path, f"needs {proof}, to be known by")


def _twice(document: Document, clients: list[tuple[KeyPath, dict[str, Any]]]) -> Iterator[Problem]:
    """Problems of clients with the same name or proofs: which of them is meant would depend on their order."""
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
