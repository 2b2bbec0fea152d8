"""Turns the sections that the chart writes itself into values: cluster, server, log, store, admin and dock."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cloudgraft.deploy.draft import JOURNAL_DIRECTORY, Draft, NewObject
from cloudgraft.deploy.files import NamedFile
from cloudgraft.deploy.mounts import absolute
from cloudgraft.sdk.hosts import is_loopback_host
from cloudgraft.validation.problems import KeyPath

CHARTS_OWN: Final = ("cluster", "server", "log", "store", "admin", "dock")
_HIGHEST_LEVEL: Final = 5  # of the chart's schema
_CHARTS_GRACE: Final = 30  # pod.terminationGracePeriodSeconds
_AFTER_GRACE: Final = 20  # seconds between the end of server.grace and the kubelet's patience
_SERVER_KEYS: Final = frozenset({"listen", "tls", "ops", "insecure"})
_STORE_KEYS: Final = frozenset({"path", "postgresql", "user", "passwordFile", "ca"})
_CHART_ADDRESS: Final = re.compile(r"[^/@]+/[^/]+")  # server.postgresql.address in the chart's schema


def is_of_the_chart(path: KeyPath) -> bool:
    """Whether the chart mounts what this key names, so that no mount of ours is needed."""
    match path:
        case ["server" | "store" | "admin" | "nodeManager", *_] | ["dock", "tls", *_] | ["kubernetes", "kubeconfig"]:
            return True
        case _:
            return False


def write_sections(draft: Draft, files: list[NamedFile]) -> None:
    """Takes the sections out of the pod's configuration, and sets the values that take their place."""
    draft.set(("server", "cluster"), draft.drop(("cluster",)), "the name of the cluster")
    if draft.at(("nodeManager",)) is not None:
        message = "this command makes values for the file of `cloudgraft serve`"
        draft.refuse(
            ("nodeManager",), message, "the chart's value nodeManager is for node managers: see its values.yaml"
        )
        draft.drop(("nodeManager",))
    _write_store(draft, _mapping(draft.drop(("store",))), files)
    _write_server(draft, _mapping(draft.drop(("server",))), files)
    _write_log(draft, _mapping(draft.drop(("log",))))
    admin = _mapping(draft.drop(("admin",)))
    if admin:
        draft.warn(("admin",), "not taken over: in the pod it is a socket, which `kubectl exec` reaches")
    dock = draft.drop(("dock",))
    if dock is not None:
        _write_dock(draft, _mapping(dock), files)


