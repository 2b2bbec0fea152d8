"""Writes the configuration as the chart gives it to the pod, to check it before it is there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloudgraft.config import ConfigError, Problem, parse
from cloudgraft.deploy.draft import CONFIG_DIRECTORY, JOURNAL_DIRECTORY
from cloudgraft.deploy.text import dumped


def pod_content(values: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The content of cloudgraft.yaml in the pod; ``own`` is that of ``server.config``.

    It says what templates/_config.tpl of the chart says; `make e2e-chart` compares the two.
    """
    server = values["server"]
    content: dict[str, Any] = {
        "cluster": server["cluster"],
        "server": {
            "listen": "0.0.0.0:8086",
            "tls": {
                **_certificate("tls"),
                "allowedClients": server.get("allowedClients", ["cluster-autoscaler-grpc-client"]),
            },
            "ops": "0.0.0.0:8087",
            **server.get("settings", {}),
        },
        "log": {"level": 2, "format": "json", **server.get("log", {})},
    }
    if server["mode"] == "replicas":
        content["admin"] = {"listen": "unix:/tmp/cloudgraft.sock"}
        place = {
            "postgresql": server["postgresql"]["address"],
            "user": server["postgresql"]["user"],
            "passwordFile": "/etc/cloudgraft/db/password",
            "ca": "/etc/cloudgraft/db/ca.crt",
        }
    else:
        place = {"path": f"{JOURNAL_DIRECTORY}/journal.db"}
    content["store"] = {**place, **server.get("store", {})}
    dock = values.get("dock", {})
    if dock.get("mode") == "server":
        content["dock"] = {"listen": "0.0.0.0:5000", "tls": _certificate("dock"), **dock.get("config", {})}
    return {**content, **own}


def problems_in_the_pod(content: Mapping[str, Any], file: str) -> list[Problem]:
    """What the server in the pod would refuse; ``file`` is the name of the configuration that it was made from."""
    try:
        parse(dumped(content), Path(CONFIG_DIRECTORY), name=file, needs_files=False)
    except ConfigError as error:
        return [
            Problem(file=file, key=one.key, message=f"in the pod: {one.message}", suggestion=one.suggestion)
            for one in error.problems
        ]
    return []


def _certificate(name: str) -> dict[str, str]:
    at = f"/etc/cloudgraft/{name}"
    return {"cert": f"{at}/tls.crt", "key": f"{at}/tls.key", "clientCA": f"{at}/ca.crt"}
