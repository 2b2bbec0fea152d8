"""What there is to know of a plugin before it runs, and how patient its host is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cloudgraft.sdk.errors import InvalidArgumentError

__all__ = ["PluginSpec", "Timing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSpec:
    """A program to run as a plugin."""

    name: str  # for people, in logs and messages
    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # added to ours; may hold secrets
    cwd: str | None = None
    options: Mapping[str, object] = field(default_factory=dict, repr=False)  # handed over as JSON, likewise

    def __post_init__(self) -> None:
        """Refuses a command that is none."""
        if isinstance(self.command, str) or not self.command or not self.command[0]:
            raise InvalidArgumentError(
                f"the plugin {self.name!r} needs a command as a list, program first: [python3, my_plugin.py]"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long things may take, in seconds."""

    first_run: float = 5.0  # that the start waits for it; it goes on in the background
    handshake: float = 15.0  # from the start to the plugin's line: interpreters and their imports are slow
    connect: float = 10.0  # from the line to the first answer
    stop_grace: float = 5.0  # from SIGTERM to SIGKILL
    health_interval: float = 5.0
    health_timeout: float = 5.0
    health_failures: int = 3  # in a row, until it is started anew
    backoff_first: float = 0.5
    backoff_max: float = 60.0
    stable_after: float = 60.0  # a run that lasted this long makes the backoff begin anew