def _mapping(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


# -- server and log ----------------------------------------------------------------------------------------------------


def _write_server(draft: Draft, server: dict[str, Any], files: list[NamedFile]) -> None:
    settings = {key: value for key, value in server.items() if key not in _SERVER_KEYS}
    if settings:
        draft.set(("server", "settings"), settings, "the rest of the section `server`")
    for key, theirs in (("listen", "0.0.0.0:8086"), ("ops", "0.0.0.0:8087")):
        if key in server and server[key] != theirs:
            draft.note(("server", key), f"the chart listens on {theirs}")
    if server.get("insecure"):
        draft.warn(("server", "insecure"), "not taken over: in the cluster callers need a certificate")
    tls = draft.config.server.tls
    if tls is not None:
        names = list(tls.allowed_clients)
        draft.set(
            ("server", "allowedClients"), names, "server.tls.allowedClients; the autoscaler's certificate has the first"
        )
    _write_certificates(draft, "server", ("server", "tls"), files)
    grace = math.ceil(draft.config.server.grace.total_seconds())
    if grace >= _CHARTS_GRACE:
        patience = grace + _AFTER_GRACE
        draft.set(("pod", "terminationGracePeriodSeconds"), patience, f"more than server.grace, which is {grace}s")


def _write_certificates(draft: Draft, part: str, section: KeyPath, files: list[NamedFile]) -> None:
    """Says where the certificate of a part comes from; with mode `existing`, the command that makes its Secret."""
    own = {file.path[-1]: file for file in files if file.path[: len(section)] == section}
    secret = f"{draft.choices.name}-{part}-tls"
    if draft.choices.certificates != "existing":
        if own:
            draft.note(
                section, f"the chart's certificates take the place of these files; they are in the Secret {secret}"
            )
        return
    if {"cert", "key", "clientCA"} - own.keys():
        draft.warn(
            section, f"no files for the Secret {secret}: make them as serve-the-autoscaler.md says (In Kubernetes)"
        )
        return
    base_dir = draft.config.where().base_dir
    keys = {"tls.crt": "cert", "tls.key": "key", "ca.crt": "clientCA"}
    sources = [(name, absolute(own[key].text, base_dir)) for name, key in keys.items()]
    draft.objects.append(NewObject(kind="secret generic", name=secret, files=sources))


def _write_log(draft: Draft, log: dict[str, Any]) -> None:
    if not log:
        return
    level = log.get("level")
    if isinstance(level, int) and level > _HIGHEST_LEVEL:
        draft.warn(("log", "level"), f"{level} becomes {_HIGHEST_LEVEL}, the chart's highest")
        log["level"] = _HIGHEST_LEVEL
    draft.set(("server", "log"), log, "the section `log`")


# -- store -------------------------------------------------------------------------------------------------------------


def _write_store(draft: Draft, store: dict[str, Any], files: list[NamedFile]) -> None:
    database = draft.config.store.postgresql
    more = {key: value for key, value in store.items() if key not in _STORE_KEYS}
    if database is None:
        draft.set(("server", "mode"), "single", "one pod, whose journal is a file on a volume")
        if "path" in store:
            draft.note(("store", "path"), f"the journal is {JOURNAL_DIRECTORY}/journal.db on a volume of the chart")
    else:
        draft.set(("server", "mode"), "replicas", "store.postgresql: several pods share a journal")
        address = str(store["postgresql"])
        if not _CHART_ADDRESS.fullmatch(address):
            draft.refuse(("store", "postgresql"), "pods reach a database by its host, not by a socket of this host")
        if is_loopback_host(database.host):
            draft.warn(("store", "postgresql"), f"{database.host} is the pod itself: use the database's own host name")
        secret = f"{draft.choices.name}-db"
        values = {"address": address, "port": database.port, "user": database.user, "secret": secret}
        draft.set(
            ("server", "postgresql"), values, f"store.postgresql; the Secret {secret} has its password and authority"
        )
        _write_database_secret(draft, secret, files)
    if more:
        draft.set(("server", "store"), more, "the rest of the section `store`")


def _write_database_secret(draft: Draft, secret: str, files: list[NamedFile]) -> None:
    own = {file.path[-1]: file for file in files if file.path[:1] == ("store",)}
    base_dir = draft.config.where().base_dir
    sources: list[tuple[str, Path]] = []
    for key, name, usual, hint in (
        ("passwordFile", "password", "db-password", "the chart logs in with a password"),
        ("ca", "ca.crt", "db-ca.crt", "the chart verifies the database's certificate"),
    ):
        sources.append((name, absolute(own[key].text if key in own else usual, base_dir)))
        if key not in own:
            draft.warn(("store", key), f"is missing: {hint}. Put it into the file {usual}, for the Secret {secret}")
    draft.objects.append(NewObject(kind="secret generic", name=secret, files=sources))


# -- dock --------------------------------------------------------------------------------------------------------------


def _write_dock(draft: Draft, dock: dict[str, Any], files: list[NamedFile]) -> None:
    draft.set(("dock", "mode"), "server", "the section `dock`: drivers dial in at the server's own pod")
    tls = dock.pop("tls", None)
    listen = dock.pop("listen", None)
    if listen is not None and not str(listen).endswith(":5000"):
        draft.warn(("dock", "listen"), "the chart's dock listens on port 5000: give drivers that one")
    if not isinstance(tls, Mapping) or tls.get("clientCA") is None:
        draft.warn(
            ("dock", "tls"), "in the cluster the dock has TLS with clientCA: every driver needs a certificate too"
        )
    if dock:
        draft.set(("dock", "config"), dock)
    draft.note(("dock",), "drivers outside the cluster need a name in its certificate: the chart's value dock.hosts")
    _write_certificates(draft, "dock", ("dock", "tls"), files)
    if draft.config.dock is not None and draft.config.dock.kubernetes is not None:
        namespace = draft.config.dock.kubernetes.namespace
        draft.warn(
            ("dock", "kubernetes"),
            f"the chart grants no rights for it: bind a Role in {namespace} to the account {draft.choices.name} "
            "(docs/reference/machine-classes.md has the rules)",
        )
    _write_environment(draft, _mapping(dock.get("classes")))


def _write_environment(draft: Draft, classes: dict[str, Any]) -> None:
    """Variables with secrets of machine classes, from a Secret."""
    names = {variable for one in classes.values() for variable in (one.get("secretEnv") or {}).values()}
    if not names:
        return
    secret = f"{draft.choices.name}-env"
    env = [{"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": name}}} for name in sorted(names)]
    draft.set(("server", "env"), env, "secretEnv of machine classes")
    draft.objects.append(NewObject(kind="secret generic", name=secret, variables=sorted(names)))
