"""The inputs of a clean world, and one with a single thing wrong for every finding that there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cloudgraft.certs.inspect import CertificateInfo, Purpose
from cloudgraft.client.cloud_config import CloudConfig
from cloudgraft.doctor.inputs import (
    Autoscaler,
    Certificate,
    Cloud,
    CloudConfigSeen,
    Cluster,
    DockedDriver,
    Group,
    GroupSettings,
    Guard,
    Inputs,
    Machine,
    Mount,
    NodeCare,
    Oddity,
    Role,
    Server,
    Settings,
)
from cloudgraft.doctor.releases import Flags, Release
from cloudgraft.kube.objects import Node
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import AutoscalingOptions, NodeTemplate, Taint

NOW = datetime(2026, 6, 1, tzinfo=UTC)
Plant = Callable[[Inputs], Inputs]
TEMPLATE = NodeTemplate(
    labels={"pool": "lab", "kubernetes.io/arch": "amd64"},
    taints=[Taint(key="dedicated", value="batch")],
    capacity={"cpu": Quantity("4"), "memory": Quantity("8Gi"), "pods": Quantity("110")},
    allocatable={"cpu": Quantity("3900m"), "memory": Quantity("7Gi"), "pods": Quantity("110")},
)
NODE = Node(
    name="lab-small-1",
    provider_id="lab://one/lab-small-1",
    labels={"pool": "lab", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": "lab-small-1"},
    taints=(Taint(key="dedicated", value="batch"),),
    ready=True,
    capacity=TEMPLATE.capacity,
    allocatable=TEMPLATE.allocatable,
)
FLAGS = ("--cloud-provider=externalgrpc", "--cloud-config=/etc/cloudgraft/config/cloud-config.yaml", "--v=2")
CLOUD_CONFIG = """
address: cloudgraft.kube-system.svc:8086
key: /etc/cloudgraft/tls/tls.key
cert: /etc/cloudgraft/tls/tls.crt
cacert: /etc/cloudgraft/tls/ca.crt
"""


def certificate(role: Role, purpose: Purpose, *names: str, days: float = 300, age: float = 60) -> Certificate:
    file = Path(f"certs/{role}.crt")
    info = CertificateInfo(
        file=file,
        purpose=purpose,
        common_name=names[0] if names else "cloudgraft CA",
        issuer="cloudgraft CA",
        dns_names=names,
        ip_addresses=(),
        not_before=NOW - timedelta(days=age),
        not_after=NOW + timedelta(days=days),
        fingerprint="00",
    )
    return Certificate(role=role, where=str(file), info=info)


def clean() -> Inputs:
    """A server, an autoscaler and a cluster of which nothing bad can be said."""
    settings = Settings(
        file="cloudgraft.yaml",
        has_tls=True,
        allowed_clients=("cluster-autoscaler-grpc-client",),
        groups=(GroupSettings(id="lab-small", cloud="lab", max_size=10, has_price=True, declared=TEMPLATE),),
        node_care=NodeCare(sets_provider_id=True, labels_nodes=True, removes_nodes=True),
    )
    server = Server(
        groups=(Group(id="lab-small", cloud="lab", target=1, max_size=10, has_price=True),),
        machines=(Machine(name="lab-small-1", group="lab-small", provider_id=NODE.provider_id, state_age=3600),),
        clouds=(Cloud(name="lab", driver="exec"),),
        guards=(Guard(scope="", name="maxMachines", used=1, limit=50),),
    )
    autoscaler = Autoscaler(
        namespace="kube-system",
        name="cluster-autoscaler",
        image="registry.k8s.io/autoscaling/cluster-autoscaler:v1.34.3",
        flags=Flags.parse(FLAGS),
        mounts=(
            Mount(path="/etc/cloudgraft/config", source="ConfigMap cluster-autoscaler-cloud-config"),
            Mount(path="/etc/cloudgraft/tls", source="Secret cloudgraft-client-tls"),
        ),
        cloud_config=CloudConfigSeen(where="ConfigMap kube-system/x", config=CloudConfig.parse(CLOUD_CONFIG)),
    )
    return Inputs(
        now=NOW,
        settings=settings,
        config_file="cloudgraft.yaml",
        server=server,
        certificates=(
            certificate(Role.SERVER, "server", "cloudgraft.kube-system.svc", "localhost"),
            certificate(Role.CLIENT, "client", "cluster-autoscaler-grpc-client"),
            certificate(Role.CLIENT_CA, "ca"),
            certificate(Role.SERVER_CA, "ca"),
        ),
        templates={"lab-small": TEMPLATE},
        cluster=Cluster(
            release=Release(1, 34, 4),
            nodes=(NODE, Node(name="control-plane", ready=True)),
            autoscalers=(autoscaler,),
        ),
    )


# -- ways to change one thing ------------------------------------------------------------------------------------------


def settings(**changes: Any) -> Plant:
    def plant(inputs: Inputs) -> Inputs:
        assert inputs.settings is not None
        return replace(inputs, settings=replace(inputs.settings, **changes))

    return plant


def group(**changes: Any) -> Plant:
    """The group of the configuration file."""

    def plant(inputs: Inputs) -> Inputs:
        assert inputs.settings is not None
        return settings(groups=(replace(inputs.settings.groups[0], **changes),))(inputs)

    return plant


def server(**changes: Any) -> Plant:
    def plant(inputs: Inputs) -> Inputs:
        assert inputs.server is not None
        return replace(inputs, server=replace(inputs.server, **changes))

    return plant


def served(**changes: Any) -> Plant:
    """The group of the running server."""

    def plant(inputs: Inputs) -> Inputs:
        assert inputs.server is not None
        return server(groups=(replace(inputs.server.groups[0], **changes),))(inputs)

    return plant


def cloud(**changes: Any) -> Plant:
    return server(clouds=(replace(Cloud(name="lab", driver="exec"), **changes),))


def machine(**changes: Any) -> Plant:
    def plant(inputs: Inputs) -> Inputs:
        assert inputs.server is not None
        return server(machines=(replace(inputs.server.machines[0], **changes),))(inputs)

    return plant


def odd(kind: str, **changes: Any) -> Plant:
    found = Oddity(kind=kind, cloud="lab", name="lab-small-9", machine_id="i-9", detail="odd", hint="list")
    return server(oddities=(replace(found, **changes),))


def cluster(**changes: Any) -> Plant:
    def plant(inputs: Inputs) -> Inputs:
        assert inputs.cluster is not None
        return replace(inputs, cluster=replace(inputs.cluster, **changes))

    return plant


def node(**changes: Any) -> Plant:
    return cluster(nodes=(replace(NODE, **changes),))


def autoscaler(**changes: Any) -> Plant:
    def plant(inputs: Inputs) -> Inputs:
        return cluster(autoscalers=(replace(inputs.autoscalers[0], **changes),))(inputs)

    return plant


def flags(*more: str, release: str = "1.34.3") -> Plant:
    """With these flags beside the usual ones; of another release if so said, and so is the cluster."""

    def plant(inputs: Inputs) -> Inputs:
        image = f"registry.k8s.io/autoscaling/cluster-autoscaler:v{release}"
        changed = autoscaler(flags=Flags.parse([*FLAGS, *more]), image=image)(inputs)
        return cluster(release=Release.of_version(release))(changed)

    return plant


def certificates(*changed: Certificate) -> Plant:
    """These in place of those of the same role."""

    def plant(inputs: Inputs) -> Inputs:
        roles = {one.role for one in changed}
        return replace(inputs, certificates=(*(o for o in inputs.certificates if o.role not in roles), *changed))

    return plant


def cloud_config(text: str, **changes: Any) -> Plant:
    seen = CloudConfigSeen(where="ConfigMap kube-system/x", config=CloudConfig.parse(text))
    return autoscaler(cloud_config=replace(seen, **changes))


def both(*plants: Plant) -> Plant:
    def plant(inputs: Inputs) -> Inputs:
        for one in plants:
            inputs = one(inputs)
        return inputs

    return plant


def _one(role: Role, purpose: Purpose, *names: str, **changes: Any) -> Certificate:
    return replace(certificate(role, purpose, *names), **changes)


_SERVER = certificate(Role.SERVER, "server", "cloudgraft.kube-system.svc")
_CLIENT = certificate(Role.CLIENT, "client", "cluster-autoscaler-grpc-client")
_OPTIONS = AutoscalingOptions(scale_down_unneeded_time=timedelta(minutes=5))
_OTHER = Autoscaler(namespace="default", name="other", image="x:v1.34.3", flags=Flags.parse(FLAGS))


def _second_autoscaler(inputs: Inputs) -> Inputs:
    first = inputs.autoscalers[0]
    return cluster(autoscalers=(first, replace(first, namespace="other")))(inputs)


PLANTS: Mapping[str, Plant] = {
    # -- the configuration and the running server
    "config-invalid": lambda p: replace(p, settings=None, config_problems=("cloudgraft.yaml:3:1: unknown key",)),
    "config-incomplete": lambda p: replace(p, config_incomplete=("cloudgraft.yaml:3:1: no such file: token",)),
    "config-missing": lambda p: replace(p, settings=None, config_file=""),
    "config-not-taken": server(config_trouble="line 3: unknown key"),
    "cluster-not-seen": server(cluster_trouble="the Kubernetes API has not been heard of for a while"),
    "dock-driver-busy": server(
        drivers=(
            DockedDriver(
                kind="AcmeMachineClass", api_version="acme/v1", protocol="v0", in_flight=1, queued=1, queued_seconds=61
            ),
        )
    ),
    "dock-error-unclassified": server(
        drivers=(
            DockedDriver(
                kind="AcmeMachineClass", api_version="acme/v1", protocol="v0", unclassified="the tree has no more fruit"
            ),
        )
    ),
    "node-not-looked-after": server(node_problems=("two nodes are named m-1",)),
    "server-unreachable": lambda p: replace(p, server=None, server_trouble="no cloudgraft server answers"),
    "not-leader": server(leader_trouble="not the leader: the lease cannot be asked for: no route"),
    "standby": server(leader_trouble="not the leader: cloudgraft-6c5f leads"),
    "first-list-awaited": server(opening_trouble="waiting for the first list of cloud lab"),
    "journal-not-writable": server(journal_trouble="the disk is full"),
    "group-left-out": served(left_out="no shape huge"),
    "group-stale": served(stale="no shape huge"),
    "paused": served(paused="paused since yesterday: maintenance"),
    "observe-only": cloud(observe_only=True),
    "cloud-credentials-refused": cloud(is_up=False, error="401", error_code="unauthenticated"),
    "cloud-down": cloud(is_up=False, error="no route", error_code="unavailable"),
    "cloud-never-listed": cloud(is_up=False),
    "cloud-blocked": cloud(blocked="the list is not complete"),
    "list-delay-too-small": cloud(lag="lists of cloud lab showed a machine 12 s late"),
    "cloud-list-doubted": cloud(held_back="the list misses 5 of 5 machines at once"),
    "quota-reached": machine(state="failed", error_code="quota_exceeded", error_message="no more", error_class=1),
    "machines-fail": machine(state="failed", error_code="internal", error_message="oops", error_class=99),
    "guard-reached": server(guards=(Guard(scope="lab", name="maxMachines", used=50, limit=50, unit="machines"),)),
    "orphans": odd("unknown"),
    "machine-twice": odd("unknown", name="lab-small-1"),
    "machine-missing": odd("missing"),
    "machine-unproven": odd("unproven"),
    "machine-stuck": odd("stuck"),
    # -- certificates and the connection
    "tls-insecure": settings(is_insecure=True),
    "dock-local-secrets": settings(gives_local_secrets=True),
    "tls-unreadable": certificates(replace(_SERVER, info=None, trouble="certs/server.crt does not exist")),
    "tls-expired": certificates(certificate(Role.CLIENT, "client", "cluster-autoscaler-grpc-client", days=-1)),
    "tls-expires-soon": certificates(certificate(Role.CLIENT_CA, "ca", days=29)),
    "tls-not-yet-valid": certificates(certificate(Role.SERVER_CA, "ca", age=-1)),
    "tls-wrong-purpose": certificates(_one(Role.CLIENT, "server", "cluster-autoscaler-grpc-client")),
    "tls-key": certificates(replace(_SERVER, key_trouble="certs/server.key is not its key")),
    "tls-key-readable": certificates(replace(_SERVER, key_readable="certs/server.key")),
    "tls-name-missing": certificates(certificate(Role.SERVER, "server", "localhost")),
    "tls-server-untrusted": certificates(replace(_SERVER, untrusted="was not signed by ca.crt")),
    "tls-client-untrusted": certificates(replace(_CLIENT, untrusted="was not signed by ca.crt")),
    "tls-client-not-allowed": certificates(certificate(Role.CLIENT, "client", "somebody-else")),
    "tls-on-one-side": cloud_config("address: cloudgraft.kube-system.svc:8086"),
    "cloud-config-invalid": autoscaler(cloud_config=CloudConfigSeen(where="x", trouble="cert is set but key is not")),
    "cloud-config-unknown": lambda p: replace(p, cluster=replace(p.cluster, autoscalers=())) if p.cluster else p,
    "call-fails": cloud_config(CLOUD_CONFIG, call_trouble="the handshake failed"),
    "timeout-too-short": cloud_config(f"{CLOUD_CONFIG}grpc_timeout: 3s", has_timeout=True),
    "timeout-ignored": both(
        flags(release="1.28.2"), cloud_config(f"{CLOUD_CONFIG}grpc_timeout: 30s", has_timeout=True)
    ),
    # -- the autoscaler as it is deployed
    "autoscaler-not-found": cluster(autoscalers=()),
    "autoscaler-unreadable": cluster(autoscalers=None, autoscalers_trouble="forbidden"),
    "autoscaler-switched-off": autoscaler(replicas=0),
    "two-autoscalers": _second_autoscaler,
    "no-leader-election": both(flags("--leader-elect=false"), autoscaler(replicas=2)),
    "release-unknown": autoscaler(image="registry.example/cluster-autoscaler:latest"),
    "release-too-old": flags(release="1.24.3"),
    "release-too-new": flags(release="1.38.0"),
    "release-not-the-clusters": cluster(release=Release(1, 33, 1)),
    "wrong-cloud-provider": autoscaler(flags=Flags.parse(["--cloud-provider=aws"])),
    "no-cloud-config": autoscaler(flags=Flags.parse(["--cloud-provider", "externalgrpc"]), cloud_config=None),
    "cloud-config-not-mounted": autoscaler(mounts=(Mount(path="/etc/cloudgraft/tls", source="Secret x"),)),
    "client-certificate-not-mounted": autoscaler(mounts=(Mount(path="/etc/cloudgraft/config", source="ConfigMap x"),)),
    "certificate-never-renewed": autoscaler(
        mounts=(
            Mount(path="/etc/cloudgraft/config", source="ConfigMap x"),
            Mount(path="/etc/cloudgraft/tls", source="Secret x", has_sub_path=True),
        )
    ),
    "rbac-missing": autoscaler(missing_rights=("watch volumeattachments.storage.k8s.io",)),
    "rbac-unknown": autoscaler(rights_trouble="forbidden"),
    # -- the autoscaler's flags
    "flag-unknown": flags("--max-empty-bulk-delete=10"),
    "nodes-flag-ignored": flags("--nodes=0:1:unused"),
    "nodes-flag-misleads": flags("--nodes=2:20:lab-small"),
    "min-size-not-enforced": group(min_size=2),
    "expander-price-without-prices": both(flags("--expander=price"), served(has_price=False)),
    "expander-grpc": flags("--expander=grpc", "--grpc-expander-url=x:1", "--grpc-expander-cert=/x"),
    "expander-grpc-incomplete": flags("--expander=grpc"),
    "expander-priority-no-configmap": flags("--expander=priority"),
    "expander-priority-group-unmatched": both(
        flags("--expander=priority,least-waste"), autoscaler(priorities='10: ["^cloud-.*"]')
    ),
    "options-held-back": both(flags(release="1.35.0"), group(options=_OPTIONS)),
    "options-delete-new-machines": both(flags(release="1.28.2"), group(options=_OPTIONS), settings(force_options=True)),
    "options-turn-off": both(flags(release="1.31.1"), group(options=_OPTIONS), settings(force_options=True)),
    "options-buy-twice": both(flags(release="1.37.0"), group(options=_OPTIONS), settings(force_options=True)),
    "zero-or-max-never-shrinks": group(options=AutoscalingOptions(zero_or_max_node_scaling=True)),
    "template-cache": node(labels={"pool": "other", "kubernetes.io/arch": "amd64"}),
    "scale-down-off": flags("--scale-down-enabled=false"),
    "scale-down-too-eager": flags("--scale-down-unneeded-time=5s"),
    "scale-down-never": flags("--scale-down-utilization-threshold=0"),
    "unready-never-removed": flags("--scale-down-unready-enabled=false"),
    "provision-time-too-short": settings(create_deadline=timedelta(minutes=30), has_own_deadlines=True),
    "local-data-lost": flags("--skip-nodes-with-local-storage=false"),
    "system-pods-moved": flags("--skip-nodes-with-system-pods=false"),
    # -- the cluster
    "cluster-not-looked-at": lambda p: replace(p, cluster=None),
    "cluster-unreachable": lambda p: replace(p, cluster=None, cluster_trouble="connection refused"),
    "nodes-unreadable": cluster(nodes=None, nodes_trouble="forbidden"),
    "provider-id-empty": node(provider_id=""),
    "provider-id-case": node(provider_id="lab://one/LAB-small-1", name="other"),
    "provider-id-prefix": node(provider_id="aws:///zone/lab-small-1", name="other"),
    "provider-id-other": node(provider_id="lab://one/something-else"),
    "provider-id-twice": cluster(nodes=(NODE, replace(NODE, name="copy"))),
    "node-missing": cluster(nodes=()),
    "node-left-behind": cluster(nodes=(NODE, Node(name="old", provider_id="lab://one/old"))),
    "node-waits-for-cloud-controller": cluster(
        nodes=(
            NODE,
            Node(name="new", taints=(Taint(key="node.cloudprovider.kubernetes.io/uninitialized", value="true"),)),
        )
    ),
    "two-set-provider-ids": cluster(cloud_controllers=("DaemonSet kube-system/cloud-controller-manager",)),
    "nodes-not-named-like-machines": cluster(nodes=(Node(name="ip-10-0-0-7", ready=True),)),
    "template-label": node(labels={"kubernetes.io/arch": "amd64"}),
    "template-taint-missing": node(taints=()),
    "template-taint-unknown": node(taints=(*NODE.taints, Taint(key="gpu", effect="NoExecute"))),
    "template-resource": node(allocatable={**TEMPLATE.allocatable, "memory": Quantity("5Gi")}),
    "right-missing": cluster(missing_rights={"delete nodes": "kubernetes.removeNodes"}),
}
# What else is found with some of them, because it follows.
ALONG: Mapping[str, set[str]] = {
    "config-invalid": set(),
    "template-cache": {"template-label"},
    "template-label": {"template-cache"},
    "template-taint-missing": {"template-cache"},
    "template-taint-unknown": {"template-cache"},
    "template-resource": {"template-cache"},
    "autoscaler-not-found": {"cloud-config-unknown"},
    "cloud-config-unknown": {"autoscaler-not-found"},
    "autoscaler-unreadable": {"cloud-config-unknown"},
    "cluster-not-looked-at": {"cloud-config-unknown"},
    "cluster-unreachable": {"cloud-config-unknown"},
    "nodes-not-named-like-machines": {"node-missing"},
    "timeout-ignored": set(),
}
