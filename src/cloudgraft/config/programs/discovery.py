"""Defines the file of `cloudgraft discovery serve`: addresses, callers, and the database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, StrictBool, ValidationInfo, field_validator

from cloudgraft.config.fields import (
    Duration,
    ListenAddress,
    Name,
    NewFile,
    PositiveDuration,
    ReadableFile,
    Text,
    Variable,
    refuse,
)
from cloudgraft.config.load import load_other
from cloudgraft.config.section import Section
from cloudgraft.config.sections.cluster import Reach
from cloudgraft.config.sections.server import Log, WebLimits
from cloudgraft.config.sections.store import DatabasePlace, beside_the_file
from cloudgraft.config.sections.web_server import WebClientEntry, WebServer, web_client_checks, web_clients
from cloudgraft.validation.document import Document
from cloudgraft.validation.problems import Problem

_EXAMPLE: Final = "the least is, in one line: listen: 127.0.0.1:9010"


class DiscoveryClientEntry(WebClientEntry):
    """A client and its role. With `certificate` and `tokenFile`, it needs both."""

    role: Literal["agent", "node-manager", "operator", "read-only"] = Field(
        description="`agent` announces one cluster; `node-manager` searches, reserves and reads credentials; "
        "`operator` does everything but that; `read-only` reads.",
        examples=["node-manager"],
    )
    cluster: Text | None = Field(None, description="The id of the cluster that an `agent` announces.")


class DiscoveryStore(DatabasePlace):
    """Where clusters, prices and reservations are kept: a SQLite file, or a PostgreSQL that several servers share."""

    default_file = "discovery.db"
    path: NewFile | None = Field(
        None, validate_default=True, description=f"A SQLite file; `{default_file}` unless there is `postgresql`."
    )


class DiscoveryVault(Section):
    """The keys that credentials are encrypted with. The first encrypts; all of them decrypt.

    Each is 32 random bytes in base64, for example by `head -c 32 /dev/urandom | base64`. To rotate, put a new one
    first, run `cloudgraft discovery rotate-keys`, and then take the old one out.
    """

    key_file: ReadableFile | None = Field(
        None, description="A file with the keys, one a line.", examples=["vault.keys"]
    )
    key_env: Variable | None = Field(
        None,
        validate_default=True,
        description="An environment variable with the keys, separated by commas, instead of `keyFile`.",
        examples=["DISCOVERY_KEYS"],
    )

    @field_validator("key_env")
    @classmethod
    def _check_one(cls, value: str | None, info: ValidationInfo) -> str | None:
        file = info.data.get("key_file", Path())
        if value is None and file is None:
            raise refuse("neither keyFile nor keyEnv is there", "for example keyFile: vault.keys")
        if value is not None and file is not None:
            raise refuse("does not go together with keyFile", "remove one of the two")
        return value


class DiscoveryImport(Reach):
    """Clusters from labelled Secrets: `autoscaling=true`, named by the cluster's id, with `kubeconfig` and `info`."""

    namespace: Name = Field(description="The namespace of the Secrets.", examples=["demo"])


class DiscoveryConfig(WebServer):
    """The file of a discovery server."""

    place = ""
    power = "read credentials"
    listen: ListenAddress = Field(
        "127.0.0.1:9010",
        description="Where to listen; port 0 takes a free one. Without `tls` it must be a loopback address.",
        examples=["0.0.0.0:9010"],
    )
    clients: tuple[DiscoveryClientEntry, ...] = Field(
        (),
        description="The clients and their roles. Without `tls` it may be left out: then any program on this host may "
        "do anything. It is read again when the file changes.",
        examples=["[{name: manager, role: node-manager, certificate: node-manager}]"],
    )
    store: Annotated[DiscoveryStore, beside_the_file] = Field(
        DiscoveryStore(), validate_default=True, description="Where everything is kept."
    )
    vault: DiscoveryVault | None = Field(
        None, description="The keys for credentials; without them no credentials are accepted."
    )
    stale_after: PositiveDuration = Field(
        timedelta(seconds=45), description="A cluster whose agent is silent for longer is not offered."
    )
    audit_log: NewFile | None = Field(
        None,
        description="A file to which each change, each refusal and each reading of credentials is appended. Unknown "
        "callers get one line a minute for each address, with their number.",
    )
    import_secrets: DiscoveryImport | None = Field(None, description="Also take clusters from labelled Secrets.")
    legacy_list: StrictBool = Field(
        False, description="Serve `GET /v1/list`, the list of the first proof of concept, as well."
    )
    grace: Duration = Field(
        timedelta(seconds=5), description="How long pending requests may take when the server stops."
    )
    log: Log = Field(Log(), description="What is written to standard error.")

    limits: WebLimits = Field(WebLimits(), description="Limits on connections.")


def load_discovery(path: Path, *, overrides: Mapping[str, object] | None = None) -> DiscoveryConfig:
    """Reads and checks the file of a discovery server. Raises ConfigError with all problems at once."""
    return load_other(path, DiscoveryConfig, example=_EXAMPLE, checks=_client_checks, overrides=overrides)


def _client_checks(document: Document) -> Iterator[Problem]:
    """All problems between clients."""
    root = document.root.value
    if not isinstance(root, dict):
        return
    example = "[{name: manager, role: node-manager, certificate: node-manager}]"
    yield from web_client_checks(document, root, (), example=example)
    for path, entry in web_clients(root, ()):
        # An agent announces one cluster; no other role is limited to one.
        if entry.get("role") == "agent" and entry.get("cluster") is None:
            yield document.problem((*path, "cluster"), "is missing: an agent speaks for one cluster", "give its id")
        if entry.get("role") != "agent" and entry.get("cluster") is not None:
            yield document.problem((*path, "cluster"), "only goes together with role: agent", "remove it")
