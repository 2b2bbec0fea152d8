"""Every release of the autoscaler from 1.25 to 1.37 is served: what it sends is understood, what it reads is there.

The client's side is written from the table of fields in release_messages.py, the server's side is the real service.
GetOptions, where the releases differ most, has a file of its own.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.message import Message

from cloudgraft.sdk.errors import InternalError, UnsupportedError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Container, NodeRef, NodeTemplate, Pod
from cloudgraft.service import CloudProviderService
from cloudgraft.wire.externalgrpc import RPCS as SERVED
from tests.wire.go_client import GoClient, GoInstance, NotImplementedByServerError, assert_fully_known
from tests.wire.release_messages import RELEASES, RPCS, Release, filled
from tests.wire.small_provider import GROUPS, TEMPLATE, PlainProvider, SmallProvider

every_release = pytest.mark.parametrize("release", RELEASES, ids=[release.name for release in RELEASES])

NODE = NodeRef(
    name="node-1", provider_id="lab://1", labels={"pool": "lab", "ß": "✓"}, annotations={"cluster": "prod", "empty": ""}
)
FAKE = NodeRef(
    name="lab://3",
    provider_id="lab://3",
    annotations={"k8s.io/cluster-autoscaler/fake-node-reason": "create-error"},
)
START = datetime(2026, 3, 1, 12, 0, 0, 500_000, tzinfo=UTC)
END = START + timedelta(hours=1)


def _client(release: Release, provider: PlainProvider | None = None) -> GoClient:
    return GoClient(release, CloudProviderService(provider or SmallProvider()))


def _as_sent(release: Release, time: datetime) -> datetime:
    """Up to 1.34.1 only metav1.Time is sent, which has whole seconds."""
    return time if release.since("1.34") else time.replace(microsecond=0)


# -- the messages themselves ---------------------------------------------------------------------------------------


@every_release
@pytest.mark.parametrize("rpc", RPCS)
def test_every_field_of_a_release_passes_through_our_messages_unharmed(release: Release, rpc: str) -> None:
    pairs: list[tuple[str, type[Message]]] = [
        (RPCS[rpc][0], SERVED[rpc].request),
        (RPCS[rpc][1], SERVED[rpc].response),
    ]
    for name, served in pairs:
        theirs = filled(release.new(name))
        ours = served.FromString(theirs.SerializeToString())
        assert_fully_known(ours)
        assert release.message_class(name).FromString(ours.SerializeToString()) == theirs


def test_the_calls_are_found_where_every_release_looks_for_them() -> None:
    service = "/clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider/"
    assert {rpc.path for rpc in SERVED.values()} == {service + name for name in RPCS}
    assert len(RPCS) == 15


# -- the calls -----------------------------------------------------------------------------------------------------


@every_release
async def test_node_groups_are_read(release: Release) -> None:
    assert await _client(release).node_groups() == [(g.id, g.min_size, g.max_size, g.debug) for g in GROUPS]


@every_release
async def test_a_nodes_group_is_read_with_its_limits(release: Release) -> None:
    """R16, R23: real nodes, nodes made up for an instance, and copies of the template."""
    client = _client(release)
    upcoming = NodeRef(name="template-node-for-lab-1-upcoming-0", labels={"pool": "lab"})
    for node in (NODE, FAKE, upcoming):
        assert await client.node_group_for_node(node) == ("lab", 0, 5)


@every_release
async def test_a_node_that_is_not_ours_has_no_group(release: Release) -> None:
    """R17."""
    assert await _client(release).node_group_for_node(NodeRef(name="control-plane")) is None


@every_release
async def test_the_target_size_is_read(release: Release) -> None:
    assert await _client(release).target_size("größe") == 3


@every_release
async def test_instances_are_read_with_their_states_and_errors(release: Release) -> None:
    """R32 to R35."""
    assert await _client(release).nodes("lab") == [
        GoInstance(id="lab://1", state=1),
        GoInstance(id="lab://2", state=2),
        GoInstance(id="lab://3", state=2, error=(1, "STOCKOUT", "none left")),
        GoInstance(id="lab://4", state=3),
        GoInstance(id="lab://5"),
    ]


@every_release
async def test_changes_arrive_as_they_were_sent(release: Release) -> None:
    provider = SmallProvider()
    client = _client(release, provider)
    await client.increase_size("lab", 2)
    await client.decrease_target_size("lab", -2)
    await client.delete_nodes("lab", [NODE, FAKE])
    assert provider.changes == [("increase", "lab", 2), ("decrease", "lab", -2), ("delete", "lab", (NODE, FAKE))]


@every_release
async def test_refresh_and_cleanup_arrive(release: Release) -> None:
    provider = SmallProvider()
    client = _client(release, provider)
    await client.refresh()
    await client.cleanup()
    assert provider.changes == ["refresh", "cleanup"]


@every_release
async def test_gpu_label_and_types_are_read(release: Release) -> None:
    client = _client(release)
    assert await client.gpu_label() == "example.com/gpu"
    assert await client.gpu_types() == {"a100", "t4"}


@every_release
async def test_a_provider_without_gpus_has_an_empty_label_and_not_an_error(release: Release) -> None:
    """R78."""
    client = _client(release, PlainProvider())
    assert await client.gpu_label() == ""
    assert await client.gpu_types() == set()


# -- template ------------------------------------------------------------------------------------------------------


@every_release
async def test_the_template_is_read_from_the_field_that_the_release_knows(release: Release) -> None:
    """R65, B5: field 1 up to 1.34.1, field 2 since 1.35; 1.34.2 takes either."""
    node = await _client(release).template("lab")
    assert dict(node.metadata.labels) == dict(TEMPLATE.labels)
    assert dict(node.metadata.annotations) == dict(TEMPLATE.annotations)
    assert [(t.key, t.value, t.effect) for t in node.spec.taints] == [("dedicated", "batch", "NoSchedule")]
    assert {name: q.string for name, q in node.status.capacity.items()} == {"cpu": "4", "memory": "8Gi", "pods": "110"}
    assert {name: q.string for name, q in node.status.allocatable.items()} == {
        "cpu": "3920m",
        "memory": "7.5Gi",
        "pods": "110",
    }
    assert not node.spec.unschedulable
    assert node.spec.providerID == ""


@every_release
async def test_an_empty_template_is_an_error_and_never_an_answer_without_a_node(release: Release) -> None:
    """R65: the answer without a node would crash the autoscaler of any release."""

    class Careless(SmallProvider):
        async def template(self, group: str) -> NodeTemplate:
            return NodeTemplate()

    with pytest.raises(InternalError, match="no resources"):
        await _client(release, Careless()).template("lab")


@every_release
async def test_absent_templates_and_prices_are_answered_with_code_12(release: Release) -> None:
    """R8: understood since 1.29; to older ones it is an error like any other, and there is no better answer."""
    client = _client(release, PlainProvider())
    expected = NotImplementedByServerError if release.since("1.29-32") else UnsupportedError
    with pytest.raises(expected):
        await client.template("lab")
    with pytest.raises(expected):
        await client.node_price(NODE, START, END)
    with pytest.raises(expected):
        await client.pod_price(Pod(name="p"), START, END)


# -- prices --------------------------------------------------------------------------------------------------------


@every_release
async def test_a_node_is_priced_for_the_period_that_was_sent(release: Release) -> None:
    provider = SmallProvider()
    assert await _client(release, provider).node_price(NODE, START, END) == 0.5
    assert provider.priced == [(NODE, _as_sent(release, START), _as_sent(release, END))]


@every_release
async def test_a_pod_is_priced_for_the_period_that_was_sent(release: Release) -> None:
    provider = SmallProvider()
    containers = (
        Container(name="a", requests={"cpu": Quantity("500m"), "memory": Quantity("500Mi")}),
        Container(name="b", requests={"cpu": Quantity("1.5")}),
    )
    pod = Pod(name="web-0", labels={"app": "web"}, containers=containers)
    assert await _client(release, provider).pod_price(pod, START, END) == 2.0
    assert provider.priced == [(pod, _as_sent(release, START), _as_sent(release, END))]
