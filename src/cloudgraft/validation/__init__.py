"""Reads values into declared types, and reports every problem with its place.

The configuration file, the options of drivers and providers, and machine settings are all validated here. An author of
a driver needs :func:`read_settings`.
"""

from cloudgraft.validation.options import read_entry, read_settings

__all__ = ["read_entry", "read_settings"]
