"""Helps authors of providers to test: a provider in memory, planned faults, a real server in one line."""

from cloudgraft.testing.harness import Served, serving
from cloudgraft.testing.memory import MemoryGroup, MemoryOptions, MemoryProvider

__all__ = ["MemoryGroup", "MemoryOptions", "MemoryProvider", "Served", "serving"]
