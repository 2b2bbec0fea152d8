"""Nodes and pods are read and written under the field numbers of Kubernetes, and nothing in them is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Container, NodeCondition, NodeTemplate, Pod, Taint
from cloudgraft.wire.kubernetes import decode_node, decode_pod, encode_node, encode_pod
from tests.wire.raw_wire import at, field, mapping, message, text_map, texts


def _amounts(number: int, **amounts: str) -> bytes:
    return mapping(number, ((name, message((1, text))) for name, text in amounts.items()))


# A node as the autoscaler's world writes it, with fields that are none of ours at every depth.
NODE = message(
    (
        1,  # ObjectMeta
        message((1, "n-1"), (2, ""), (5, "uid-1"), (7, 42), (8, message((1, 1_700_000_000))))
        + mapping(11, [("pool", "lab"), ("zone", "a")])
        + mapping(12, [("note", "kept")])
        + message((17, message((1, "kubelet")))),  # managedFields
    ),
    (
        2,  # NodeSpec
        message((1, "10.0.0.0/24"), (3, "lab://n-1"), (4, 1))
        + message((5, message((1, "dedicated"), (2, "batch"), (3, "NoSchedule"), (4, message((1, 99))))))
        + message((5, message((1, "spot"), (2, ""), (3, "NoExecute")))),
    ),
    (
        3,  # NodeStatus
        _amounts(1, cpu="4", memory="8Gi")
        + _amounts(2, cpu="3920m", memory="7.5Gi", pods="110")
        + message((3, "phase"))
        + message((4, message((1, "Ready"), (2, "True"), (3, message((1, 7))), (5, "KubeletReady"), (6, "all well"))))
        + message((7, message((4, "kernel")))),
    ),
    (99, "from a later Kubernetes"),
)
TEMPLATE = NodeTemplate(
    name="n-1",
    labels={"pool": "lab", "zone": "a"},
    annotations={"note": "kept"},
    taints=(Taint(key="dedicated", value="batch"), Taint(key="spot", effect="NoExecute")),
    capacity={"cpu": Quantity("4"), "memory": Quantity("8Gi")},
    allocatable={"cpu": Quantity("3920m"), "memory": Quantity("7.5Gi"), "pods": Quantity("110")},
    conditions=(NodeCondition(type="Ready", status="True", reason="KubeletReady", message="all well"),),
    provider_id="lab://n-1",
    unschedulable=True,
)

POD = message(
    (1, message((1, "web-0"), (3, "shop"), (6, "")) + mapping(11, [("app", "web")]) + mapping(12, [("a", "b")])),
    (
        2,  # PodSpec
        message((1, message((1, "volume"))))
        + message(
            (
                2,
                message((1, "main"), (2, "image:1"), (8, _amounts(1, cpu="2") + _amounts(2, cpu="500m", memory="1Gi"))),
            )
        )
        + message((3, "Always"))
        + mapping(7, [("disk", "ssd")])
        + message((20, message((1, "proxy"), (2, "image:2"), (8, _amounts(2, cpu="100m")), (24, "Always"))))
        + _amounts(32, memory="120Mi"),
    ),
    (3, message((1, "Pending"))),
)
PRICED = Pod(
    name="web-0",
    namespace="shop",
    labels={"app": "web"},
    annotations={"a": "b"},
    node_selector={"disk": "ssd"},
    containers=(
        Container(
            name="main",
            requests={"cpu": Quantity("500m"), "memory": Quantity("1Gi")},
            limits={"cpu": Quantity(2)},
        ),
    ),
    init_containers=(Container(name="proxy", requests={"cpu": Quantity("100m")}, restart_policy="Always"),),
    overhead={"memory": Quantity("120Mi")},
)


# -- reading and writing -------------------------------------------------------------------------------------------


def test_a_node_is_read_from_the_field_numbers_of_kubernetes() -> None:
    assert decode_node(NODE) == TEMPLATE


def test_a_pod_is_read_from_the_field_numbers_of_kubernetes() -> None:
    assert decode_pod(POD) == PRICED


def test_a_node_is_written_under_the_field_numbers_of_kubernetes() -> None:
    data = encode_node(TEMPLATE)
    assert texts(data, 1, 1) == ["n-1"]
    assert text_map(data, 1, 11) == {"pool": "lab", "zone": "a"}
    assert text_map(data, 1, 12) == {"note": "kept"}
    assert texts(data, 2, 3) == ["lab://n-1"]
    assert at(data, 2, 4) == [1]
    assert at(data, 2, 5) == [
        message((1, "dedicated"), (2, "batch"), (3, "NoSchedule")),
        message((1, "spot"), (3, "NoExecute")),
    ]
    assert text_map(data, 3, 1, value_path=(2, 1)) == {"cpu": "4", "memory": "8Gi"}
    assert text_map(data, 3, 2, value_path=(2, 1)) == {"cpu": "3920m", "memory": "7.5Gi", "pods": "110"}
    assert at(data, 3, 4) == [message((1, "Ready"), (2, "True"), (5, "KubeletReady"), (6, "all well"))]


def test_a_pod_is_written_under_the_field_numbers_of_kubernetes() -> None:
    data = encode_pod(PRICED)
    assert texts(data, 1, 1) == ["web-0"]
    assert texts(data, 1, 3) == ["shop"]
    assert text_map(data, 2, 7) == {"disk": "ssd"}
    assert texts(data, 2, 2, 1) == ["main"]
    assert text_map(data, 2, 2, 8, 1, value_path=(2, 1)) == {"cpu": "2"}
    assert text_map(data, 2, 2, 8, 2, value_path=(2, 1)) == {"cpu": "500m", "memory": "1Gi"}
    assert texts(data, 2, 20, 1) == ["proxy"]
    assert texts(data, 2, 20, 24) == ["Always"]
    assert text_map(data, 2, 32, value_path=(2, 1)) == {"memory": "120Mi"}


def test_quantities_are_written_as_their_author_wrote_them() -> None:
    data = encode_node(
        NodeTemplate(capacity={"cpu": Quantity("1000m"), "memory": Quantity("1024Mi"), "pods": Quantity(110)})
    )
    assert text_map(data, 3, 1, value_path=(2, 1)) == {"cpu": "1000m", "memory": "1024Mi", "pods": "110"}


def test_an_empty_template_is_not_the_same_as_no_node() -> None:
    """R65: zero bytes in the answer crash the autoscaler."""
    assert encode_node(NodeTemplate()) == message((1, b""), (2, b""), (3, b""))
    assert decode_node(encode_node(NodeTemplate())) == NodeTemplate()
    assert decode_pod(encode_pod(Pod())) == Pod()


def test_a_quantity_without_a_text_is_zero_as_it_is_to_kubernetes() -> None:
    data = message((3, mapping(1, [("cpu", b"")])))
    assert decode_node(data).capacity == {"cpu": Quantity(0)}
    assert at(encode_node(decode_node(data)), 3) == [mapping(1, [("cpu", b"")])]


# -- what we do not know survives ----------------------------------------------------------------------------------


def _assert_foreign_fields_of_node(data: bytes) -> None:
    assert texts(data, 99) == ["from a later Kubernetes"]
    assert texts(data, 1, 5) == ["uid-1"]
    assert at(data, 1, 7) == [42]
    assert at(data, 1, 8) == [message((1, 1_700_000_000))]
    assert at(data, 1, 17) == [message((1, "kubelet"))]
    assert texts(data, 2, 1) == ["10.0.0.0/24"]
    assert texts(data, 3, 3) == ["phase"]
    assert at(data, 3, 7) == [message((4, "kernel"))]


def test_fields_we_do_not_know_survive_an_echo() -> None:
    data = encode_node(decode_node(NODE))
    _assert_foreign_fields_of_node(data)
    assert at(data, 2, 5, 4) == [message((1, 99))]
    assert at(data, 3, 4, 3) == [message((1, 7))]
    pod = encode_pod(decode_pod(POD))
    assert at(pod, 2, 1) == [message((1, "volume"))]
    assert texts(pod, 2, 2, 2) == ["image:1"]
    assert texts(pod, 2, 20, 2) == ["image:2"]
    assert texts(pod, 3, 1) == ["Pending"]


def test_an_echo_keeps_fields_that_are_present_and_empty() -> None:
    data = encode_node(decode_node(NODE))
    assert texts(data, 1, 2) == [""]
    assert texts(data, 2, 5, 2) == ["batch", ""]


def test_what_the_author_changed_wins_and_the_rest_survives() -> None:
    changed = replace(
        decode_node(NODE),
        name="",
        labels={"pool": "other"},
        provider_id="lab://n-2",
        unschedulable=False,
        taints=(Taint(key="new"), Taint(key="dedicated", value="web")),
        capacity={"cpu": Quantity("8"), "gpu": Quantity(1)},
        conditions=(NodeCondition(type="Ready", status="False"),),
    )
    data = encode_node(changed)
    assert decode_node(data) == changed
    _assert_foreign_fields_of_node(data)
    assert at(data, 1, 1) == []
    assert at(data, 2, 4) == []
    assert at(data, 2, 5)[1] == message((1, "dedicated"), (2, "web"), (3, "NoSchedule"), (4, message((1, 99))))
    assert at(data, 3, 4) == [message((1, "Ready"), (2, "False"), (3, message((1, 7))))]


def test_a_container_keeps_what_we_do_not_know_when_its_requests_change_or_it_moves() -> None:
    pod = decode_pod(POD)
    main = replace(pod.containers[0], requests={"cpu": Quantity(1)}, limits={})
    changed = replace(pod, containers=(Container(name="first"), main), init_containers=())
    data = encode_pod(changed)
    assert decode_pod(data) == changed
    assert texts(data, 2, 2, 2) == ["image:1"]
    assert at(data, 2, 20) == []


def test_two_containers_of_one_name_are_two_containers() -> None:
    twice = message((2, message((2, message((1, "x"), (2, "a"))), (2, message((1, "x"), (2, "b"))))))
    assert at(encode_pod(decode_pod(twice)), 2, 2) == [message((1, "x"), (2, "a")), message((1, "x"), (2, "b"))]


# -- bad input -----------------------------------------------------------------------------------------------------

Decode = Callable[[bytes], object]
both = pytest.mark.parametrize(("kind", "decode"), [("node", decode_node), ("pod", decode_pod)])


@both
def test_no_bytes_are_refused(kind: str, decode: Decode) -> None:
    """R65."""
    with pytest.raises(InvalidArgumentError, match=f"there is no {kind}: its bytes are empty"):
        decode(b"")


@both
def test_the_prefix_of_stored_objects_is_refused_by_name(kind: str, decode: Decode) -> None:
    """R65."""
    with pytest.raises(InvalidArgumentError, match=r"prefix 'k8s\\0'"):
        decode(b"k8s\x00" + NODE)


@both
@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05ab", b"hello world", field(1, 5)[:1], b"\x0a\x02\xff\xff"])
def test_bytes_that_are_no_message_are_refused(kind: str, decode: Decode, data: bytes) -> None:
    with pytest.raises(InvalidArgumentError, match=f"the bytes are not a Kubernetes {kind}"):
        decode(data)


@pytest.mark.parametrize("text", ["", "abc", "1ki", "1 ", "4GB"])
@pytest.mark.parametrize(
    ("decode", "path", "where"),
    [
        (decode_node, (3, 1), "capacity"),
        (decode_node, (3, 2), "allocatable"),
        (decode_pod, (2, 32), "overhead"),
        (decode_pod, (2, 2, 8, 1), "limits of container ''"),
        (decode_pod, (2, 20, 8, 2), "requests of container ''"),
    ],
)
def test_a_bad_quantity_is_refused_and_named(decode: Decode, path: tuple[int, ...], where: str, text: str) -> None:
    data = _amounts(path[-1], cpu=text)
    for number in reversed(path[:-1]):
        data = field(number, data)
    with pytest.raises(InvalidArgumentError) as caught:
        decode(data)
    assert str(caught.value).startswith(f"{where}, 'cpu': {text!r} is not a quantity")


@pytest.mark.parametrize(
    "data",
    [
        message((1, message((1, b"\xff")))),
        message((1, mapping(11, [("a", b"\xff")]))),
        message((1, message((11, message((1, b"\xff"), (2, "x")))))),
        message((3, mapping(1, [("cpu", message((1, b"\xff")))]))),
    ],
)
def test_text_that_is_not_utf8_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidArgumentError, match="not UTF-8"):
        decode_node(data)


def test_a_plain_text_or_number_as_a_quantity_is_checked_like_one() -> None:
    """An author without a type checker finds out here, not in the autoscaler's log."""
    good = NodeTemplate(capacity={"cpu": "4", "pods": 110})  # type: ignore[dict-item]
    assert decode_node(encode_node(good)).capacity == {"cpu": Quantity(4), "pods": Quantity(110)}
    bad = NodeTemplate(capacity={"cpu": "4 cores"})  # type: ignore[dict-item]
    with pytest.raises(InvalidArgumentError, match="capacity, 'cpu': '4 cores' is not a quantity"):
        encode_node(bad)


@pytest.mark.parametrize(
    "template",
    [
        NodeTemplate(labels={"a": 1}),  # type: ignore[dict-item]
        NodeTemplate(labels={"a": "\ud800"}),
        NodeTemplate(name=5),  # type: ignore[arg-type]
        NodeTemplate(taints=(Taint(key=None),)),  # type: ignore[arg-type]
        NodeTemplate(unschedulable="yes"),  # type: ignore[arg-type]
    ],
)
def test_a_template_that_cannot_be_written_is_refused(template: NodeTemplate) -> None:
    with pytest.raises(InvalidArgumentError, match="the node cannot be written"):
        encode_node(template)
