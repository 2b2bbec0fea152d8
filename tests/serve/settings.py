"""Configuration files of the tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, urlsplit

Section = Mapping[str, object]

FAST: Section = {"observeEvery": "200ms", "backoff": {"initial": "50ms", "max": "500ms"}}


def configuration(clouds: Section, groups: Sequence[Section], **more: object) -> str:
    """A file for a server with ports of its own; JSON is YAML."""
    server = {"listen": "127.0.0.1:0", "ops": "127.0.0.1:0"}
    return json.dumps({"cluster": "test", "server": server, "clouds": clouds, "nodeGroups": groups, **more}, indent=1)


def simulated(url: str, engine: Section | None = None, **options: object) -> Section:
    """A cloud that is a process of its own, often looked at."""
    return {"driver": "simulated", "url": url, "engine": {**FAST, **(engine or {})}, **options}


def small(name: str = "small", cloud: str = "sim", **more: object) -> Section:
    """A group."""
    return {"id": name, "cloud": cloud, "maxSize": 20, "machine": {"shape": "small"}, **more}


def postgresql(url: str, lease: str = "3s") -> Section:
    """The section `store` for a database of the tests."""
    parts = urlsplit(url)
    directory = dict(parse_qsl(parts.query))["host"]
    return {"postgresql": f"{directory}{parts.path}", "user": parts.username, "leaseDuration": lease}
