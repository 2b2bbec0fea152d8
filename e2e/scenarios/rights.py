"""Scenario 14: what cloudgraft may do in the cluster. The shipped rights are enough, and none of them is too much.

With every right less one, it says which is missing, and serves on.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import yaml

from cloudgraft.kube.rights import Feature, Right
from e2e.config import document
from e2e.kubectl import kubeconfig_of, kubectl
from e2e.scenarios.scenario import Scenario
from e2e.scenarios.three_scripts import EXAMPLES, lab_program
from e2e.stage import Stage
from e2e.stand_in.cluster_info import prepare_for_kubeadm
from tests.kube.needed_rights import rights_of

__all__ = ["SCENARIO"]

_USED: Final = (Feature.NODES, Feature.PROVIDER_ID, Feature.LABELS, Feature.REMOVAL, Feature.TOKENS)
_ACCESS: Final = Path(__file__).resolve().parents[2] / "deploy" / "cloudgraft-access.yaml"
_GROUP: Final = "lab-small"


def _run(stage: Stage) -> None:
    prepare_for_kubeadm(stage.cluster.client, stage.plane.server, stage.plane.authority)
    lab = stage.directory / "lab"
    lab.mkdir()
    for name in ("labctl", "lab.sh"):
        shutil.copy(EXAMPLES / name, stage.directory)
    stage.start_program(lab_program(lab, stage))
    stage.apply(_account("kube-system"))
    stage.apply(_ACCESS.read_text("utf-8"))
    _works(stage)
    for right in rights_of(_USED):
        _lacks(stage, right)


def _works(stage: Stage) -> None:
    """With what deploy/ gives: a machine joins, its node is made complete, and goes with it."""
    server = stage.start_server(_document(stage))
    _call(stage, "NodeGroupIncreaseSize", {"id": _GROUP, "delta": 1})
    stage.until(lambda: _joined(stage), "the node has its providerID and its group's labels")
    stage.until_equal(lambda: _tokens(stage), 0, "the number of bootstrap tokens")
    _delete_all(stage)
    stage.until(lambda: not stage.cluster.nodes(), "the node is removed")
    server.stop()


def _lacks(stage: Stage, right: Right) -> None:
    """Without it something does not work, and the log says the right by its name."""
    stage.apply(_rules([one for one in rights_of(_USED) if one != right]))
    server = stage.server
    begin = len(server.log_entries())
    server.start()
    if right.verb in ("list", "watch"):
        stage.until(lambda: _is_told(stage, right, begin), f"the log says that the right to {right} is missing")
        server.stop()
        return
    _call(stage, "NodeGroupIncreaseSize", {"id": _GROUP, "delta": 1})
    if right.resource == "secrets" and right.verb == "create":
        stage.until(lambda: _failure(stage), "the machine has failed")
        assert str(right) in _failure(stage), f"the failure says {_failure(stage)!r}"
    elif right.verb == "patch":
        stage.until(lambda: _is_told(stage, right, begin), f"the log says that the right to {right} is missing")
    else:
        stage.until(lambda: _joined(stage), "the node has joined")
    _delete_all(stage)
    if right.verb == "delete":
        stage.until(lambda: _is_told(stage, right, begin), f"the log says that the right to {right} is missing")
    stage.until(lambda: not stage.server.states(), "cloudgraft has no machine left")
    server.stop()
    stage.apply(_rules(rights_of(_USED)))
    _clear(stage)


# -- cloudgraft --------------------------------------------------------------------------------------------------------


def _document(stage: Stage) -> dict[str, Any]:
    commands = dict.fromkeys(("create", "delete", "list"), "./lab.sh")
    engine = {"engine": {"observeEvery": "1s"}}
    cloud = {"driver": "exec", **commands, "idempotency": "unique_name", **engine}
    template = {"capacity": {"cpu": 2, "memory": "4Gi"}, "labels": {"pool": "lab"}}
    group = {"id": _GROUP, "cloud": "lab", "maxSize": 4, "machine": {"size": "small"}, "template": template}
    return document(
        clouds={"lab": cloud},
        groups=[group],
        kubernetes={"kubeconfig": str(kubeconfig_of(stage.plane, "cloudgraft", stage.directory / "cloudgraft.conf"))},
        join={"template": "kubeadm", "server": stage.plane.server},
    )


def _call(stage: Stage, rpc: str, request: Mapping[str, Any]) -> None:
    stage.server.call(rpc, request)


def _delete_all(stage: Stage) -> None:
    """As the autoscaler would: each machine by its id."""
    ids = [machine["provider_id"] or machine["placeholder"] for machine in stage.server.journal().alive().values()]
    nodes = [{"name": id_, "providerID": id_} for id_ in ids]
    _call(stage, "NodeGroupDeleteNodes", {"id": _GROUP, "nodes": nodes})


def _failure(stage: Stage) -> str:
    rows = stage.server.journal().alive().values()
    return next((row["error_message"] or "" for row in rows if row["state"] == "failed"), "")


def _is_told(stage: Stage, right: Right, begin: int) -> bool:
    return any(str(right) in json.dumps(entry) for entry in stage.server.log_entries()[begin:])


# -- the cluster -------------------------------------------------------------------------------------------------------


def _joined(stage: Stage) -> bool:
    nodes = stage.cluster.nodes()
    provider_ids = [(node.spec and node.spec.providerID) or "" for node in nodes]
    pools = [((node.metadata and node.metadata.labels) or {}).get("pool") for node in nodes]
    return len(nodes) == 1 and provider_ids[0].startswith("lab://vm-") and pools == ["lab"]


def _tokens(stage: Stage) -> int:
    selector = ("--field-selector", "type=bootstrap.kubernetes.io/token", "-o", "name")
    return len(kubectl(stage.plane, "-n", "kube-system", "get", "secrets", *selector).split())


def _clear(stage: Stage) -> None:
    """What it was not allowed to remove."""
    kubectl(stage.plane, "delete", "nodes", "--all")
    label = ("-l", "app.kubernetes.io/managed-by=cloudgraft")
    kubectl(stage.plane, "-n", "kube-system", "delete", "secrets", *label)


def _account(namespace: str) -> str:
    return yaml.safe_dump(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "cloudgraft", "namespace": namespace}}
    )


def _rules(rights: Sequence[Right]) -> str:
    """The two roles of deploy/ with these rights in place of theirs."""
    roles = []
    for namespace, of_namespace in groupby(sorted(rights, key=lambda r: r.namespace), key=lambda r: r.namespace):
        rules = [{"apiGroups": [r.group], "resources": [r.resource], "verbs": [r.verb]} for r in of_namespace]
        meta = {"name": "cloudgraft-tokens", "namespace": namespace} if namespace else {"name": "cloudgraft"}
        kind = "Role" if namespace else "ClusterRole"
        version = "rbac.authorization.k8s.io/v1"
        roles.append({"apiVersion": version, "kind": kind, "metadata": meta, "rules": rules})
    return yaml.safe_dump_all(roles)


SCENARIO: Final = Scenario(
    number=14, seconds=190, title="the shipped rights are enough, and each that is missing is named", run=_run
)
