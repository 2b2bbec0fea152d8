"""Defines the root of the configuration file as frozen values. Keys are camelCase; unknown keys are refused.

The descriptions here become the reference page, by `scripts/configuration_page.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, PrivateAttr, StrictBool, StrictStr, ValidationInfo, field_validator

from cloudgraft.config.fields import Kind, Name, matching, refuse
from cloudgraft.config.section import Section
from cloudgraft.config.sections.clouds import CloudConfig
from cloudgraft.config.sections.cluster import Kubernetes
from cloudgraft.config.sections.dock import Dock
from cloudgraft.config.sections.engine import Engine, Guards
from cloudgraft.config.sections.groups import NodeGroupConfig
from cloudgraft.config.sections.join import Join
from cloudgraft.config.sections.node_manager import NodeManager
from cloudgraft.config.sections.providers import ProviderConfig
from cloudgraft.config.sections.server import Admin, Log, Server
from cloudgraft.config.sections.store import Store, beside_the_file
from cloudgraft.config.sections.tracing import Tracing
from cloudgraft.validation.document import Document, Where

_ClusterId = Annotated[
    StrictStr,
    matching(
        "[a-z2-7]{10}",
        "must be ten of the letters a to z and the digits 2 to 7",
        "leave it out to have one generated",
    ),
    Kind("string"),
]


class Config(Section):
    """The whole file."""

    cluster: Name = Field(description="The name of the cluster; one server serves one cluster.", examples=["prod"])
    cluster_id: _ClusterId | None = Field(
        None,
        description="The id that marks this cluster's machines beside its name. By default it is generated once and "
        "kept with the journal; give it here to find its machines again when that is lost.",
    )
    server: Server = Field(Server(), description="The gRPC server for the autoscaler.")
    admin: Admin = Field(Admin(), description="Where commands such as `cloudgraft status` reach this server.")
    log: Log = Field(Log(), description="What is written to standard error.")
    tracing: Tracing | None = Field(None, description="Where traces are sent; without it nothing is traced.")
    store: Annotated[Store, beside_the_file] = Field(
        Store(), validate_default=True, description="Where the journal is kept."
    )
    clouds: Annotated[Mapping[Name, CloudConfig], Kind("mapping of mappings")] = Field(
        default_factory=dict,
        description="Where machines are made, by a name of your choice. The keys of a cloud depend on its `driver`.",
    )
    kubernetes: Kubernetes | None = Field(None, description="How cloudgraft reaches the cluster that machines join.")
    join: Join | None = Field(None, description="How machines become nodes. A group may have a `join` of its own.")
    dock: Dock | None = Field(
        None, description="Where drivers connect to cloudgraft, instead of being started or called by it."
    )
    node_manager: NodeManager | None = Field(
        None, description="Where fronts and operators reach the engine over HTTPS, with `cloudgraft node-manager`."
    )
    observe_only: Annotated[StrictBool, Kind("true or false")] = Field(
        False,
        description="Only observe, in all `clouds`: see `observeOnly` of one cloud. Other `providers` are not "
        "held back.",
    )
    guards: Guards = Field(Guards(), description="Limits for all clouds together.")
    engine: Engine = Field(Engine(), description="Time limits, repair and other rules for machines.")
    node_groups: tuple[NodeGroupConfig, ...] = Field(
        (), description="The groups that the autoscaler scales.", examples=["[{id: small, cloud: lab, maxSize: 10}]"]
    )
    providers: tuple[ProviderConfig, ...] = Field(
        (),
        description="Other sources of node groups. The keys of a provider depend on its `type`.",
        examples=["[{type: memory}]"],
    )
    _document: Document = PrivateAttr(default_factory=Document.without_file)
    _base_dir: Path = PrivateAttr(default_factory=Path)

    @field_validator("join")
    @classmethod
    def _check_join(cls, value: Join | None, info: ValidationInfo) -> Join | None:
        if value is not None and value.token is not None and info.data.get("kubernetes", "") is None:
            raise refuse("needs kubernetes, where tokens are made", "write that section as well", at=("token",))
        return value

    @field_validator("dock")
    @classmethod
    def _check_dock(cls, value: Dock | None, info: ValidationInfo) -> Dock | None:
        if value is not None and value.kubernetes is not None and info.data.get("kubernetes", "") is None:
            hint = "write that section of the file as well"
            raise refuse("needs kubernetes, to know where the cluster is", hint, at=("kubernetes",))
        return value

    @field_validator("node_groups")
    @classmethod
    def _check_joins(cls, value: tuple[NodeGroupConfig, ...], info: ValidationInfo) -> tuple[NodeGroupConfig, ...]:
        for index, group in enumerate(value):
            if group.join is not None and group.join.token is not None and info.data.get("kubernetes", "") is None:
                raise refuse("needs kubernetes, where tokens are made", at=(index, "join", "token"))
            join = group.join.over(info.data.get("join")) if group.join is not None else info.data.get("join")
            if "join" in info.data and join is not None and not join.has_template:
                raise refuse("has neither template nor file", "for example template: kubeadm", at=(index, "join"))
        return value

    @field_validator("providers")
    @classmethod
    def _check_names(cls, value: tuple[ProviderConfig, ...]) -> tuple[ProviderConfig, ...]:
        names = [provider.name for provider in value]
        twice = {name: index for index, name in enumerate(names) if name is not None and name in names[:index]}
        if twice:
            message = f"more than one provider has the name {', '.join(twice)}"
            raise refuse(message, "each needs its own", at=(min(twice.values()), "name"))
        return value

    def read_from(self, document: Document, base_dir: Path) -> Self:
        """The same configuration, with the file it came from."""
        self._document, self._base_dir = document, base_dir
        return self

    def where(self, *path: str | int) -> Where:
        """A place in the file this was read from: ``where("providers", 0, "options")``."""
        return Where(document=self._document, base_dir=self._base_dir, path=path)

    def groups(self) -> tuple[NodeGroupConfig, ...]:
        """All groups of `nodeGroups`, after each was fanned out over its zones and shapes."""
        return tuple(group for index, entry in enumerate(self.node_groups) for group in entry.groups(index))

    def joins(self) -> dict[str, Join]:
        """The effective `join` of each group, by the group's id; without groups that have none."""
        found = ((group.id, group.join.over(self.join) if group.join else self.join) for group in self.groups())
        return {id_: join for id_, join in found if join is not None}

    def admin_address(self) -> str:
        """The admin service's address: from the file, else a socket beside the journal, or beside this file."""
        if self.admin.listen is not None:
            return self.admin.listen
        beside = self.store.path or self._base_dir / "cloudgraft"
        return f"unix:{beside}.sock"

    def names(self) -> tuple[str, ...]:
        """A name for each provider, all different: its own, else its type, numbered where that is not enough."""
        taken = Counter(provider.name for provider in self.providers if provider.name)
        names: list[str] = []
        for provider in self.providers:
            name, number = provider.name or provider.type, 1
            while not provider.name and taken[name]:
                number += 1
                name = f"{provider.type}-{number}"
            taken[name] += 1
            names.append(name)
        return tuple(names)
