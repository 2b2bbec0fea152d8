"""Reads the script of the fake: delays, refusals, smaller grants, dead peers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from cloudgraft.sdk.errors import InvalidArgumentError

# -- rules -------------------------------------------------------------------------------------------------------------
# The same words work from three sides: a :class:`Script` in this process, a JSON file, and a ConfigMap ``fakeliqo`` in
# the namespace ``liqo`` of the consumer with the JSON under ``script.json``:
#
#   {"default": {"delays": {"ready": 2}}, "clusters": {"cluster-a": {"dead": true}}, "slices": {"x": {"deny": "Full"}}}


STEPS: Final = (
    "request",  # the consumer completes the slice
    "authentication",  # the provider accepts who asks
    "resources",  # the provider grants
    "identity",  # the consumer has the provider's credentials
    "virtualNode",
    "node",
    "ready",
    "connection",  # of the networks
    "delete",  # of the virtual node: evictions
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules for one slice; by default everything succeeds at once."""

    delays: Mapping[str, float] = field(default_factory=dict)  # seconds by step
    deny: str = ""  # a reason: the resources are denied with it
    deny_message: str = ""
    deny_authentication: bool = False
    grant: Mapping[str, str] = field(default_factory=dict)  # amounts that are granted whatever was asked
    dead: bool = False  # the provider does nothing, and cannot be reached
    never_ready: bool = False  # the node stays as it was made

    def delay(self, step: str) -> float:
        """Seconds before that step."""
        return self.delays.get(step, 0.0)


_KEYS: Final = {
    "".join(part.title() if number else part for number, part in enumerate(entry.name.split("_"))): entry.name
    for entry in fields(Rules)
}


class Script:
    """Rules for everything, for clusters, and for slices by name: the narrowest counts. It may change at any time."""

    def __init__(self, text: str = "") -> None:
        self._layers: dict[str, Any] = {}
        self._text = ""
        self.on_change: Callable[[], None] = lambda: None
        if text:
            self.load(text)

    def load(self, text: str) -> None:
        """Replaces all rules. On InvalidArgumentError the old ones stay."""
        if text == self._text:
            return
        try:
            layers = json.loads(text)
        except ValueError:
            raise InvalidArgumentError("the script of the fake Liqo is not JSON") from None
        if not isinstance(layers, dict) or layers.keys() - {"default", "clusters", "slices"}:
            raise InvalidArgumentError("the script of the fake Liqo has the keys default, clusters and slices only")
        for said in (
            layers.get("default", {}),
            *layers.get("clusters", {}).values(),
            *layers.get("slices", {}).values(),
        ):
            _check(said)
        self._layers, self._text = layers, text
        self.on_change()

    def say(self, *, cluster: str = "", slice_name: str = "", **rules: object) -> None:
        """Adds to the rules of a slice, of a cluster, or of everything, by the names that :class:`Rules` has."""
        names = {python: key for key, python in _KEYS.items()}
        said = {names[name]: value for name, value in rules.items()}
        layers: dict[str, Any] = json.loads(json.dumps(self._layers))
        if slice_name:
            layers.setdefault("slices", {}).setdefault(slice_name, {}).update(said)
        elif cluster:
            layers.setdefault("clusters", {}).setdefault(cluster, {}).update(said)
        else:
            layers.setdefault("default", {}).update(said)
        self.load(json.dumps(layers))

    def text(self) -> str:
        """All of it, as it can be loaded."""
        return json.dumps(self._layers)

    def rules(self, cluster: str, slice_name: str = "") -> Rules:
        """The rules for a cluster, or for a slice of it."""
        merged: dict[str, Any] = {}
        for layer in (
            self._layers.get("default", {}),
            self._layers.get("clusters", {}).get(cluster, {}),
            self._layers.get("slices", {}).get(slice_name, {}),
        ):
            delays = {**merged.get("delays", {}), **layer.get("delays", {})}
            merged = {**merged, **layer, "delays": delays}
        return Rules(**{_KEYS[key]: value for key, value in merged.items()})


def _check(said: object) -> None:
    if not isinstance(said, dict):
        raise InvalidArgumentError("rules of the fake Liqo are a mapping")
    for key in said.keys() - _KEYS.keys():
        raise InvalidArgumentError(f"the fake Liqo has no rule {key!r}; it has {', '.join(_KEYS)}")
    for step in said.get("delays", {}).keys() - set(STEPS):
        raise InvalidArgumentError(f"the fake Liqo has no step {step!r}; it has {', '.join(STEPS)}")


# -- delays ------------------------------------------------------------------------------------------------------------
# Counted from when a step became possible.


class Pace:
    """Counts delays. A step that was not asked about in a whole turn is forgotten."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[Hashable, float] = {}
        self._asked: dict[Hashable, float] = {}
        self._next = float("inf")

    def begin(self) -> None:
        """Another turn."""
        self._since, self._asked = self._asked, {}
        self._next = float("inf")

    def due(self, key: Hashable, seconds: float) -> bool:
        """Whether it has been possible for that long."""
        now = self._clock()
        since = self._asked[key] = self._asked.get(key, self._since.get(key, now))
        if now - since >= seconds:
            return True
        self._next = min(self._next, since + seconds)
        return False

    def wait(self, longest: float) -> float:
        """Seconds until the next thing is due."""
        return max(0.0, min(longest, self._next - self._clock()))
