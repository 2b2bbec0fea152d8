"""The autoscaler's limits for the whole cluster. They come from its flags and never from a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["ResourceLimiter"]

_NO_LIMIT = (1 << 63) - 1  # Go's largest int64


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLimiter:
    """Least and greatest totals by resource (``cpu`` in cores, ``memory`` in bytes, ...); none unless given."""

    min_limits: Mapping[str, int] = field(default_factory=dict)
    max_limits: Mapping[str, int] = field(default_factory=dict)

    def get_min(self, resource: str) -> int:
        """The least total of a resource; 0 without a limit."""
        return max(self.min_limits.get(resource, 0), 0)

    def get_max(self, resource: str) -> int:
        """The greatest total of a resource; the largest 64-bit number without a limit."""
        return self.max_limits.get(resource, _NO_LIMIT)

    def has_min_limit_set(self, resource: str) -> bool:
        """Whether there is a lower limit; zero and less is none, as in Go."""
        return self.min_limits.get(resource, 0) > 0

    def has_max_limit_set(self, resource: str) -> bool:
        """Whether there is an upper limit."""
        return resource in self.max_limits

    def get_resources(self) -> list[str]:
        """The names of all resources with a limit, sorted."""
        return sorted({name for name in self.min_limits if self.has_min_limit_set(name)} | set(self.max_limits))
