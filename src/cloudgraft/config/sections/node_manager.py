"""Defines the `nodeManager` section: the engine's HTTPS interface for fronts and operators, and its callers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from cloudgraft.config.fields import ListenAddress, NewFile
from cloudgraft.config.sections.server import WebLimits
from cloudgraft.config.sections.web_server import WebClientEntry, WebServer, web_client_checks
from cloudgraft.validation.document import Document
from cloudgraft.validation.problems import Problem

_SECTION = "nodeManager"


class NodeManagerClient(WebClientEntry):
    """A client and its role. With `certificate` and `tokenFile`, it needs both."""

    role: Literal["front", "operator", "read-only"] = Field(
        description="`front` reads and scales groups; `operator` also declares groups; `read-only` reads.",
        examples=["front"],
    )


class NodeManager(WebServer):
    """The engine behind HTTPS, for `cloudgraft node-manager`."""

    place = f"{_SECTION}."
    power = "create and delete machines"
    listen: ListenAddress = Field(
        "127.0.0.1:9009",
        description="Where to listen; port 0 takes a free one. Without `tls` it must be a loopback address.",
        examples=["0.0.0.0:9009"],
    )
    clients: tuple[NodeManagerClient, ...] = Field(
        (),
        description="The clients and their roles. Without `tls` it may be left out: then any program on this host may "
        "do anything. It is read again when the file changes.",
        examples=["[{name: front, role: front, certificate: cloudgraft-front}]"],
    )
    audit_log: NewFile | None = Field(
        None,
        description="A file to which each change and each refusal is appended; without it they go to the log. Unknown "
        "callers get one line a minute for each address, with their number.",
    )

    limits: WebLimits = Field(WebLimits(), description="Limits on connections.")


def node_manager_checks(document: Document, root: dict[str, Any]) -> Iterator[Problem]:
    """All problems between clients."""
    section = root.get(_SECTION)
    if isinstance(section, dict):
        example = "[{name: front, role: front, certificate: cloudgraft-front}]"
        yield from web_client_checks(document, section, (_SECTION,), example=example)
