"""The `nodeManager` section: where fronts and operators reach the engine over HTTPS, and who may."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from cloudgraft.config.document import Document
from cloudgraft.config.fields import ListenAddress, Name, NewFile, ReadableFile, Text, is_loopback, refuse
from cloudgraft.config.problems import KeyPath, Problem, printable
from cloudgraft.config.section import Section

__all__ = ["NodeManager", "NodeManagerClient", "NodeManagerTls", "node_manager_checks"]

_SECTION = "nodeManager"


class NodeManagerTls(Section):
    """TLS of the node manager. `cloudgraft certs init DIR` makes the files; they are read again when they change."""

    cert: ReadableFile = Field(description="The server's certificate, PEM.", examples=["certs/server.crt"])
    key: ReadableFile = Field(description="Its private key, PEM.", examples=["certs/server.key"])
    client_ca: ReadableFile | None = Field(
        None,
        alias="clientCA",
        description="The authority that signs the clients' certificates; without it clients are known by tokens.",
        examples=["certs/ca.crt"],
    )


class NodeManagerClient(Section):
    """Somebody who may call, and as what. With `certificate` and `tokenFile`, both are asked of it."""

    name: Name = Field(description="For the audit log and messages.", examples=["front"])
    role: Literal["front", "operator", "read-only"] = Field(
        description="`front` reads, and grows and shrinks groups; `operator` also declares groups; `read-only` looks.",
        examples=["front"],
    )
    certificate: Text | None = Field(
        None, description="A DNS name, URI or common name of its certificate.", examples=["cloudgraft-front"]
    )
    token_file: ReadableFile | None = Field(
        None,
        description="A file with its token, or with several, one a line. It is read again when it changes.",
        examples=["front.token"],
    )


class NodeManager(Section):
    """The engine behind HTTPS, for `cloudgraft node-manager`."""

    # `listen` comes after `tls`, which decides what it may be.
    tls: NodeManagerTls | None = Field(None, description="TLS; without it only programs on this host can call.")
    listen: ListenAddress = Field(
        "127.0.0.1:9009",
        description="Where to listen; port 0 takes a free one. Without `tls` it must be a loopback address.",
        examples=["0.0.0.0:9009"],
    )
    clients: tuple[NodeManagerClient, ...] = Field(
        (),
        description="Who may call, and as what. Without `tls` it may be left out: then any program on this host may do "
        "anything. It is read again when the file changes.",
        examples=["[{name: front, role: front, certificate: cloudgraft-front}]"],
    )
    audit_log: NewFile | None = Field(
        None, description="A file to which each change and each refusal is appended; without it they go to the log."
    )

    @field_validator("listen")
    @classmethod
    def _check_listen(cls, value: str, info: ValidationInfo) -> str:
        """Law 9: closed by default."""
        if value.startswith("unix:"):
            raise refuse("must be host:port", "for example 127.0.0.1:9009")
        if info.data.get("tls", "") is None and not is_loopback(value):  # one that is wrong is told itself
            raise refuse(
                "without TLS only a loopback address is allowed, because whoever reaches this port can create and "
                "delete machines",
                "add nodeManager.tls with the files of `cloudgraft certs init`, or listen on 127.0.0.1",
            )
        return value


def node_manager_checks(document: Document, root: dict[str, Any]) -> Iterator[Problem]:
    """All problems between those who may call: each must be known, and be told from all the others."""
    section = root.get(_SECTION)
    if not isinstance(section, dict):
        return
    tls, entries = section.get("tls"), section.get("clients")
    if isinstance(tls, dict) and not entries:
        hint = "for example [{name: front, role: front, certificate: cloudgraft-front}]"
        yield document.problem((_SECTION, "clients"), "is missing: with tls it says who may call", hint)
    clients: list[tuple[KeyPath, dict[str, Any]]] = [
        ((_SECTION, "clients", index), entry)
        for index, entry in enumerate(entries if isinstance(entries, list) else ())
        if isinstance(entry, dict)
    ]
    if tls is None or isinstance(tls, dict):  # else it is told itself
        has_authority = tls is not None and tls.get("clientCA") is not None
        for path, entry in clients:
            yield from _proofs(document, path, entry, has_authority=has_authority)
    yield from _twice(document, clients)


def _proofs(document: Document, path: KeyPath, entry: dict[str, Any], *, has_authority: bool) -> Iterator[Problem]:
    if entry.get("certificate") is not None and not has_authority:
        yield document.problem((*path, "certificate"), "needs nodeManager.tls.clientCA, which signs such certificates")
    if entry.get("certificate") is None and entry.get("tokenFile") is None:
        proof = "certificate or tokenFile" if has_authority else "tokenFile"
        yield document.problem(path, f"needs {proof}, to be known by")


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
