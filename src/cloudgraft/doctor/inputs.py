"""Defines everything that doctor reads, as values. What could not be read is None, with the reason beside it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cloudgraft.certs.inspect import CertificateInfo
from cloudgraft.client.cloud_config import CloudConfig
from cloudgraft.doctor.releases import Flags, Release
from cloudgraft.kube.objects import Node
from cloudgraft.sdk.types import AutoscalingOptions, NodeTemplate

# -- the configuration file --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """A group as the configuration file has it."""

    id: str
    cloud: str
    min_size: int = 0
    max_size: int = 0
    options: AutoscalingOptions | None = None
    has_price: bool = False
    # The properties of its nodes in the file, without those of the machine type.
    declared: NodeTemplate = field(default_factory=NodeTemplate)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCare:
    """The section `kubernetes`: what cloudgraft does with nodes."""

    sets_provider_id: bool = False
    labels_nodes: bool = False
    removes_nodes: bool = False
    events_namespace: str = ""  # of cloudgraft's own Deployment, about which it writes Events; empty: it writes none
    events_deployment: str = ""  # its name
    match_by: tuple[str, ...] = ("name",)
    mints_tokens: bool = False
    leaves_provider_ids: bool = False  # every cloud declares that another component sets them


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the configuration file that the checks need."""

    file: str
    has_tls: bool = False
    is_insecure: bool = False
    gives_local_secrets: bool = False  # dock.allowLocalSecrets
    error_texts: Mapping[str, str] = field(default_factory=dict)  # of all clouds whose drivers dial in
    allowed_clients: tuple[str, ...] = ()
    deadline: timedelta = timedelta(seconds=4.5)
    force_options: bool = False
    create_deadline: timedelta = timedelta(minutes=10)
    join_deadline: timedelta = timedelta(minutes=15)
    has_own_deadlines: bool = False  # they are set in the file
    groups: tuple[GroupSettings, ...] = ()
    node_care: NodeCare | None = None


# -- the running server ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine of the journal. Ages are in seconds."""

    name: str
    group: str
    provider_id: str = ""
    state: str = "running"
    state_age: float = 0.0
    error_code: str = ""
    error_message: str = ""
    error_class: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A node group as the running server has it."""

    id: str
    cloud: str
    target: int = 0
    min_size: int = 0
    max_size: int = 0
    left_out: str = ""
    stale: str = ""
    paused: str = ""  # since when, by whom and why; empty when it is not
    has_price: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """A cloud as the running server sees it."""

    name: str
    driver: str = ""
    is_up: bool = True
    error: str = ""
    error_code: str = ""
    blocked: str = ""
    held_back: str = ""
    lag: str = ""  # why the driver's list_delay is too small
    paused: str = ""
    observe_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """How much of a guard is used."""

    scope: str  # a cloud, or empty for all together
    name: str
    used: float
    limit: float
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Oddity:
    """An orphaned, missing or duplicate machine, as `cloudgraft orphans list` reports it."""

    kind: str
    cloud: str
    name: str
    machine_id: str
    detail: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DockedDriver:
    """A driver that is connected to the server's dock."""

    kind: str
    api_version: str
    protocol: str = "v1"
    in_flight: int = 0
    queued: int = 0
    queued_seconds: float = 0.0  # how long the oldest call has been waiting to be sent
    unclassified: str = ""  # the latest error text of a failed create that is in no table


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The state of the running server, as it reports it."""

    prefix: str = ""  # of the names of its machines
    leader_trouble: str = ""
    opening_trouble: str = ""  # why it refuses calls since its start
    journal_trouble: str = ""
    config_trouble: str = ""
    groups: tuple[Group, ...] = ()
    machines: tuple[Machine, ...] = ()
    clouds: tuple[Cloud, ...] = ()
    guards: tuple[Guard, ...] = ()
    oddities: tuple[Oddity, ...] = ()
    cluster_trouble: str = ""  # why it does not see the nodes
    node_problems: tuple[str, ...] = ()  # as it reports them itself
    drivers: tuple[DockedDriver, ...] = ()  # of its dock, if it has one


# -- certificates and connection ---------------------------------------------------------------------------------------


class Role(enum.StrEnum):
    """The use of a certificate."""

    SERVER = "server"
    CLIENT = "client"
    CLIENT_CA = "clientCA"
    SERVER_CA = "cacert"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate that one of the two sides uses."""

    role: Role
    where: str
    info: CertificateInfo | None = None
    trouble: str = ""  # why it cannot be read
    key_trouble: str = ""
    key_readable: str = ""  # the key's file, when every user can read it
    untrusted: str = ""  # why the authority of the other side does not accept it


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudConfigSeen:
    """The autoscaler's cloud-config, and where it was found."""

    where: str
    config: CloudConfig | None = None
    trouble: str = ""
    call_trouble: str = ""  # why a call with it failed; only tried where its certificates can be read
    has_timeout: bool = False  # it says grpc_timeout


