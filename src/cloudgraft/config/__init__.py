"""Reads the configuration file: one YAML file, validated as a whole, with all problems reported at once."""

from cloudgraft.config.checks import missing_prices
from cloudgraft.config.fields import MoneyPerDay, Price
from cloudgraft.config.kubernetes import TaintEntry
from cloudgraft.config.load import load, parse, with_groups
from cloudgraft.config.model import Config, Where
from cloudgraft.config.options import checked_section, machine_settings, parse_options, refusals
from cloudgraft.config.problems import ConfigError, Problem
from cloudgraft.config.sections.clouds import CallBackoff, CloudConfig, CloudEngine, EntryPointCloud, PluginCloud
from cloudgraft.config.sections.cluster import Kubernetes
from cloudgraft.config.sections.dock import Dock, DockClass, DockDriver, DockEngine, DockKind, DockKubernetes, DockTls
from cloudgraft.config.sections.engine import Engine, Orphans, Repair, Webhook
from cloudgraft.config.sections.groups import EvictionHard, Group, GroupOptions, NodeGroupConfig, Template
from cloudgraft.config.sections.guards import Guards
from cloudgraft.config.sections.join import Join, JoinToken
from cloudgraft.config.sections.node_manager import NodeManager, NodeManagerClient
from cloudgraft.config.sections.process import Backoff, PluginProcess
from cloudgraft.config.sections.providers import (
    EntryPointProvider,
    ExternalGrpcProvider,
    ManagerTls,
    NodeManagerProvider,
    PluginProvider,
    ProviderConfig,
    RemoteTls,
    Snapshot,
)
from cloudgraft.config.sections.server import Admin, Log, Server, ServerTls
from cloudgraft.config.sections.store import Postgresql, Store

__all__ = [
    "Admin",
    "Backoff",
    "CallBackoff",
    "CloudConfig",
    "CloudEngine",
    "Config",
    "ConfigError",
    "Dock",
    "DockClass",
    "DockDriver",
    "DockEngine",
    "DockKind",
    "DockKubernetes",
    "DockTls",
    "Engine",
    "EntryPointCloud",
    "EntryPointProvider",
    "EvictionHard",
    "ExternalGrpcProvider",
    "Group",
    "GroupOptions",
    "Guards",
    "Join",
    "JoinToken",
    "Kubernetes",
    "Log",
    "ManagerTls",
    "MoneyPerDay",
    "NodeGroupConfig",
    "NodeManager",
    "NodeManagerClient",
    "NodeManagerProvider",
    "Orphans",
    "PluginCloud",
    "PluginProcess",
    "PluginProvider",
    "Postgresql",
    "Price",
    "Problem",
    "ProviderConfig",
    "RemoteTls",
    "Repair",
    "Server",
    "ServerTls",
    "Snapshot",
    "Store",
    "TaintEntry",
    "Template",
    "Webhook",
    "Where",
    "checked_section",
    "load",
    "machine_settings",
    "missing_prices",
    "parse",
    "parse_options",
    "refusals",
    "with_groups",
]
