"""The configuration file: one YAML file, checked as a whole, with every problem told at once."""

from cloudgraft.config.load import load, parse
from cloudgraft.config.model import Config, Log, Server, ServerTls, Where
from cloudgraft.config.options import parse_options
from cloudgraft.config.problems import ConfigError, Problem
from cloudgraft.config.providers import (
    Backoff,
    EntryPointProvider,
    ExternalGrpcProvider,
    PluginProvider,
    ProviderConfig,
    RemoteTls,
    Snapshot,
)

__all__ = [
    "Backoff",
    "Config",
    "ConfigError",
    "EntryPointProvider",
    "ExternalGrpcProvider",
    "Log",
    "PluginProvider",
    "Problem",
    "ProviderConfig",
    "RemoteTls",
    "Server",
    "ServerTls",
    "Snapshot",
    "Where",
    "load",
    "parse",
    "parse_options",
]
