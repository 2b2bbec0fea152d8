"""Reads the configuration file: one YAML file, validated as a whole, with all problems reported at once."""

from cloudgraft.config.checks import missing_prices
from cloudgraft.config.load import load, parse, with_groups
from cloudgraft.config.model import Config
from cloudgraft.config.options import checked_section, machine_settings
from cloudgraft.validation.document import Where
from cloudgraft.validation.options import parse_options, refusals
from cloudgraft.validation.problems import ConfigError, Problem, Problems

__all__ = [
    "Config",
    "ConfigError",
    "Problem",
    "Problems",
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
