"""Checks the running server, and reports what could not be read."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from cloudgraft.dock.protocol.texts import TextClasses
from cloudgraft.doctor.findings import Finding, found
from cloudgraft.doctor.inputs import Cloud, DockedDriver, Group, Inputs, Machine, Server
from cloudgraft.sdk.errors import AuthenticationError, ErrorClass, PermissionDeniedError

# -- server ------------------------------------------------------------------------------------------------------------
# Checks journal, leadership, groups, clouds, guards, and orphaned, missing or duplicate machines.


_REFUSED: Final = frozenset({AuthenticationError.slug, PermissionDeniedError.slug})
_STANDS_BY: Final = re.compile("not the leader: .+ leads")  # as cloudgraft.engine.leadership says it
_LONG_IN_QUEUE: Final = 60.0  # seconds; after five minutes the call fails
_ODD: Final = {
    "unknown": "orphans",
    "unmarked": "orphans",
    "released": "orphans",
    "missing": "machine-missing",
    "unproven": "machine-unproven",
    "stuck": "machine-stuck",
}


def check(inputs: Inputs) -> Iterator[Finding]:
    """Checks the server; no findings when none answered."""
    server = inputs.server
    if server is None:
        return
    if server.leader_trouble:
        id_ = "standby" if _STANDS_BY.fullmatch(server.leader_trouble) else "not-leader"
        yield found(id_, where="server", what=server.leader_trouble)
    if server.opening_trouble:
        yield found("first-list-awaited", where="server", what=server.opening_trouble)
    if server.journal_trouble:
        yield found("journal-not-writable", where="journal", what=server.journal_trouble)
    if server.config_trouble:
        file = inputs.config_file or "FILE"
        fix = f"cloudgraft serve --config {file} --check says what is wrong with it"
        yield found("config-not-taken", where=file, what=server.config_trouble, fix=fix)
    if server.cluster_trouble:
        yield found("cluster-not-seen", where="server", what=server.cluster_trouble)
    for problem in server.node_problems:
        yield found("node-not-looked-after", where="server", what=problem)
    for group in server.groups:
        yield from _group(group)
    for cloud in server.clouds:
        yield from _cloud(cloud)
    texts = TextClasses(inputs.settings.error_texts if inputs.settings is not None else {})
    for driver in server.drivers:
        yield from _driver(driver, texts)
    yield from _failures(server)
    yield from _guards(server)
    yield from _oddities(server)


def _group(group: Group) -> Iterator[Finding]:
    where, explain = f"group {group.id}", f"cloudgraft explain {group.id}"
    if group.left_out:
        yield found("group-left-out", where=where, what=group.left_out, fix=explain)
    if group.stale:
        yield found("group-stale", where=where, what=group.stale, fix=explain)
    if group.paused:
        yield found("paused", where=where, what=group.paused, fix=f"cloudgraft resume {group.id}")


def _driver(driver: DockedDriver, texts: TextClasses) -> Iterator[Finding]:
    where = f"driver of {driver.kind} ({driver.api_version}), {driver.protocol}"
    if driver.queued_seconds > _LONG_IN_QUEUE:
        what = (
            f"{driver.queued} calls wait, the oldest for {driver.queued_seconds:.0f} s; it works on {driver.in_flight}"
        )
        yield found("dock-driver-busy", where=where, what=what)
    if driver.unclassified and texts.own(driver.unclassified) is None:
        yield found("dock-error-unclassified", where=where, what=driver.unclassified)


def _cloud(cloud: Cloud) -> Iterator[Finding]:
    where = f"cloud {cloud.name}"
    if cloud.error_code in _REFUSED:
        yield found("cloud-credentials-refused", where=where, what=cloud.error)
    elif cloud.error:
        yield found("cloud-down", where=where, what=cloud.error)
    elif not cloud.is_up:
        yield found("cloud-never-listed", where=where, what="the first list has not come back yet")
    if cloud.blocked:
        yield found("cloud-blocked", where=where, what=cloud.blocked)
    if cloud.held_back:
        fix = f"cloudgraft accept-loss --cloud {cloud.name}, once you have seen in the cloud that they are gone"
        yield found("cloud-list-doubted", where=where, what=cloud.held_back, fix=fix)
    if cloud.lag:
        yield found("list-delay-too-small", where=where, what=cloud.lag)
    if cloud.observe_only:
        yield found("observe-only", where=where, what="nothing is created or deleted there")
    if cloud.paused:
        yield found("paused", where=where, what=cloud.paused, fix=f"cloudgraft resume --cloud {cloud.name}")


def _failures(server: Server) -> Iterator[Finding]:
    """Yields one finding per group and reason, not one per machine."""
    failed: dict[tuple[str, bool, str], list[Machine]] = defaultdict(list)
    for machine in server.machines:
        if machine.state == "failed":
            no_room = machine.error_class == ErrorClass.OUT_OF_RESOURCES
            failed[machine.group, no_room, machine.error_code].append(machine)
    for (group, no_room, code), machines in failed.items():
        last = machines[-1]
        what = f"{len(machines)} failed with {code}, the last, {last.name}, with: {last.error_message}"
        if no_room:
            yield found("quota-reached", where=f"group {group}", what=what)
        else:
            yield found("machines-fail", where=f"group {group}", what=what, fix=f"cloudgraft explain {group}")


def _guards(server: Server) -> Iterator[Finding]:
    for guard in server.guards:
        if guard.used >= guard.limit:
            where = f"guards.{guard.name}" + (f" of cloud {guard.scope}" if guard.scope else "")
            what = f"{guard.used:g} of {guard.limit:g} {guard.unit}".rstrip() + " are used"
            yield found("guard-reached", where=where, what=what)


def _oddities(server: Server) -> Iterator[Finding]:
    """Reports several machines of one name as duplicates, and others by their kind."""
    names: dict[tuple[str, str], set[str]] = defaultdict(set)
    for odd in server.oddities:
        names[odd.cloud, odd.name].add(odd.machine_id)
    known = {machine.name for machine in server.machines}
    for odd in server.oddities:
        twice = bool(odd.name) and _ODD.get(odd.kind) == "orphans"
        twice = twice and (odd.name in known or len(names[odd.cloud, odd.name]) > 1)
        id_ = "machine-twice" if twice else _ODD.get(odd.kind, "orphans")
        what = f"{odd.name or odd.machine_id} ({odd.machine_id}): {odd.detail}"
        yield found(id_, where=f"cloud {odd.cloud}", what=what, fix=f"cloudgraft orphans {odd.hint}")


# -- sources that could not be read ------------------------------------------------------------------------------------
# What depends on them is not checked.


def check_sources(inputs: Inputs) -> Iterator[Finding]:
    """All sources."""
    file = inputs.config_file
    for problem in inputs.config_problems:
        yield found("config-invalid", where=file, what=problem, fix=f"cloudgraft serve --config {file} --check")
    for problem in inputs.config_incomplete:
        yield found("config-incomplete", where=file, what=problem, fix=f"cloudgraft serve --config {file} --check")
    if inputs.settings is None and not inputs.config_problems:
        yield found("config-missing", where="--config", what="no configuration file is given, nor is one here")
    if inputs.server is None and inputs.server_trouble:
        yield found("server-unreachable", where="admin socket", what=inputs.server_trouble)
    yield from _cluster(inputs)
    # The check of Deployments reports one without it.
    if not inputs.cloud_configs() and not inputs.autoscalers:
        yield found("cloud-config-unknown", where="--cloud-config", what="no cloud-config is given, and none was found")


def _cluster(inputs: Inputs) -> Iterator[Finding]:
    cluster = inputs.cluster
    if cluster is None:
        if inputs.cluster_trouble:
            yield found("cluster-unreachable", where="Kubernetes API", what=inputs.cluster_trouble)
        else:
            what = "neither --kubeconfig nor the section kubernetes of the configuration says where it is"
            yield found("cluster-not-looked-at", where="--kubeconfig", what=what)
        return
    if cluster.nodes is None:
        yield found("nodes-unreadable", where="nodes", what=cluster.nodes_trouble)
    if cluster.autoscalers is None:
        yield found("autoscaler-unreadable", where="Deployments", what=cluster.autoscalers_trouble)
    elif not cluster.autoscalers and inputs.cloud_config is None:  # with one, it is known to run elsewhere
        what = cluster.autoscalers_trouble or "no Deployment has a container with --cloud-provider=externalgrpc"
        yield found("autoscaler-not-found", where="Deployments", what=what)