# -- the cluster -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A volume of the autoscaler's container; ``source`` is such as "ConfigMap cluster-autoscaler-cloud-config"."""

    path: str
    source: str
    has_sub_path: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaler:
    """The autoscaler as it is deployed."""

    namespace: str
    name: str
    image: str = ""
    flags: Flags
    replicas: int = 1
    mounts: tuple[Mount, ...] = ()
    cloud_config: CloudConfigSeen | None = None
    missing_rights: tuple[str, ...] = ()
    rights_trouble: str = ""  # why they could not be asked for
    priorities: str | None = None  # of the ConfigMap of the priority expander; None: there is none
    priorities_trouble: str = ""

    @property
    def where(self) -> str:
        """For people."""
        return f"Deployment {self.namespace}/{self.name}"

    @property
    def config_namespace(self) -> str:
        """The namespace of its own ConfigMaps."""
        return self.flags.text("namespace")

    @property
    def release(self) -> Release | None:
        """The release, from the tag of its image."""
        return Release.of_image(self.image)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The cluster, as far as it could be read. What is None was refused."""

    release: Release | None = None
    nodes: tuple[Node, ...] | None = None
    nodes_trouble: str = ""
    autoscalers: tuple[Autoscaler, ...] | None = None
    autoscalers_trouble: str = ""
    cloud_controllers: tuple[str, ...] = ()  # such as "DaemonSet kube-system/cloud-controller-manager"
    missing_rights: Mapping[str, str] = field(default_factory=dict)  # of cloudgraft's own account: right -> needed for


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Everything that doctor read, at one moment."""

    now: datetime
    settings: Settings | None = None
    config_problems: tuple[str, ...] = ()
    config_incomplete: tuple[str, ...] = ()  # what the file names and does not exist
    config_file: str = ""
    server: Server | None = None
    server_trouble: str = ""
    certificates: tuple[Certificate, ...] = ()
    cloud_config: CloudConfigSeen | None = None  # of the file that was named on the command line
    templates: Mapping[str, NodeTemplate] = field(default_factory=dict)  # as served; by group
    cluster: Cluster | None = None
    cluster_trouble: str = ""  # why there is none although it was asked for

    @property
    def autoscalers(self) -> tuple[Autoscaler, ...]:
        """The autoscalers found; only those that call this server by a name of its certificate, if there are any."""
        found = (self.cluster.autoscalers or ()) if self.cluster else ()
        return tuple(one for one in found if self._is_called_by(one)) or found

    def _is_called_by(self, autoscaler: Autoscaler) -> bool:
        config = autoscaler.cloud_config.config if autoscaler.cloud_config else None
        servers = [one.info for one in self.certificates if one.role is Role.SERVER and one.info is not None]
        return config is not None and any(info.accepts(config.address.host) for info in servers)

    def cloud_configs(self) -> tuple[CloudConfigSeen, ...]:
        """The cloud-config of the command line, else those of the cluster."""
        if self.cloud_config is not None:
            return (self.cloud_config,)
        return tuple(found.cloud_config for found in self.autoscalers if found.cloud_config is not None)

    def group_ids(self) -> tuple[str, ...]:
        """All groups that are configured or served."""
        configured = [group.id for group in self.settings.groups] if self.settings else []
        served = [group.id for group in self.server.groups if not group.left_out] if self.server else []
        return tuple(dict.fromkeys([*configured, *served]))
