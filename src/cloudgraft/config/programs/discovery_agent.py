"""Defines the file of `cloudgraft discovery agent`: its server, its cluster, what it shares, and prices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, StrictInt, StrictStr, ValidationInfo, field_validator

from cloudgraft.config.fields import Currency, Kind, Money, Name, PositiveDuration, ReadableFile, Text, refuse
from cloudgraft.config.kubernetes import LabelKey, Labels, Threshold
from cloudgraft.config.load import load_other
from cloudgraft.config.section import Section
from cloudgraft.config.sections.cluster import Reach
from cloudgraft.config.sections.providers import ManagerTls
from cloudgraft.config.sections.server import Log
from cloudgraft.sdk.hosts import is_loopback_host

_EXAMPLE: Final = "the least is: server: {address: https://discovery.example:9010} / kubernetes: {inCluster: true}"


def _url(value: str) -> str:
    """Accepts https, or http to this host: an agent's reports decide where machines are bought."""
    found = re.fullmatch(r"(https?)://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?/?", value)
    if found is None:
        raise refuse("must be a URL", "for example https://discovery.example:9010")
    if found[1] == "http" and not is_loopback_host(found[2]):
        raise refuse("must be https unless the server is on this host", f"write https{value.removeprefix('http')}")
    return value.rstrip("/")


_Url = Annotated[StrictStr, AfterValidator(_url), Kind("URL")]
_Margins = Annotated[Mapping[LabelKey, Threshold], Kind("mapping of quantities or percentages")]


class AgentTls(ManagerTls):
    """How the agent verifies the server and authenticates to it."""

    ca: ReadableFile = Field(description="The authority that signed the server's certificate.", examples=["ca.crt"])


class AgentServer(Section):
    """The discovery server."""

    address: _Url = Field(description="The URL of the server.", examples=["https://discovery.example:9010"])
    tls: AgentTls | None = Field(
        None, description="How the server is verified; by default by the public authorities. Only for https."
    )
    token_file: ReadableFile | None = Field(
        None, description="A file with the agent's token. It is read again when it changes.", examples=["agent.token"]
    )


class AgentNetwork(Section):
    """How other clusters reach this one."""

    mode: Literal["direct", "consumerGateway", "addressOverride", "disabled"] = Field(
        "direct",
        description="`direct`: the gateway's server is here; `consumerGateway`: here is NAT, so it is at the other "
        "cluster; `addressOverride`: as direct, at `address`; `disabled`: no network between the clusters.",
    )
    address: Text | None = Field(None, validate_default=True, description="Where the gateway is reached.")
    port: StrictInt = Field(0, ge=0, le=65535, description="The gateway's port; 0: Liqo's own.")
    node_port: StrictInt = Field(0, ge=0, le=65535, description="The gateway's NodePort; 0: any.")

    @field_validator("address")
    @classmethod
    def _check_address(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("mode") == "addressOverride":
            raise refuse("is missing: the mode addressOverride needs it", "for example address: 192.0.2.10")
        return value


class AgentCluster(Section):
    """What the agent reports about this cluster."""

    id: Name | None = Field(None, description="Liqo's cluster id; by default it is read from Liqo's ConfigMap.")
    display_name: Text | None = Field(None, description="For people.")
    labels: Labels = Field(default_factory=dict, description="Labels by which clusters are selected.")
    max_nodes: StrictInt | None = Field(None, ge=0, description="How many virtual nodes may be made of it at a time.")
    resource_slice_class: Text = Field("default", description="The class of the ResourceSlices that ask for it.")
    network: AgentNetwork = Field(AgentNetwork(), description="How other clusters reach this one.")


class AgentShare(Section):
    """The part of the cluster that is shared."""

    resources: tuple[LabelKey, ...] = Field(
        (),
        description="Share only these; by default cpu, memory, pods, ephemeral-storage and all devices.",
        examples=["[cpu, memory, pods, nvidia.com/gpu]"],
    )
    margin: _Margins = Field(
        default_factory=dict,
        description="The part of each resource that is not shared: an amount, or a percentage of what the nodes have.",
        examples=['{cpu: "10%", memory: 4Gi}'],
    )
    tolerate: tuple[LabelKey, ...] = Field(
        (),
        description="Keys of taints that pods of other clusters tolerate. Other nodes with taints are not counted.",
        examples=["[nvidia.com/gpu]"],
    )


class AgentPrices(Section):
    """The cluster's prices, per hour."""

    currency: Currency = Field(description="Its three letters.", examples=["EUR"])
    unit: Annotated[Mapping[LabelKey, Money], Kind("mapping of amounts of money")] = Field(
        default_factory=dict,
        description="Per unit of each resource; memory per GiB.",
        examples=['{cpu: "0.02", memory: "0.004"}'],
    )
    fixed_per_node: Money = Field(Decimal(0), description="For each virtual node, in quotes.", examples=['"0.01"'])
    peering_fee: Money = Field(Decimal(0), description="Once, for a cluster that is not peered yet.")


class AgentConfig(Section):
    """The file of an agent."""

    server: AgentServer = Field(
        description="The discovery server.", examples=["{address: https://discovery.example:9010}"]
    )
    kubernetes: Reach = Field(description="The cluster that is announced.", examples=["{inCluster: true}"])
    cluster: AgentCluster = Field(AgentCluster(), description="What the agent reports about it.")
    share: AgentShare = Field(AgentShare(), description="What of it is shared.")
    prices: AgentPrices | None = Field(None, description="Its prices; by default operators set them.")
    credentials_file: ReadableFile | None = Field(
        None,
        description="A kubeconfig with which others may peer with this cluster. The agent sends it to the server, "
        "which encrypts it, and again when it changes. `liqoctl generate peering-user` makes one without other rights.",
        examples=["peering-user.kubeconfig"],
    )
    heartbeat: PositiveDuration = Field(
        timedelta(seconds=10), description="How often the agent reports its free resources."
    )
    log: Log = Field(Log(), description="What is written to standard error.")


def load_agent(path: Path, *, overrides: Mapping[str, object] | None = None) -> AgentConfig:
    """Reads and checks the file of an agent. Raises ConfigError with all problems at once."""
    return load_other(path, AgentConfig, example=_EXAMPLE, overrides=overrides)
