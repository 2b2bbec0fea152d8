"""The cluster that is asked about, and the bytes an autoscaler sends to ask."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from cloudgraft.sdk.types import AutoscalingOptions, NodeRef
from cloudgraft.wire import externalgrpc as wire
from cloudgraft.wire.pb import externalgrpc_pb2 as pb

FOR_NODE = "NodeGroupForNode"
GET_OPTIONS = "NodeGroupGetOptions"
NODES = "NodeGroupNodes"
TARGET_SIZE = "NodeGroupTargetSize"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes spread evenly over groups. Two processes that make one of the same size make the same one."""

    nodes: tuple[NodeRef, ...]
    groups: tuple[str, ...]

    @classmethod
    def of_size(cls, nodes: int) -> Cluster:
        """So many nodes: in 50 groups from 5,000 nodes on, in 20 below."""
        groups = tuple(f"pool-{number:02}" for number in range(50 if nodes >= 5000 else 20))
        return cls(tuple(_node(number, groups[number % len(groups)]) for number in range(nodes)), groups)

    def group_of(self, node: NodeRef) -> str:
        """The group that the node is in."""
        return node.labels["example.com/pool"]


def _node(number: int, group: str) -> NodeRef:
    """A node with the labels and annotations that a node of a usual cluster has."""
    name = f"ip-10-{number >> 16 & 255}-{number >> 8 & 255}-{number & 255}.eu-central-1.compute.internal"
    zone, machine = f"eu-central-1{'abc'[number % 3]}", f"i-{number:017x}"
    return NodeRef(
        name=name,
        provider_id=f"bench:///{zone}/{machine}",
        labels={
            "beta.kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/instance-type": "m5.2xlarge",
            "beta.kubernetes.io/os": "linux",
            "example.com/pool": group,
            "failure-domain.beta.kubernetes.io/region": "eu-central-1",
            "failure-domain.beta.kubernetes.io/zone": zone,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "m5.2xlarge",
            "topology.kubernetes.io/region": "eu-central-1",
            "topology.kubernetes.io/zone": zone,
        },
        annotations={
            "alpha.kubernetes.io/provided-node-ip": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
            "csi.volume.kubernetes.io/nodeid": f'{{"csi.example.com":"{machine}"}}',
            "node.alpha.kubernetes.io/ttl": "0",
            "volumes.kubernetes.io/controller-managed-attach-detach": "true",
        },
    )


def requests_for(rpc: str, cluster: Cluster) -> list[bytes]:
    """What a 1.35 autoscaler sends in one loop: every node in turn, or every group in turn with its defaults."""
    if rpc == FOR_NODE:
        return [
            pb.NodeGroupForNodeRequest(node=wire.node_ref_to_pb(node)).SerializeToString() for node in cluster.nodes
        ]
    if rpc == TARGET_SIZE:
        return [pb.NodeGroupTargetSizeRequest(id=group).SerializeToString() for group in cluster.groups]
    if rpc == NODES:
        return [pb.NodeGroupNodesRequest(id=group).SerializeToString() for group in cluster.groups]
    defaults = _defaults_of_1_35()
    return [
        pb.NodeGroupAutoscalingOptionsRequest(id=group, defaults=defaults).SerializeToString()
        for group in cluster.groups
    ]


def _defaults_of_1_35() -> pb.NodeGroupAutoscalingOptions:
    """The defaults of the autoscaler's flags; from 1.35 on, durations are sent in the new fields alone."""
    message = wire.options_to_pb(
        AutoscalingOptions(
            scale_down_utilization_threshold=0.5,
            scale_down_gpu_utilization_threshold=0.5,
            scale_down_unneeded_time=timedelta(minutes=10),
            scale_down_unready_time=timedelta(minutes=20),
            max_node_provision_time=timedelta(minutes=15),
        )
    )
    for old in ("scaleDownUnneededTime", "scaleDownUnreadyTime", "MaxNodeProvisionTime"):
        message.ClearField(old)
    return message
