"""Programs that tests start as plugins: good ones, and ones that misbehave in one way each."""

from __future__ import annotations

import sys
from pathlib import Path

from cloudgraft.plugins.host.process import PluginSpec, Timing

ROOT = Path(__file__).parents[2]
PROVIDER = ROOT / "examples" / "plugin_provider.py"
DRIVER = ROOT / "examples" / "plugin_driver.py"
GO_LIKE = ROOT / "tests" / "plugins" / "go_like_plugin.py"

# Short where a test waits for it, long where running out of it would make a slow machine fail.
TIMING = Timing(
    first_run=60, handshake=30, connect=10, stop_grace=5, backoff_first=0.05, backoff_max=0.4, stable_after=3600
)


def python(code: str) -> list[str]:
    """A program of these lines. It starts fast, because it has no packages."""
    return [sys.executable, "-I", "-S", "-c", code]


def with_packages(code: str) -> list[str]:
    """A program of these lines that may import cloudgraft."""
    return [sys.executable, "-c", code]


def shell(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


def provider_spec(name: str = "pool", **options: object) -> PluginSpec:
    """The example provider."""
    return PluginSpec(name=name, command=[sys.executable, str(PROVIDER)], options=options)


def driver_spec(directory: Path, **options: object) -> PluginSpec:
    """The example driver."""
    command = [sys.executable, str(DRIVER)]
    return PluginSpec(name="files", command=command, options={"directory": str(directory), **options})
