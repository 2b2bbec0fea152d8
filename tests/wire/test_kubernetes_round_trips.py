"""Whatever a node or pod holds survives the wire, and whatever bytes arrive are read or refused."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Container, NodeCondition, NodeTemplate, Pod, Taint
from cloudgraft.wire.kubernetes import decode_node, decode_pod, encode_node, encode_pod
from tests.wire.raw_wire import at, field, texts

repeatable = settings(
    derandomize=True, max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)

words = st.text(st.characters(codec="utf-8"), max_size=8)
string_maps = st.dictionaries(words, words, max_size=4)
amounts = st.dictionaries(
    words,
    st.tuples(st.integers(-(10**6), 10**6), st.sampled_from(["", "m", "n", "k", "Gi", "Ei", ".5", "e3", "E-4"])).map(
        lambda parts: Quantity(f"{parts[0]}{parts[1]}")
    ),
    max_size=4,
)
nodes = st.builds(
    NodeTemplate,
    name=words,
    labels=string_maps,
    annotations=string_maps,
    taints=st.lists(st.builds(Taint, key=words, value=words, effect=words), max_size=3).map(tuple),
    capacity=amounts,
    allocatable=amounts,
    conditions=st.lists(
        st.builds(NodeCondition, type=words, status=words, reason=words, message=words), max_size=3
    ).map(tuple),
    provider_id=words,
    unschedulable=st.booleans(),
)
container_lists = st.lists(
    st.builds(Container, name=words, requests=amounts, limits=amounts, restart_policy=words), max_size=3
).map(tuple)
pods = st.builds(
    Pod,
    name=words,
    namespace=words,
    labels=string_maps,
    annotations=string_maps,
    node_selector=string_maps,
    containers=container_lists,
    init_containers=container_lists,
    overhead=amounts,
)


def _texts_of(amounts: dict[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


@repeatable
@given(node=nodes)
def test_every_node_survives_a_round_trip(node: NodeTemplate) -> None:
    data = encode_node(node)
    back = decode_node(data)
    assert back == node
    assert _texts_of(dict(back.capacity)) == _texts_of(dict(node.capacity))
    assert encode_node(back) == data


@repeatable
@given(pod=pods)
def test_every_pod_survives_a_round_trip(pod: Pod) -> None:
    data = encode_pod(pod)
    assert decode_pod(data) == pod
    assert encode_pod(decode_pod(data)) == data


@repeatable
@given(before=nodes, after=nodes)
def test_any_change_of_a_decoded_node_is_written_and_keeps_foreign_fields(
    before: NodeTemplate, after: NodeTemplate
) -> None:
    received = decode_node(encode_node(before) + field(1, field(17, "mine")) + field(2, field(1, "net")) + field(99, 7))
    data = encode_node(replace(after, source=received.source))
    assert decode_node(data) == after
    assert (texts(data, 1, 17), texts(data, 2, 1), at(data, 99)) == (["mine"], ["net"], [7])


@repeatable
@given(node=nodes, data=st.data())
def test_the_bytes_do_not_depend_on_the_order_of_keys(node: NodeTemplate, data: st.DataObject) -> None:
    shuffled = replace(
        node,
        labels=dict(data.draw(st.permutations(list(node.labels.items())))),
        capacity=dict(data.draw(st.permutations(list(node.capacity.items())))),
    )
    assert encode_node(shuffled) == encode_node(node)


# -- any bytes -----------------------------------------------------------------------------------------------------

WHOLE = encode_node(
    NodeTemplate(
        name="n-1",
        labels={"pool": "lab"},
        taints=(Taint(key="dedicated", value="batch"),),
        capacity={"cpu": Quantity("3920m"), "memory": Quantity("7.5Gi")},
        conditions=(NodeCondition(type="Ready", status="True"),),
        provider_id="lab://n-1",
    )
)


def _check_node(data: bytes) -> None:
    try:
        node = decode_node(data)
    except InvalidArgumentError:
        return
    assert decode_node(encode_node(node)) == node


def _check_pod(data: bytes) -> None:
    try:
        pod = decode_pod(data)
    except InvalidArgumentError:
        return
    assert decode_pod(encode_pod(pod)) == pod


@repeatable
@given(data=st.binary(max_size=60))
def test_any_bytes_are_either_read_or_refused(data: bytes) -> None:
    _check_node(data)
    _check_pod(data)


@repeatable
@given(position=st.integers(0, len(WHOLE) - 1), byte=st.integers(0, 255))
def test_a_damaged_node_is_either_read_or_refused(position: int, byte: int) -> None:
    damaged = WHOLE[:position] + bytes([byte]) + WHOLE[position + 1 :]
    _check_node(damaged)
