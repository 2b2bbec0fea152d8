"""Counts durations in buckets, for histograms of the metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate


class Durations:
    """A histogram of durations. One thread writes it; any thread may read it."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """``bounds`` are the upper bounds of the buckets in seconds, in ascending order."""
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)  # the last one: longer than all bounds
        self.seconds = 0.0  # the sum of all durations

    def add(self, seconds: float) -> None:
        """Counts one duration."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self.seconds += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """The cumulative count of each bound, as Prometheus expects them."""
        bounds = [*(f"{bound:g}" for bound in self._bounds), "+Inf"]
        return list(zip(bounds, accumulate(self._counts), strict=True))
