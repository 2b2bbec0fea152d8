"""What scenarios do with the Kubernetes API: workloads, and what became of pods and nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
from lightkube import ApiError, Client, KubeConfig
from lightkube.models.apps_v1 import DeploymentSpec
from lightkube.models.core_v1 import Container, PodSpec, PodTemplateSpec, ResourceRequirements, Toleration
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.apps_v1 import Deployment, ReplicaSet
from lightkube.resources.core_v1 import ConfigMap, Namespace, Node, Pod

from e2e.waiting import until

__all__ = ["GROUP_LABEL", "Cluster", "Workload", "connected"]

GROUP_LABEL: Final = "e2e.example/group"  # every group of every scenario gives its nodes this label
_SECONDS_TO_CLEAN: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Pods that are all alike."""

    name: str
    replicas: int
    cpu: str
    memory: str
    selector: Mapping[str, str] = field(default_factory=dict)
    tolerates: Sequence[str] = ()  # keys of taints
    devices: Mapping[str, str] = field(default_factory=dict)  # such as nvidia.com/gpu: 1
    image: str = "none"  # which is fine where no container really runs

    def deployment(self, namespace: str) -> Deployment:
        """As the API takes it."""
        labels = {"app": self.name}
        template = PodTemplateSpec(
            metadata=ObjectMeta(labels=labels),
            spec=PodSpec(
                containers=[Container(name="main", image=self.image, resources=self._resources())],
                nodeSelector=dict(self.selector),
                tolerations=[Toleration(key=key, operator="Exists") for key in self.tolerates],
                terminationGracePeriodSeconds=1,
            ),
        )
        spec = DeploymentSpec(replicas=self.replicas, selector=LabelSelector(matchLabels=labels), template=template)
        return Deployment(metadata=ObjectMeta(name=self.name, namespace=namespace), spec=spec)

    def _resources(self) -> ResourceRequirements:
        devices: dict[str, Any] = dict(self.devices)  # Kubernetes wants both for what cannot be shared
        return ResourceRequirements(requests={"cpu": self.cpu, "memory": self.memory, **devices}, limits=devices)


class Cluster:
    """One cluster, and in it one namespace of one's own."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    # -- workloads -----------------------------------------------------------------------------------------------------

    def run(self, *workloads: Workload) -> None:
        """Creates them."""
        for workload in workloads:
            self.client.create(workload.deployment(self.namespace))

    def scale(self, name: str, replicas: int) -> None:
        """Changes how many pods a workload has."""
        patch = {"spec": {"replicas": replicas}}
        self.client.patch(Deployment, name, patch, namespace=self.namespace)

    def configure(self, name: str, data: Mapping[str, str]) -> None:
        """Creates a ConfigMap."""
        metadata = ObjectMeta(name=name, namespace=self.namespace)
        self.client.create(ConfigMap(metadata=metadata, data=dict(data)))

    def pods(self, name: str = "") -> list[Pod]:
        """Those of one workload, or of all."""
        labels: Any = {"app": name} if name else None
        return [pod for pod in self.client.list(Pod, namespace=self.namespace, labels=labels) if not _is_going(pod)]

    def running(self, name: str = "") -> int:
        """How many pods run."""
        return sum(pod.status is not None and pod.status.phase == "Running" for pod in self.pods(name))

    def waiting(self) -> int:
        """How many pods the scheduler has found no node for: what the autoscaler looks for."""
        conditions = [(pod.status and pod.status.conditions) or [] for pod in self.pods()]
        return sum(any(one.reason == "Unschedulable" for one in of_pod) for of_pod in conditions)

    def groups_of_pods(self, name: str) -> Counter[str]:
        """On nodes of which groups the pods of a workload are; those that wait count as being in the group ""."""
        groups = {_name(node): group_of(node) for node in self.nodes()}
        return Counter(groups.get((pod.spec and pod.spec.nodeName) or "", "") for pod in self.pods(name))

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def nodes(self, group: str = "") -> list[Node]:
        """Those of one group, or all."""
        return [node for node in self.client.list(Node) if not group or group_of(node) == group]

    def node_names(self, group: str = "") -> set[str]:
        """Their names."""
        return {_name(node) for node in self.nodes(group)}

    def provider_ids(self) -> set[str]:
        """The providerID of every node."""
        return {(node.spec and node.spec.providerID) or "" for node in self.nodes()}

    def sizes(self) -> dict[str, int]:
        """How many nodes each group has."""
        return dict(Counter(group_of(node) for node in self.nodes()))

    # -- what the autoscaler says --------------------------------------------------------------------------------------

    def status(self) -> str:
        """The autoscaler's own status, empty while it has written none."""
        try:
            found = self.client.get(ConfigMap, "cluster-autoscaler-status", namespace=self.namespace)
        except ApiError as error:
            if error.status.code == 404:
                return ""
            raise
        return str((found.data or {}).get("status", ""))

    # -- beginning and end ---------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Makes the namespace."""
        self.client.create(Namespace(metadata=ObjectMeta(name=self.namespace)))

    def clean(self) -> None:
        """Takes everything away that a scenario has left, whether or not anybody still plays the kubelet."""
        for kind in (Deployment, ReplicaSet, ConfigMap):
            self.client.deletecollection(kind, namespace=self.namespace)
        until(self._removed, "pods and nodes of a scenario go away", seconds=_SECONDS_TO_CLEAN)
        self.client.delete(Namespace, self.namespace)

    def _removed(self) -> bool:
        pods = list(self.client.list(Pod, namespace=self.namespace))
        nodes = self.nodes()
        for pod in pods:
            with _gone_is_fine():
                self.client.delete(Pod, _name(pod), namespace=self.namespace, grace_period=0)
        for node in nodes:
            with _gone_is_fine():
                self.client.delete(Node, _name(node))
        return not pods and not nodes


@contextmanager
def connected(kubeconfig: Path, namespace: str) -> Iterator[Cluster]:
    """The cluster of a kubeconfig."""
    config = KubeConfig.from_file(kubeconfig)
    client = Client(config=config, timeout=httpx2.Timeout(30.0), trust_env=False)
    with client:
        yield Cluster(client, namespace)


def group_of(node: Node) -> str:
    """The group that a node says it is of."""
    return str(((node.metadata and node.metadata.labels) or {}).get(GROUP_LABEL, ""))


def _name(thing: Node | Pod) -> str:
    return (thing.metadata and thing.metadata.name) or ""


def _is_going(pod: Pod) -> bool:
    return pod.metadata is not None and pod.metadata.deletionTimestamp is not None


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    with suppress(ApiError):  # what is not gone yet is deleted again in a moment
        yield
