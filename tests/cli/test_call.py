"""`cloudgraft call`: all 15 calls against a real server, for people and for programs."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

import grpc
import pytest
import yaml
from click.testing import CliRunner, Result
from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from cloudgraft.certs.issue import Validity, client_pair, new_authority, server_pair
from cloudgraft.cli.call import command
from cloudgraft.cli.call_messages import CATALOGUE
from cloudgraft.sdk import NodeCondition, NodeTemplate, Quantity, Taint
from cloudgraft.sdk.errors import UnavailableError
from cloudgraft.testing import MemoryOptions, MemoryProvider
from cloudgraft.testing.harness import serving
from cloudgraft.wire.externalgrpc import RPCS, options_from_pb, pod_from_pb, template_to_pb
from cloudgraft.wire.kubernetes import encode_node
from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from tests.client.counting import Answer, CountingServer, StatusError

_TEMPLATE = NodeTemplate(
    labels={"pool": "a"},
    annotations={"note": "x"},
    taints=(Taint(key="dedicated", value="batch"), Taint(key="bare", effect="NoExecute")),
    capacity={"memory": Quantity("8Gi"), "cpu": Quantity("4")},
    allocatable={"cpu": Quantity("3900m")},
    conditions=(NodeCondition(type="Ready", status="True"),),
    provider_id="sim://x",
)
_MANIFEST = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"labels": {"pool": "a"}, "annotations": {"note": "x"}},
    "spec": {
        "providerID": "sim://x",
        "taints": [
            {"key": "dedicated", "value": "batch", "effect": "NoSchedule"},
            {"key": "bare", "effect": "NoExecute"},
        ],
    },
    "status": {
        "capacity": {"cpu": "4", "memory": "8Gi"},
        "allocatable": {"cpu": "3900m"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


@pytest.fixture
def server() -> Iterator[CountingServer]:
    with CountingServer() as running:
        yield running


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(command, arguments, input=stdin)


def call(server: CountingServer, name: str, data: object = None, *options: str) -> Result:
    given = [] if data is None else ["--data", json.dumps(data)]
    result = run(name, "--address", server.address, *given, *options)
    assert result.exit_code == 0, result.output
    return result


def answer(server: CountingServer, name: str, data: object = None) -> object:
    return json.loads(call(server, name, data, "-o", "json").stdout)


def rows(result: Result) -> list[list[str]]:
    """The cells of a table, without its heading and rule."""
    lines = [line.split("  ") for line in result.stdout.splitlines() if line.strip() and "──" not in line]
    return [[cell.strip() for cell in line if cell.strip()] for line in lines][1:]


# -- the 15 calls ------------------------------------------------------------------------------------------------------


def test_every_call_of_the_protocol_is_in_the_list() -> None:
    assert list(CATALOGUE) == list(RPCS)


@pytest.mark.parametrize("name", RPCS)
@pytest.mark.parametrize("output", ["table", "json"])
def test_every_call_works_with_the_example_of_its_help_in_any_case(
    server: CountingServer, name: str, output: str
) -> None:
    call(server, name.lower(), CATALOGUE[name].example, "-o", output)
    assert server.calls == {name: 1}


@pytest.mark.parametrize("arguments", [["--list"], [], ["NodeGroups", "--list"]])
def test_without_a_call_all_calls_are_shown_with_examples(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 0
    for name in RPCS:
        assert f"cloudgraft call {name}" in result.stdout


def test_the_list_is_there_for_programs_too() -> None:
    calls = json.loads(run("--list", "-o", "json").stdout)
    assert [each["name"] for each in calls] == list(RPCS)
    assert all(each["meaning"] for each in calls)


def test_the_help_has_examples() -> None:
    assert "cloudgraft call NodeGroups --address 127.0.0.1:8086" in run("--help").stdout


# -- answers -----------------------------------------------------------------------------------------------------------


def test_groups_are_a_table_for_people_and_protobuf_json_for_programs(server: CountingServer) -> None:
    server.answers["NodeGroups"] = pb.NodeGroupsResponse(
        nodeGroups=[pb.NodeGroup(id="a", maxSize=5, debug="x"), pb.NodeGroup(id="b" * 150, minSize=1, maxSize=2)]
    )
    assert rows(call(server, "NodeGroups")) == [["a", "0", "5", "x"], ["b" * 150, "1", "2"]]  # nothing is cut off
    assert answer(server, "NodeGroups") == {
        "nodeGroups": [
            {"id": "a", "minSize": 0, "maxSize": 5, "debug": "x"},
            {"id": "b" * 150, "minSize": 1, "maxSize": 2, "debug": ""},
        ]
    }


def test_a_node_has_a_group_or_none(server: CountingServer) -> None:
    data = {"node": {"name": "n"}}
    assert call(server, "NodeGroupForNode", data).stdout == "no group manages this node\n"
    server.answers["NodeGroupForNode"] = pb.NodeGroupForNodeResponse(nodeGroup=pb.NodeGroup(id="a", maxSize=5))
    assert rows(call(server, "NodeGroupForNode", data)) == [["a", "0", "5"]]


def test_instances_are_shown_with_state_and_error(server: CountingServer) -> None:
    failed = pb.InstanceErrorInfo(errorCode="stockout", errorMessage="none left", instanceErrorClass=1)
    strange = pb.InstanceErrorInfo(errorCode="x", errorMessage="y", instanceErrorClass=7)
    server.answers["NodeGroupNodes"] = pb.NodeGroupNodesResponse(
        instances=[
            pb.Instance(id="1", status=pb.InstanceStatus(instanceState=pb.InstanceStatus.instanceRunning)),
            pb.Instance(
                id="2", status=pb.InstanceStatus(instanceState=pb.InstanceStatus.instanceCreating, errorInfo=failed)
            ),
            pb.Instance(id="3", status=pb.InstanceStatus(errorInfo=strange)),
        ]
    )
    assert rows(call(server, "NodeGroupNodes", {"id": "a"})) == [
        ["1", "running"],
        ["2", "creating", "stockout", "out of resources", "none left"],
        ["3", "unspecified", "x", "7", "y"],
    ]


def test_a_template_is_shown_as_the_yaml_of_its_node_and_decoded_in_json(server: CountingServer) -> None:
    server.answers["NodeGroupTemplateNodeInfo"] = template_to_pb(_TEMPLATE)
    result = call(server, "NodeGroupTemplateNodeInfo", {"id": "a"})
    assert yaml.safe_load(result.stdout) == _MANIFEST
    assert result.stderr == ""
    encoded = base64.b64encode(encode_node(_TEMPLATE)).decode()
    assert answer(server, "NodeGroupTemplateNodeInfo", {"id": "a"}) == {
        "nodeInfo": encoded,
        "nodeBytes": encoded,
        "node": _MANIFEST,
    }


_NODE = encode_node(_TEMPLATE)


@pytest.mark.parametrize(
    ("message", "note"),
    [
        (pb.NodeGroupTemplateNodeInfoResponse(), "no node: the autoscaler crashes"),
        (pb.NodeGroupTemplateNodeInfoResponse(nodeInfo=_NODE), "autoscalers from 1.35 on see no node"),
        (pb.NodeGroupTemplateNodeInfoResponse(nodeBytes=_NODE), "autoscalers up to 1.34.1 see no node"),
        (
            pb.NodeGroupTemplateNodeInfoResponse(nodeInfo=encode_node(NodeTemplate(name="other")), nodeBytes=_NODE),
            "see different nodes",
        ),
    ],
)
def test_a_template_that_some_releases_cannot_read_is_told_beside_the_answer(
    server: CountingServer, message: Message, note: str
) -> None:
    """R65; docs/explanation/releases.md has the fields that each release reads."""
    server.answers["NodeGroupTemplateNodeInfo"] = message
    for output in ("table", "json"):
        assert note in call(server, "NodeGroupTemplateNodeInfo", {"id": "a"}, "-o", output).stderr


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_template_that_cannot_be_read_is_an_error(server: CountingServer, output: str) -> None:
    server.answers["NodeGroupTemplateNodeInfo"] = pb.NodeGroupTemplateNodeInfoResponse(nodeBytes=b"\xff\xff")
    result = run("NodeGroupTemplateNodeInfo", "--address", server.address, "-o", output)
    assert result.exit_code == 1
    assert "answered something that cannot be read" in result.stderr


def test_options_are_a_table_with_durations_as_go_writes_them(server: CountingServer) -> None:
    data = {"id": "a"}
    assert "the autoscaler's flags hold" in call(server, "NodeGroupGetOptions", data).stdout
    server.answers["NodeGroupGetOptions"] = pb.NodeGroupAutoscalingOptionsResponse(
        nodeGroupAutoscalingOptions=pb.NodeGroupAutoscalingOptions(
            scaleDownUtilizationThreshold=0.5,
            scaleDownUnneededTime=pb.NanosecondDuration(nanoseconds=90_000_000_000),
            zeroOrMaxNodeScaling=True,
        )
    )
    shown = dict(rows(call(server, "NodeGroupGetOptions", data)))
    assert shown["scale-down-utilization-threshold"] == "0.5"
    assert shown["scale-down-unneeded-time"] == "1m30s"
    assert shown["scale-down-unready-time"] == "-"
    assert shown["zero-or-max-node-scaling"] == "true"


def test_single_values_and_empty_answers_are_shown(server: CountingServer) -> None:
    server.answers["NodeGroupTargetSize"] = pb.NodeGroupTargetSizeResponse(targetSize=3)
    server.answers["PricingNodePrice"] = pb.PricingNodePriceResponse(price=1.25)
    server.answers["GetAvailableGPUTypes"] = pb.GetAvailableGPUTypesResponse(
        gpuTypes={"t4": Any(), "a100": Any(type_url="type.example.com/not.known.Here", value=b"x")}
    )
    assert rows(call(server, "NodeGroupTargetSize", {"id": "a"})) == [["3"]]
    assert rows(call(server, "PricingNodePrice", {"node": {"name": "n"}})) == [["1.25"]]
    assert rows(call(server, "GetAvailableGPUTypes")) == [["a100"], ["t4"]]
    assert rows(call(server, "GPULabel")) == [["(empty: there are no GPUs)"]]
    assert call(server, "Refresh").stdout == "OK\n"
    assert answer(server, "Refresh") == {}
    assert answer(server, "GetAvailableGPUTypes") == {"gpuTypes": {"a100": {}, "t4": {}}}
    server.answers["NodeGroupTargetSize"] = pb.NodeGroupTargetSizeResponse(targetSize=0)
    assert answer(server, "NodeGroupTargetSize", {"id": "a"}) == {"targetSize": 0}  # zero is an answer


def test_a_server_cannot_play_with_the_terminal(server: CountingServer) -> None:
    server.answers["NodeGroups"] = pb.NodeGroupsResponse(
        nodeGroups=[pb.NodeGroup(id="[bold]a[/bold]", debug="\x1b[31mred\x9b0m\r\n")]
    )
    server.answers["Refresh"] = StatusError(grpc.StatusCode.INTERNAL, "\x1b]0;title\x07")
    shown = call(server, "NodeGroups").stdout
    assert "[bold]a[/bold]" in shown
    assert "\\x1b[31mred\\x9b0m\\r\\n" in shown
    failed = run("Refresh", "--address", server.address)
    assert "\x1b" not in failed.stderr
    assert "\\x1b]0;title\\x07" in failed.stderr


# -- requests ----------------------------------------------------------------------------------------------------------


def test_data_comes_from_the_option_a_file_or_standard_input(server: CountingServer, tmp_path: Path) -> None:
    file = tmp_path / "data.json"
    file.write_text('{"id": "from-file"}')
    where = ("--address", server.address)
    run("NodeGroupTargetSize", *where, "--data", '{"id": "given"}')
    run("NodeGroupTargetSize", *where, "--data", f"@{file}")
    run("NodeGroupTargetSize", *where, "--data", "-", stdin='{"id": "piped"}')
    assert [request.id for _, request in server.requests] == ["given", "from-file", "piped"]  # type: ignore[attr-defined]  # all of that call


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("NodeGroupTargetSize", '{"idd": "a"}', "no field 'idd' in NodeGroupTargetSizeRequest: did you mean 'id'?"),
        ("NodeGroupTargetSize", '{"zzz": 1}', "there is no field 'zzz' in NodeGroupTargetSizeRequest: it has id."),
        ("NodeGroups", '{"id": 1}', "it has no fields at all"),
        ("NodeGroupForNode", '{"node": {"providerId": "x"}}', "did you mean 'providerID'?"),
        ("NodeGroupDeleteNodes", '{"nodes": [{}, {"nam": 1}]}', "no field 'nam' in ExternalGrpcNode"),
        ("NodeGroupTargetSize", '{"id": 5}', "does not fit NodeGroupTargetSizeRequest"),
        ("NodeGroupIncreaseSize", '{"delta": 99999999999}', "does not fit NodeGroupIncreaseSizeRequest"),
        ("NodeGroupTargetSize", "{", "not valid JSON"),
        ("NodeGroupTargetSize", '["a"]', "must be a JSON object"),
        ("NodeGroupTargetSize", "@/no/such/file", "cannot read /no/such/file"),
        ("PricingPodPrice", '{"pod": {"spec": {"overhead": {"cpu": "x"}}}}', "not a quantity"),
        ("PricingPodPrice", '{"pod": {"spec": []}}', "not a Kubernetes pod"),
        ("PricingPodPrice", '{"pod": {"metadata": {"labels": {"a": 1}}}}', "cannot be written"),
    ],
)
def test_a_request_that_makes_no_sense_is_a_usage_error_with_reason_and_example(
    server: CountingServer, name: str, data: str, reason: str
) -> None:
    result = run(name, "--address", server.address, "--data", data)
    assert result.exit_code == 2
    assert reason in result.stderr
    assert f"cloudgraft call {name}" in result.stderr
    assert not server.calls


def test_a_pod_may_be_a_manifest_and_goes_into_the_fields_of_old_and_new_releases(server: CountingServer) -> None:
    manifest = {
        "metadata": {"name": "p", "namespace": "ns", "labels": {"a": "b"}},
        "spec": {
            "nodeSelector": {"c": "d"},
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}, "limits": {"memory": 5}}}],
            "initContainers": [{"name": "i", "restartPolicy": "Always"}],
            "overhead": {"cpu": "1"},
        },
    }
    call(server, "PricingPodPrice", {"pod": manifest})
    request = server.last_request("PricingPodPrice")
    pod = pod_from_pb(request)
    assert request.pod == request.pod_bytes
    assert (pod.name, pod.namespace, pod.labels, pod.node_selector) == ("p", "ns", {"a": "b"}, {"c": "d"})
    assert pod.containers[0].requests == {"cpu": Quantity("500m")}
    assert pod.containers[0].limits == {"memory": Quantity(5)}
    assert pod.init_containers[0].restart_policy == "Always"
    assert pod.overhead == {"cpu": Quantity(1)}


@pytest.mark.parametrize("field", ["pod", "pod_bytes", "podBytes"])
def test_a_pod_may_be_the_bytes_of_either_release(server: CountingServer, field: str) -> None:
    call(server, "PricingPodPrice", {field: base64.b64encode(b"\x0a\x03\x0a\x01p").decode()})
    request = server.last_request("PricingPodPrice")
    assert request.pod == request.pod_bytes == b"\x0a\x03\x0a\x01p"


@pytest.mark.parametrize("name", ["PricingNodePrice", "PricingPodPrice"])
def test_a_price_is_for_the_next_hour_unless_said_and_in_the_fields_of_old_and_new_releases(
    server: CountingServer, name: str
) -> None:
    """R82."""
    call(server, name, {})
    request = server.last_request(name)
    assert request.startTime == request.startTimestamp
    assert request.endTime.seconds - request.startTime.seconds == 3600
    call(server, name, {"startTime": "2026-01-01T00:00:00Z", "endTimestamp": "2026-01-01T02:00:00Z"})
    request = server.last_request(name)
    start, end = Timestamp(), Timestamp()
    start.FromJsonString("2026-01-01T00:00:00Z")
    end.FromJsonString("2026-01-01T02:00:00Z")
    assert (request.startTime, request.startTimestamp, request.endTime, request.endTimestamp) == (
        start,
        start,
        end,
        end,
    )


def test_options_are_asked_for_with_the_autoscalers_flag_defaults_in_both_encodings(server: CountingServer) -> None:
    """B4: a server of an old release would crash on a request without them."""
    call(server, "NodeGroupGetOptions", {"id": "a"})
    defaults = server.last_request("NodeGroupGetOptions").defaults
    assert defaults.scaleDownUtilizationThreshold == 0.5
    assert (
        defaults.scaleDownUnneededTime.nanoseconds == defaults.scaleDownUnneededDuration.seconds * 10**9 == 600 * 10**9
    )
    call(server, "NodeGroupGetOptions", {"id": "a", "defaults": {"scaleDownUnreadyDuration": "60s"}})
    given = options_from_pb(server.last_request("NodeGroupGetOptions").defaults)
    assert given.scale_down_unready_time == timedelta(minutes=1)
    assert given.max_node_provision_time == timedelta(minutes=15)


# -- where the server is -----------------------------------------------------------------------------------------------


def test_the_server_is_named_by_address_cloud_config_or_url(server: CountingServer, tmp_path: Path) -> None:
    file = tmp_path / "cloud-config.yaml"
    file.write_text(f"address: {server.address}\n")
    for where in (
        ["--address", server.address],
        ["--cloud-config", str(file)],
        ["--url", f"http://{server.address}"],
    ):
        assert run("Refresh", *where).exit_code == 0
    assert server.calls["Refresh"] == 3


def test_a_path_in_the_url_is_told_to_be_ignored(server: CountingServer) -> None:
    result = run("Refresh", "--url", f"http://{server.address}/mycloudprovider/server")
    assert (result.exit_code, result.stdout) == (0, "OK\n")
    assert "the path /mycloudprovider/server of the URL is ignored" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["NodeGroups"], "there is no cloudgraft.yaml in this directory"),
        (["NodeGroups", "--address", "x:1", "--url", "http://x"], "exclude each other: use one of them"),
        (["NodeGroups", "--cloud-config", "x", "--cert", "c"], "do not go with --cloud-config"),
        (["NodeGroups", "--address", "x:1", "--key", "k"], "--key needs --cert"),
        (["NodeGrups", "--address", "x:1"], "did you mean NodeGroups?"),
        (["refrsh", "--address", "x:1"], "did you mean Refresh?"),
        (["xyzzy", "--address", "x:1"], "`cloudgraft call --list` shows all 15"),
        (["NodeGroups", "--address", "x:1", "--timeout", "5"], "missing unit"),
        (["NodeGroups", "--address", "x:1", "--timeout", "0s"], "longer than 0s"),
        (["NodeGroups", "--address", "x:1", "-o", "xml"], "xml"),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(arguments: list[str], reason: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert reason in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--address", "host"], "the port is missing"),
        (["--url", "host:1"], "write it as https://host:port"),
        (["--cloud-config", "/no/such/file"], "cannot read the cloud-config /no/such/file"),
        (
            ["--address", "x:1", "--cert", "/no/c", "--key", "/no/k", "--cacert", "/no/ca"],
            "does not exist",
        ),
        (["--address", "x:1", "--cert", "/no/c", "--key", "/no/k"], "cacert is not"),
    ],
)
def test_a_server_that_cannot_be_addressed_is_an_error_without_a_traceback(arguments: list[str], reason: str) -> None:
    result = run("NodeGroups", *arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert reason in result.stderr


def test_mtls_works_with_three_files_and_its_failures_give_a_hint(tmp_path: Path) -> None:
    day, authority = Validity.days(1), new_authority(Validity.days(1))
    pair = server_pair(authority, [ip_address("127.0.0.1")], day)
    client = client_pair(authority, "autoscaler", day)
    files = {"key": client.key_pem, "cert": client.certificate_pem, "cacert": authority.certificate_pem}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    credentials = grpc.ssl_server_credentials(
        [(pair.key_pem, pair.certificate_pem)], authority.certificate_pem, require_client_auth=True
    )
    options = {name: [f"--{name}", str(tmp_path / name)] for name in files}
    with CountingServer(credentials=credentials) as server:
        where = ["Refresh", "--address", server.address, "--timeout", "30s"]
        assert run(*where, *options["key"], *options["cert"], *options["cacert"]).exit_code == 0
        without = run(*where)
        assert (without.exit_code, "If it speaks TLS, give --cert" in without.stderr) == (1, True)
        no_client = run(*where, *options["cacert"])  # TLS, but without a client certificate
        assert no_client.exit_code == 1
        assert "does it accept this client's certificate?" in no_client.stderr
        assert server.calls["Refresh"] == 1


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (grpc.StatusCode.NOT_FOUND, "`cloudgraft call NodeGroups` shows the ids"),
        (grpc.StatusCode.UNAVAILABLE, "is the server running"),
        (grpc.StatusCode.INVALID_ARGUMENT, "look at --data"),
        (grpc.StatusCode.UNIMPLEMENTED, "the provider cannot do this"),
        (grpc.StatusCode.PERMISSION_DENIED, "allowedClients"),
        (grpc.StatusCode.UNAUTHENTICATED, "--cert and --key"),
        (grpc.StatusCode.INTERNAL, "its log has the rest"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "--timeout"),
        (grpc.StatusCode.CANCELLED, ""),
    ],
)
def test_a_failed_call_is_told_by_code_message_and_hint_and_exit_code_1(
    server: CountingServer, code: grpc.StatusCode, hint: str
) -> None:
    server.answers["NodeGroupTargetSize"] = StatusError(code, "the server's own words")
    result = run("NodeGroupTargetSize", "--address", server.address)
    assert result.exit_code == 1
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert lines[0] == f"error: NodeGroupTargetSize failed: {code.name}: the server's own words"
    assert (hint in lines[1]) if hint else len(lines) == 1


async def test_an_answer_of_cloudgraft_gets_no_hint_about_the_connection() -> None:
    """A full disk is no matter of TLS."""

    class Full(MemoryProvider):
        async def refresh(self) -> None:
            raise UnavailableError("the disk is full")

    async with serving(Full(MemoryOptions())) as served:
        result = await asyncio.to_thread(run, "Refresh", "--address", served.address)
    assert result.stderr.splitlines()[0] == "error: Refresh failed: UNAVAILABLE: the disk is full"
    assert "TLS" not in result.stderr
    assert "is the server running" not in result.stderr


def test_a_server_that_never_answers_is_given_up_after_the_timeout(server: CountingServer) -> None:
    server.hang.add("Refresh")
    result = run("Refresh", "--address", server.address, "--timeout", "200ms")
    assert result.exit_code == 1
    assert f"DEADLINE_EXCEEDED: {server.address} did not answer Refresh within 200ms" in result.stderr


class Starting(dict[str, Answer]):
    """The answers of a server that has not listed its clouds yet, for the first three calls."""

    left = 3

    def get(self, name: str, default: Answer) -> Answer:  # type: ignore[override]  # as the server calls it
        self.left -= 1
        return StatusError(grpc.StatusCode.UNAVAILABLE, "starting") if self.left >= 0 else default


def test_wait_makes_a_change_once_as_soon_as_the_server_is_ready(server: CountingServer) -> None:
    server.answers = Starting()
    result = call(server, "NodeGroupIncreaseSize", {"id": "a", "delta": 1}, "--wait")
    assert (result.exit_code, result.stdout) == (0, "OK\n")
    assert server.calls == {"NodeGroups": 4, "NodeGroupIncreaseSize": 1}


def test_wait_does_not_repeat_a_change_that_fails(server: CountingServer) -> None:
    server.answers["NodeGroupIncreaseSize"] = StatusError(grpc.StatusCode.UNAVAILABLE, "the journal is away")
    data = '{"id": "a", "delta": 1}'
    result = run("NodeGroupIncreaseSize", "--data", data, "--address", server.address, "--wait=30s")
    assert (result.exit_code, server.calls["NodeGroupIncreaseSize"]) == (1, 1)
    assert "the journal is away" in result.stderr


def test_wait_outlasts_a_port_that_nobody_listens_on_yet() -> None:
    with CountingServer() as gone:
        port = gone.port
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(run, "--wait", "NodeGroups", "--address", f"127.0.0.1:{port}")
        with CountingServer(listen=f"127.0.0.1:{port}") as server:
            assert waiting.result(60).exit_code == 0
            assert server.calls == {"NodeGroups": 2}


@pytest.mark.parametrize("arguments", [["--wait", "10ms", "NodeGroups"], ["NodeGroups", "--wait=10ms"]])
def test_wait_gives_up_when_its_time_is_over(arguments: list[str]) -> None:
    result = run(*arguments, "--address", "unix:/nowhere")
    assert (result.exit_code, "UNAVAILABLE" in result.stderr) == (1, True)


def test_verbosity_5_logs_the_call_beside_the_answer(server: CountingServer) -> None:
    result = call(server, "Refresh", None, "-v", "5")
    assert (result.stdout, result.stderr) == ("OK\n", "debug: performing gRPC call Refresh\n")


def test_the_program_itself_prints_data_on_stdout_errors_on_stderr_and_exits_accordingly(
    server: CountingServer,
) -> None:
    def program(*arguments: str) -> subprocess.CompletedProcess[str]:
        main = [sys.executable, "-c", "from cloudgraft.cli.main import main; main()"]
        environment = {**os.environ, "GRPC_VERBOSITY": "NONE"}
        return subprocess.run(
            [*main, "call", *arguments], capture_output=True, text=True, env=environment, timeout=50, check=False
        )

    good = program("NodeGroupTargetSize", "--address", server.address, "-o", "json")
    assert (good.returncode, json.loads(good.stdout), good.stderr) == (0, {"targetSize": 0}, "")
    bad = program("NodeGroupTargetSize", "--address", "127.0.0.1:1")
    assert (bad.returncode, bad.stdout) == (1, "")
    assert bad.stderr.startswith("error: NodeGroupTargetSize failed: UNAVAILABLE")
