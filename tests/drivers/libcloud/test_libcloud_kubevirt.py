"""KubeVirt: exact requests, and machines whose create was interrupted; over a socket."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.drivers.libcloud.driver import LibcloudDriver
from cloudgraft.drivers.libcloud.kubevirt import Kubevirt
from cloudgraft.drivers.libcloud.options import LibcloudOptions
from cloudgraft.drivers.libcloud.wire import Wire
from cloudgraft.sdk.driver import Machine, MachineState
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    CloudgraftError,
    ConflictError,
    DeadlineError,
    InvalidArgumentError,
    PermissionDeniedError,
    QuotaExceededError,
    RateLimitedError,
)
from clouds.servers.libcloud_clouds import TOKEN
from clouds.servers.libcloud_fake import Answer, Asked, Fake
from clouds.servers.libcloud_kubevirt import FakeKubevirt, refusal
from tests.drivers.libcloud.libcloud_driving import NAME, TAGS, USER_DATA, driver, opened, spec

MACHINES = "/apis/kubevirt.io/v1/namespaces/lab/virtualmachines"
SECRETS = "/api/v1/namespaces/lab/secrets"
LONG = USER_DATA + "#" * 2048
FULL = "virtualmachines is forbidden: exceeded quota: small, requested: 1, used: 5, limited: 5"
AT_ONCE = 'Operation cannot be fulfilled on resourcequotas "small": the object has been modified'


@pytest.fixture
def fake() -> Iterator[Fake]:
    with opened("KUBEVIRT") as one:
        yield one


@pytest.fixture
def one(fake: Fake, tmp_path: Path) -> LibcloudDriver:
    return driver("KUBEVIRT", fake, tmp_path)


def cloud_of(fake: Fake) -> FakeKubevirt:
    assert isinstance(fake.cloud, FakeKubevirt)
    return fake.cloud


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def changes(fake: Fake) -> list[Asked]:
    return [asked for asked in fake.asked if asked.method != "GET"]


# -- what is sent ------------------------------------------------------------------------------------------------------

LABEL = {"cloudgraft-cluster-id": "k3x7abcdef"}


def order(**machine: Any) -> dict[str, Any]:
    """A machine with short user data, and with changes to the machine itself."""
    inside = {
        "domain": {
            "cpu": {"cores": 2},
            "memory": {"guest": "4096Mi"},
            "devices": {
                "disks": [
                    {"name": "root", "disk": {"bus": "virtio"}},
                    {"name": "cloudinit", "disk": {"bus": "virtio"}},
                ],
                "interfaces": [{"name": "default", "masquerade": {}}],
                "rng": {},
            },
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [
            {"name": "root", "containerDisk": {"image": "images.example/debian:12"}},
            {"name": "cloudinit", "cloudInitNoCloud": {"userDataBase64": encoded(USER_DATA)}},
        ],
        "nodeSelector": {"topology.kubernetes.io/zone": "hall-b"},
    }
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": NAME, "labels": LABEL, "annotations": dict(TAGS)},
        "spec": {
            "runStrategy": "Always",
            "template": {"metadata": {"labels": LABEL}, "spec": {**inside, **machine}},
        },
    }


def test_short_user_data_goes_with_the_machine_in_one_call(fake: Fake, one: LibcloudDriver) -> None:
    made = one.create(spec("KUBEVIRT"))
    (asked,) = fake.asked
    assert (asked.method, asked.path, asked.query, asked.body) == ("POST", MACHINES, {}, order())
    assert asked.headers["authorization"] == f"Bearer {TOKEN}"
    assert asked.headers["content-type"] == "application/json"
    assert (made.name, made.provider_id) == (NAME, f"kubevirt://{NAME}")


def test_a_list_and_a_deletion_are_one_call_each(fake: Fake, one: LibcloudDriver) -> None:
    made = one.create(spec("KUBEVIRT"))
    (listed,) = one.list()
    one.delete(listed)
    _, list_call, delete_call = fake.asked
    assert (list_call.method, list_call.path) == ("GET", MACHINES)
    assert list_call.query == {"labelSelector": "cloudgraft-cluster-id", "limit": "500"}
    assert (delete_call.method, delete_call.path) == ("DELETE", f"{MACHINES}/{NAME}")
    assert delete_call.body == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": made.machine_id},
        "propagationPolicy": "Background",
    }


@pytest.mark.parametrize(
    ("image", "source"),
    [
        ("pvc:images/debian-12", {"source": {"pvc": {"namespace": "images", "name": "debian-12"}}}),
        ("pvc:debian-12", {"source": {"pvc": {"namespace": "lab", "name": "debian-12"}}}),
        (
            "datasource:images/debian-12",
            {"sourceRef": {"kind": "DataSource", "namespace": "images", "name": "debian-12"}},
        ),
    ],
)
def test_an_image_is_cloned_to_a_disk_that_belongs_to_the_machine(
    image: str, source: dict[str, Any], fake: Fake, one: LibcloudDriver
) -> None:
    one.create(spec("KUBEVIRT", settings={"shape": "1x512Mi", "image": image, "diskSize": 20}))
    sent = fake.asked[0].body["spec"]
    storage = {"resources": {"requests": {"storage": "20Gi"}}}
    assert sent["dataVolumeTemplates"] == [
        {"metadata": {"name": f"{NAME}-root"}, "spec": {**source, "storage": storage}}
    ]
    assert sent["template"]["spec"]["volumes"][0] == {"name": "root", "dataVolume": {"name": f"{NAME}-root"}}
    assert sent["template"]["spec"]["domain"]["memory"] == {"guest": "512Mi"}


def test_given_networks_replace_that_of_the_pods(fake: Fake, one: LibcloudDriver) -> None:
    one.create(spec("KUBEVIRT", settings={"shape": "1x1Gi", "image": "i", "networks": ["lab/vlan7", "storage"]}))
    sent = fake.asked[0].body["spec"]["template"]["spec"]
    assert sent["domain"]["devices"]["interfaces"] == [{"name": "net0", "bridge": {}}, {"name": "net1", "bridge": {}}]
    assert sent["networks"] == [
        {"name": "net0", "multus": {"networkName": "lab/vlan7"}},
        {"name": "net1", "multus": {"networkName": "storage"}},
    ]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"settings": {"shape": "small", "image": "i"}}, "such as 4x8Gi"),
        ({"settings": {"shape": "0x8Gi", "image": "i"}}, "such as 4x8Gi"),
        ({"settings": {"shape": "1x1Gi", "image": "pvc:a/b/c"}}, "like pvc:images/debian-12"),
        ({"settings": {"shape": "1x1Gi", "image": "i", "diskSize": 9}}, "diskSize has no effect"),
        ({"settings": {"shape": "1x1Gi", "image": "i", "sshKeys": ["k"]}}, "does not support machine.sshKeys"),
        ({"user_data": "x" * (256 * 1024 + 1)}, "user data has 262145 bytes"),
    ],
)
def test_what_cannot_be_made_is_refused_before_anything_is_sent(
    changed: dict[str, Any], told: str, fake: Fake, one: LibcloudDriver
) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        one.create(spec("KUBEVIRT", **changed))
    assert fake.asked == []


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"endpoint": "https://k.example"}, "project is missing"),
        ({"endpoint": "https://k.example", "project": "../x"}, "must be a namespace"),
        ({"project": "lab"}, "endpoint is missing"),
        ({"endpoint": "https://k.example", "project": "lab", "key": "me"}, "key is not used"),
    ],
)
def test_invalid_options_are_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        LibcloudDriver(LibcloudOptions(provider="KUBEVIRT", secret_file=Path("s"), **given))


@pytest.mark.parametrize(("ca_file", "checked"), [(None, True), (Path("/etc/ca.pem"), "/etc/ca.pem")])
def test_the_certificate_is_checked_with_and_without_a_ca(ca_file: Path | None, checked: object) -> None:
    given: dict[str, Any] = {"provider": "KUBEVIRT", "secret_file": Path("s"), "project": "lab", "ca_file": ca_file}
    adapter = Kubevirt(LibcloudOptions(endpoint="https://k.example:6443", **given))
    second = timedelta(seconds=1)
    wire = Wire(connect_timeout=second, timeout=second, ca_file=ca_file, changes=adapter.is_change)
    connection = adapter.connect(wire, "a-token").connection.connection
    assert (connection.verification, connection.host) == (checked, "https://k.example:6443")


# -- long user data: a Secret ------------------------------------------------------------------------------------------


def test_long_user_data_is_in_a_secret_that_belongs_to_the_machine(fake: Fake, one: LibcloudDriver) -> None:
    made = one.create(spec("KUBEVIRT", user_data=LONG))
    first, second, third = fake.asked
    wanted = order()
    wanted["metadata"]["annotations"]["cloudgraft/unfinished"] = "true"
    wanted["spec"]["runStrategy"] = "Halted"
    secret = {"name": "cloudinit", "cloudInitNoCloud": {"secretRef": {"name": f"{NAME}-user-data"}}}
    wanted["spec"]["template"]["spec"]["volumes"][1] = secret
    assert (first.method, first.path, first.body) == ("POST", MACHINES, wanted)
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": NAME, "uid": made.machine_id}
    assert (second.method, second.path) == ("POST", SECRETS)
    assert second.body == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"{NAME}-user-data", "ownerReferences": [owner]},
        "data": {"userdata": encoded(LONG)},
    }
    assert (third.method, third.path) == ("PATCH", f"{MACHINES}/{NAME}")
    assert third.headers["content-type"] == "application/merge-patch+json"
    annotations = {"cloudgraft/unfinished": None}
    assert third.body == {"metadata": {"annotations": annotations}, "spec": {"runStrategy": "Always"}}
    (listed,) = one.list()
    assert (listed.state, dict(listed.tags), made.state) == (MachineState.RUNNING, TAGS, MachineState.RUNNING)
    one.delete(listed)
    assert (fake.cloud.machines, cloud_of(fake).secrets) == ({}, {})


@pytest.mark.parametrize("longest", [2048, 2049])
def test_the_limit_is_in_bytes(longest: int, fake: Fake, one: LibcloudDriver) -> None:
    one.create(spec("KUBEVIRT", user_data="ü" + "x" * (longest - 2)))
    assert len(fake.asked) == (1 if longest == 2048 else 3)


STEPS = [("POST", MACHINES), ("POST", SECRETS), ("PATCH", MACHINES)]


@pytest.mark.parametrize(("method", "path"), STEPS[:2])
@pytest.mark.parametrize("fault", [{"is_reset": True}, {"answer": Answer(503, {"message": "later"})}])
def test_unfinished_machine_is_not_listed_and_the_next_create_finishes_it(
    method: str, path: str, fault: dict[str, Any], fake: Fake, one: LibcloudDriver
) -> None:
    with fake.trouble(method=method, path=path, **fault), pytest.raises(DeadlineError):
        one.create(spec("KUBEVIRT", user_data=LONG))
    assert one.list() == []
    made = one.create(spec("KUBEVIRT", user_data=LONG))
    (listed,) = one.list()
    assert (listed.machine_id, listed.state) == (made.machine_id, MachineState.RUNNING)
    (secret,) = cloud_of(fake).secrets.values()
    assert secret["metadata"]["ownerReferences"][0]["uid"] == made.machine_id


@pytest.mark.parametrize(
    "later", [refusal(429, "TooManyRequests", "too many requests"), refusal(409, "Conflict", AT_ONCE)]
)
@pytest.mark.parametrize(("method", "path"), STEPS[1:])
def test_temporary_refusal_does_not_delete_the_machine(
    method: str, path: str, later: Answer, fake: Fake, one: LibcloudDriver
) -> None:
    with fake.trouble(method=method, path=path, answer=later), pytest.raises(DeadlineError):
        one.create(spec("KUBEVIRT", user_data=LONG))
    assert one.create(spec("KUBEVIRT", user_data=LONG)).state is MachineState.RUNNING


def test_foreign_annotations_on_an_unfinished_machine_keep_it_ours(fake: Fake, one: LibcloudDriver) -> None:
    with fake.trouble(method="POST", path=SECRETS, is_reset=True), pytest.raises(DeadlineError):
        one.create(spec("KUBEVIRT", user_data=LONG))
    fake.cloud.machines[NAME]["metadata"]["annotations"]["owner"] = "the policy of the cluster"
    assert one.create(spec("KUBEVIRT", user_data=LONG)).state is MachineState.RUNNING


def test_a_start_without_an_answer_was_done_and_is_found(fake: Fake, one: LibcloudDriver) -> None:
    with fake.trouble(method="PATCH", path=MACHINES, is_reset=True), pytest.raises(DeadlineError):
        one.create(spec("KUBEVIRT", user_data=LONG))
    assert [machine.state for machine in one.list()] == [MachineState.RUNNING]
    with pytest.raises(AlreadyExistsError):
        one.create(spec("KUBEVIRT", user_data=LONG))


def test_abandoned_machine_is_listed_as_failed_and_deleted_with_its_secret(fake: Fake, one: LibcloudDriver) -> None:
    later = Answer(503, {"message": "later"})
    with fake.trouble(method="PATCH", path=MACHINES, answer=later), pytest.raises(DeadlineError):
        one.create(spec("KUBEVIRT", user_data=LONG))
    assert one.list() == []
    fake.cloud.machines[NAME]["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    (listed,) = one.list()
    assert (listed.state, dict(listed.tags)) == (MachineState.FAILED, TAGS)
    assert "interrupted" in listed.reason
    one.delete(listed)
    assert (fake.cloud.machines, cloud_of(fake).secrets) == ({}, {})


@pytest.mark.parametrize(("method", "path"), STEPS[1:])
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refusal(403, "Forbidden", FULL), QuotaExceededError),
        (refusal(403, "Forbidden", "secrets is forbidden: User cannot create it"), PermissionDeniedError),
        (refusal(422, "Invalid", "data: Too long"), InvalidArgumentError),
    ],
)
def test_machine_that_cannot_be_finished_is_deleted(
    method: str, path: str, answer: Answer, error: type[CloudgraftError], fake: Fake, one: LibcloudDriver
) -> None:
    with fake.trouble(method=method, path=path, answer=answer), pytest.raises(CloudgraftError) as caught:
        one.create(spec("KUBEVIRT", user_data=LONG))
    assert type(caught.value) is error
    assert (fake.cloud.machines, cloud_of(fake).secrets) == ({}, {})


def test_outcome_is_unknown_when_the_machine_cannot_be_deleted(fake: Fake, one: LibcloudDriver) -> None:
    refused, later = refusal(403, "Forbidden", FULL), Answer(503, {"message": "later"})
    with (
        fake.trouble(method="POST", path=SECRETS, answer=refused),
        fake.trouble(method="DELETE", path=MACHINES, answer=later),
        pytest.raises(DeadlineError),
    ):
        one.create(spec("KUBEVIRT", user_data=LONG))
    assert list(fake.cloud.machines) == [NAME]


def test_a_secret_of_that_name_that_is_not_the_machines_is_not_used(fake: Fake, one: LibcloudDriver) -> None:
    name = f"{NAME}-user-data"
    cloud_of(fake).secrets[name] = {"metadata": {"name": name}, "data": {"userdata": "theirs"}}
    with pytest.raises(ConflictError, match="belongs to another"):
        one.create(spec("KUBEVIRT", user_data=LONG))
    assert fake.cloud.machines[NAME]["spec"]["runStrategy"] == "Halted"


def test_a_call_is_not_repeated_whatever_the_environment_says(
    fake: Fake, one: LibcloudDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIBCLOUD_RETRY_FAILED_HTTP_REQUESTS", "yes")
    with fake.trouble(method="POST", path=MACHINES, is_reset=True), pytest.raises(DeadlineError):
        one.create(spec("KUBEVIRT"))
    assert len(fake.asked) == 1


# -- whose it is -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("annotations", [{}, {**TAGS, "cloudgraft-cluster-id": "z", "cloudgraft/unfinished": "true"}])
def test_a_machine_of_somebody_else_is_left_alone(annotations: dict[str, str], fake: Fake, one: LibcloudDriver) -> None:
    theirs = {**order()["metadata"], "uid": "theirs", "labels": {}, "annotations": annotations}
    fake.cloud.machines[NAME] = {**order(), "metadata": theirs}
    with pytest.raises(AlreadyExistsError):
        one.create(spec("KUBEVIRT", user_data=LONG))
    assert one.list() == []
    assert [asked.path for asked in changes(fake)] == [MACHINES]  # and that one was refused
    one.delete(Machine(name=NAME, machine_id="ours", tags=TAGS))  # which went before theirs was made
    assert fake.cloud.machines[NAME]["metadata"]["uid"] == "theirs"


def test_two_clusters_of_one_name_share_a_namespace_and_keep_their_marks(fake: Fake, one: LibcloudDriver) -> None:
    others = {**TAGS, "cloudgraft-cluster-id": "zzzzzzzzzz", "cloudgraft-name": "lab-z"}
    one.create(spec("KUBEVIRT"))
    one.create(spec("KUBEVIRT", name="lab-z", tags=others))
    fake.cloud.machines[NAME]["metadata"]["annotations"]["kubevirt.io/latest-observed-api-version"] = "v1"
    assert {machine.name: dict(machine.tags) for machine in one.list()} == {NAME: TAGS, "lab-z": others}


# -- lists and states --------------------------------------------------------------------------------------------------


def test_list_with_an_expired_cursor_is_read_again(fake: Fake, one: LibcloudDriver) -> None:
    names = [f"lab-{number}" for number in range(4)]
    for name in names:
        one.create(spec("KUBEVIRT", name=name))
    answer, expired = fake.cloud.answer, [refusal(410, "Expired", "The provided continue parameter is too old")]

    def forgetful(asked: Asked) -> Answer:
        return expired.pop() if "continue" in asked.query and expired else answer(asked)

    fake.cloud.answer = forgetful  # type: ignore[method-assign]
    assert [machine.name for machine in one.list()] == names
    assert expired == []


UNSCHEDULED = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: 3 Insufficient cpu."}
NO_POD = {"type": "Synchronized", "status": "False", "message": f"failed to create virtual machine pod: {FULL}"}


@pytest.mark.parametrize(
    ("status", "state", "failure", "reason"),
    [
        ({}, MachineState.PENDING, "", ""),
        ({"printableStatus": "Provisioning"}, MachineState.PENDING, "", "Provisioning"),
        ({"printableStatus": "ANewWord"}, MachineState.PENDING, "", "ANewWord"),
        ({"printableStatus": "Unknown"}, MachineState.PENDING, "", "Unknown"),
        ({"printableStatus": "Migrating"}, MachineState.RUNNING, "", ""),
        ({"printableStatus": "Paused"}, MachineState.STOPPED, "", "Paused"),
        ({"printableStatus": "Terminating"}, MachineState.DELETING, "", "Terminating"),
        ({"printableStatus": "DataVolumeError"}, MachineState.FAILED, "", "DataVolumeError"),
        (
            {"printableStatus": "ErrorUnschedulable", "conditions": [UNSCHEDULED]},
            MachineState.FAILED,
            "out_of_stock",
            "3 Insufficient cpu",
        ),
        ({"printableStatus": "Starting", "conditions": [NO_POD]}, MachineState.FAILED, "quota_exceeded", "used: 5"),
        ({"printableStatus": "Running", "conditions": [NO_POD]}, MachineState.RUNNING, "", ""),
    ],
)
def test_states(
    status: dict[str, Any], state: MachineState, failure: str, reason: str, fake: Fake, one: LibcloudDriver
) -> None:
    one.create(spec("KUBEVIRT"))
    fake.cloud.machines[NAME]["status"] = status
    (listed,) = one.list()
    assert (listed.state, listed.failure) == (state, failure)
    assert reason in listed.reason


def test_one_that_is_being_deleted_says_so(fake: Fake, one: LibcloudDriver) -> None:
    one.create(spec("KUBEVIRT"))
    fake.cloud.machines[NAME]["metadata"]["deletionTimestamp"] = "2026-11-16T10:00:00Z"
    assert [machine.state for machine in one.list()] == [MachineState.DELETING]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refusal(403, "Forbidden", FULL), QuotaExceededError),
        (refusal(403, "Forbidden", "virtualmachines is forbidden: User cannot create it"), PermissionDeniedError),
        (refusal(422, "Invalid", "spec.template: Invalid value"), InvalidArgumentError),
        (refusal(404, "NotFound", 'namespaces "lab" not found'), InvalidArgumentError),
        (refusal(429, "TooManyRequests", "too many requests"), RateLimitedError),
        (refusal(409, "Conflict", AT_ONCE), ConflictError),
        (refusal(500, "InternalError", "failed calling webhook"), DeadlineError),
    ],
)
def test_a_refusal_has_its_class(answer: Answer, error: type[CloudgraftError], fake: Fake, one: LibcloudDriver) -> None:
    with fake.trouble(method="POST", path=MACHINES, answer=answer), pytest.raises(CloudgraftError) as caught:
        one.create(spec("KUBEVIRT"))
    assert type(caught.value) is error
