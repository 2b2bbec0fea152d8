"""Defines the `kubernetes` section: how cloudgraft reaches the cluster that machines join."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StrictBool, ValidationInfo, field_validator

from cloudgraft.config.fields import Kind, ReadableFile, refuse
from cloudgraft.config.section import Section, convert
from cloudgraft.joining.match import Way
from cloudgraft.joining.node_changes import ClusterSettings


class Reach(Section):
    """How a Kubernetes API is reached."""

    # The next key is checked against this one, so this one comes first.
    in_cluster: StrictBool = Field(False, description="Use the service account of the pod that this runs in.")
    kubeconfig: ReadableFile | None = Field(
        None,
        validate_default=True,
        description="A kubeconfig file, whose current context is used, instead of `inCluster`.",
        examples=["admin.conf"],
    )

    @field_validator("kubeconfig")
    @classmethod
    def _check_way_in(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        in_cluster: bool | None = info.data.get("in_cluster")  # a wrong one has its own problem
        if value is not None and in_cluster:
            raise refuse("does not go together with inCluster", "remove one of the two")
        if value is None and in_cluster is False:
            raise refuse("is missing", "for example kubeconfig: admin.conf, or inCluster: true in a pod")
        return value


class Events(Section):
    """Kubernetes Events about what operators look for with `kubectl describe`: warnings and errors of the engine.

    Events about a machine with a node are on that Node, all others on cloudgraft's own Deployment.
    """

    deployment: str = Field(min_length=1, description="The name of our own Deployment.", examples=["cloudgraft"])
    namespace: str = Field("kube-system", min_length=1, description="Its namespace.")


class Kubernetes(Reach):
    """The cluster that machines join. Without it cloudgraft does not see the nodes of its machines.

    The page about rights, `rbac.md`, describes the account that it needs.
    """

    set_provider_id: StrictBool = Field(
        True,
        alias="setProviderID",
        description="Set the providerID of nodes of machines whose driver leaves that to cloudgraft.",
    )
    label_nodes: StrictBool = Field(True, description="Add to nodes the labels of their group that they lack.")
    remove_nodes: StrictBool = Field(True, description="Remove the Node object of a machine that is gone.")
    match_by: Annotated[tuple[Literal["name", "address", "machineID"], ...], Kind("list of ways")] = Field(
        ("name",),
        min_length=1,
        description="How a node without a providerID is matched: by the `name` of its machine, by an `address`, or by "
        "the `machineID`, which is the cloud's id of the machine as its firmware reports it.",
        examples=["[name, address]"],
    )

    events: Events | None = Field(None, description="Write Kubernetes Events about warnings and errors.")

    def as_settings(self) -> ClusterSettings:
        """Converts it to the settings of the code that uses it."""
        return convert(self, ClusterSettings, match_by=frozenset(Way(way) for way in self.match_by))
