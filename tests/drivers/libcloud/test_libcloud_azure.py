"""Azure: one request creates a machine with its disk and card; faults; over a socket."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.drivers.libcloud.driver import LibcloudDriver
from cloudgraft.sdk.driver import Machine, MachineState
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    AuthenticationError,
    CloudgraftError,
    ConflictError,
    DeadlineError,
    InvalidArgumentError,
    OutOfStockError,
    PermissionDeniedError,
    PreconditionError,
    QuotaExceededError,
    RateLimitedError,
    UnavailableError,
)
from cloudgraft.sdk.secrecy import redacted
from clouds.servers.libcloud_azure import GROUP, SUBSCRIPTION, FakeAzure
from clouds.servers.libcloud_cases import CLOUDS
from clouds.servers.libcloud_fake import Answer, Fake
from tests.conditions import until
from tests.drivers.libcloud.libcloud_driving import NAME, driver, opened, spec

AZURE = "AZURE_ARM"
MACHINES = f"{GROUP}/providers/Microsoft.Compute/virtualMachines"
TOLD = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/virtualMachines"


@pytest.fixture
def azure() -> Iterator[Fake]:
    with opened(AZURE) as fake:
        yield fake


def cloud_of(fake: Fake) -> FakeAzure:
    assert isinstance(fake.cloud, FakeAzure)
    return fake.cloud


def told(status: int, code: str, message: str = "no", **headers: str) -> Answer:
    given = {key.replace("_", "-"): value for key, value in headers.items()}
    return Answer(status, {"error": {"code": code, "message": message}}, given)


# -- create and delete -------------------------------------------------------------------------------------------------


def test_one_request_creates_everything_and_one_deletes_it(azure: Fake, tmp_path: Path) -> None:
    one = driver(AZURE, azure, tmp_path)
    made = one.create(spec(AZURE))
    assert made.state is MachineState.PENDING
    assert [(asked.method, asked.path) for asked in azure.asked[1:]] == [("PUT", f"{MACHINES}/{NAME}")]
    put = azure.asked[1]
    assert (put.query, put.headers["if-none-match"]) == ({"api-version": "2024-07-01"}, "*")
    cloud = cloud_of(azure)
    assert (cloud.cards, cloud.disks) == ({f"{NAME}-nic0"}, {f"{NAME}-os"})
    before = len(azure.asked)
    one.delete(made)
    assert [(asked.method, asked.path) for asked in azure.asked[before:]] == [("DELETE", f"{MACHINES}/{NAME}")]
    assert (cloud.machines, cloud.cards, cloud.disks) == ({}, set(), set())
    one.delete(made)  # gone already


def test_things_are_named_in_the_group_or_by_their_whole_ids(azure: Fake, tmp_path: Path) -> None:
    machine: dict[str, Any] = {
        **CLOUDS[AZURE].machine,
        "image": "/subscriptions/x/images/own",
        "networks": ["lab", "/subscriptions/x/virtualNetworks/y/subnets/z"],
        "securityGroups": ["doors"],
        "zone": "2",
        "diskSize": 64,
    }
    driver(AZURE, azure, tmp_path).create(spec(AZURE, settings=machine))
    order = azure.sent("PUT", NAME)[0].body
    cards = order["properties"]["networkProfile"]["networkInterfaceConfigurations"]
    subnets = [card["properties"]["ipConfigurations"][0]["properties"]["subnet"]["id"] for card in cards]
    network = f"{GROUP}/providers/Microsoft.Network"
    assert subnets == [f"{network}/virtualNetworks/lab/subnets/default", machine["networks"][1]]
    assert [card["properties"]["primary"] for card in cards] == [True, False]
    assert {card["properties"]["deleteOption"] for card in cards} == {"Delete"}
    assert cards[1]["properties"]["networkSecurityGroup"] == {"id": f"{network}/networkSecurityGroups/doors"}
    assert order["zones"] == ["2"]
    storage = order["properties"]["storageProfile"]
    assert (storage["imageReference"], storage["osDisk"]["diskSizeGB"]) == ({"id": machine["image"]}, 64)


def test_a_create_whose_answer_was_lost_makes_no_second_machine(azure: Fake, tmp_path: Path) -> None:
    one = driver(AZURE, azure, tmp_path)
    with azure.trouble(method="PUT", path=NAME, is_reset=True), pytest.raises(DeadlineError):
        one.create(spec(AZURE))
    assert [machine.name for machine in one.list()] == [NAME]
    with pytest.raises(AlreadyExistsError):
        one.create(spec(AZURE))
    assert len(cloud_of(azure).machines) == 1


def test_the_machine_of_another_cluster_is_not_changed(azure: Fake, tmp_path: Path) -> None:
    one = driver(AZURE, azure, tmp_path)
    one.create(spec(AZURE, tags={"cloudgraft-cluster-id": "zzzzzzzzzz"}))
    with pytest.raises(AlreadyExistsError):
        one.create(spec(AZURE))
    (machine,) = one.list()
    assert machine.tags == {"cloudgraft-cluster-id": "zzzzzzzzzz"}


def test_a_machine_that_was_deleted_by_hand_is_gone(azure: Fake, tmp_path: Path) -> None:
    one = driver(AZURE, azure, tmp_path)
    made = one.create(spec(AZURE))
    cloud_of(azure).machines.clear()
    assert one.list() == []
    one.delete(made)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (told(409, "SkuNotAvailable"), OutOfStockError),
        (told(409, "ZonalAllocationFailed"), OutOfStockError),
        (told(409, "OverconstrainedAllocationRequest"), OutOfStockError),
        (
            told(409, "OperationNotAllowed", "it results in exceeding approved Total Regional Cores quota"),
            QuotaExceededError,
        ),
        (told(403, "QuotaExceeded"), QuotaExceededError),
        (told(400, "SubnetIsFull"), QuotaExceededError),
        (told(409, "OperationNotAllowed", "the machine is being updated"), ConflictError),
        (told(409, "PropertyChangeNotAllowed"), AlreadyExistsError),
        (told(403, "AuthorizationFailed"), PermissionDeniedError),
        (told(401, "InvalidAuthenticationToken"), AuthenticationError),
        (told(404, "ImageNotFound"), InvalidArgumentError),
        (told(400, "InvalidParameter"), InvalidArgumentError),
        (told(404, "ResourceGroupNotFound"), PreconditionError),
        (told(503, "ServerTimeout"), DeadlineError),
    ],
)
def test_a_refusal_of_azures_has_its_class(
    azure: Fake, tmp_path: Path, answer: Answer, error: type[CloudgraftError]
) -> None:
    one = driver(AZURE, azure, tmp_path)
    with azure.trouble(method="PUT", path=NAME, answer=answer), pytest.raises(CloudgraftError) as caught:
        one.create(spec(AZURE))
    assert type(caught.value) is error


def test_too_many_calls_are_no_quota(azure: Fake, tmp_path: Path) -> None:
    answer = told(429, "OperationNotAllowed", "too many requests; see your quota", Retry_After="17")
    with azure.trouble(method="PUT", path=NAME, answer=answer), pytest.raises(RateLimitedError) as caught:
        driver(AZURE, azure, tmp_path).create(spec(AZURE))
    assert caught.value.retry_after == 17.0


def test_missing_group_does_not_mean_that_the_machine_is_gone(azure: Fake, tmp_path: Path) -> None:
    one = driver(AZURE, azure, tmp_path, project=f"{SUBSCRIPTION}/Typo")
    with pytest.raises(PreconditionError, match="check project"):
        one.delete(Machine(name=NAME, machine_id=NAME))
    with pytest.raises(PreconditionError):
        one.list()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"settings": {"networks": []}}, "set machine.networks"),
        ({"settings": {"sshKeys": []}}, "set machine.sshKeys"),
        ({"settings": {"image": "ubuntu"}}, "publisher:offer:sku:version"),
        ({"settings": {"securityGroups": ["a", "b"]}}, "takes one of machine.securityGroups"),
        ({"name": "ends-with-"}, "does not accept the machine name"),
        ({"tags": {"cloudgraft-group": "x" * 257}}, "256 characters"),
        ({"user_data": "x" * 65536}, "user data has 65536 bytes"),
    ],
)
def test_what_azure_would_refuse_is_refused_before(
    azure: Fake, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    given = {**changes, "settings": {**CLOUDS[AZURE].machine, **changes.get("settings", {})}}
    with pytest.raises(InvalidArgumentError, match=words):
        driver(AZURE, azure, tmp_path).create(spec(AZURE, **given))
    assert azure.asked == []


def test_a_project_is_a_subscription_and_a_group(azure: Fake, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="id/group"):
        driver(AZURE, azure, tmp_path, project=SUBSCRIPTION)


# -- list --------------------------------------------------------------------------------------------------------------


def listed(one: LibcloudDriver) -> Machine:
    (machine,) = one.list()
    return machine


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("Creating", MachineState.PENDING),
        ("Updating", MachineState.RUNNING),
        ("Deleting", MachineState.DELETING),
        ("Canceled", MachineState.FAILED),
        ("A new word", MachineState.PENDING),
    ],
)
def test_a_state_is_what_azure_does_with_the_machine(
    azure: Fake, tmp_path: Path, word: str, state: MachineState
) -> None:
    one = driver(AZURE, azure, tmp_path)
    one.create(spec(AZURE))
    cloud_of(azure).machines[NAME]["properties"]["provisioningState"] = word
    assert listed(one).state is state


def failed(fake: Fake, one: LibcloudDriver, *codes: str) -> None:
    one.create(spec(AZURE))
    cloud = cloud_of(fake)
    cloud.machines[NAME]["properties"]["provisioningState"] = "Failed"
    cloud.statuses[NAME] = [{"code": code, "message": "there is no room"} for code in codes]


def test_a_machine_that_found_no_room_says_so(azure: Fake, tmp_path: Path) -> None:
    one = driver(AZURE, azure, tmp_path)
    for number in range(4):
        one.create(spec(AZURE, name=f"lab-{number}"))
    failed(azure, one, "ProvisioningState/failed/AllocationFailed", "PowerState/stopped")
    cloud_of(azure).others = [{**cloud_of(azure)._status(cloud_of(azure).machines[NAME]), "id": "/another/group"}]
    before = len(azure.asked)
    machine = next(machine for machine in one.list() if machine.name == NAME)
    assert (machine.state, machine.failure) == (MachineState.FAILED, "out_of_stock")
    assert machine.reason == "AllocationFailed: there is no room"
    assert [asked.path for asked in azure.asked[before:]] == [MACHINES, MACHINES, TOLD, TOLD]  # two pages each


def test_a_machine_that_runs_has_not_failed(azure: Fake, tmp_path: Path) -> None:
    one = driver(AZURE, azure, tmp_path)
    failed(azure, one, "ProvisioningState/failed/VMExtensionProvisioningError", "PowerState/running")
    assert listed(one).state is MachineState.RUNNING


def test_for_a_failed_machine_of_others_the_subscription_is_not_read(azure: Fake, tmp_path: Path) -> None:
    """It may stay for years, and the subscription may have thousands."""
    one = driver(AZURE, azure, tmp_path)
    failed(azure, one, "ProvisioningState/failed/AllocationFailed")
    cloud_of(azure).machines[NAME]["tags"] = {"team": "web"}
    assert listed(one).state is MachineState.FAILED
    assert azure.sent("GET", TOLD) == []


def test_without_permission_for_the_subscription_reasons_are_unknown(azure: Fake, tmp_path: Path) -> None:
    one = driver(AZURE, azure, tmp_path)
    failed(azure, one, "ProvisioningState/failed/AllocationFailed")
    with azure.trouble(method="GET", path=TOLD, answer=told(403, "AuthorizationFailed")):
        machine = listed(one)
    assert (machine.state, machine.failure) == (MachineState.FAILED, "")
    with azure.trouble(method="GET", path=TOLD, answer=told(503, "Later")), pytest.raises(UnavailableError):
        one.list()


def test_pages_without_an_end_are_no_list(azure: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloudgraft.drivers.libcloud.adapter.MOST_PAGES", 5)
    again = Answer(200, {"value": [], "nextLink": f"https://management.azure.com{MACHINES}?api-version=1"})
    with (
        azure.trouble(method="GET", path=MACHINES, answer=again),
        pytest.raises(CloudgraftError, match="more than 5 pages"),
    ):
        driver(AZURE, azure, tmp_path).list()


# -- logins ------------------------------------------------------------------------------------------------------------


def test_azure_token_is_renewed_before_it_expires_and_hidden(azure: Fake, tmp_path: Path) -> None:
    cloud_of(azure).lifetime = 200  # libcloud renews five minutes before
    one = driver(AZURE, azure, tmp_path)
    one.list()
    one.list()
    assert len(azure.sent("POST", "/oauth2/token")) == 3  # the first one was too short already
    cloud_of(azure).lifetime = 3600
    one.list()
    one.list()
    assert len(azure.sent("POST", "/oauth2/token")) == 4
    assert redacted(azure.asked[-1].headers["authorization"]) == "Bearer [secret]"


async def test_no_connection_stays_open_for_each_token(azure: Fake, tmp_path: Path) -> None:
    cloud_of(azure).lifetime = 200
    one = driver(AZURE, azure, tmp_path)
    for _ in range(10):
        one.list()
    assert len(azure.sent("POST", "/oauth2/token")) > 10
    await until(lambda: azure.connections <= 3, what="old connections to be closed")


def test_token_that_azure_refuses_is_replaced(azure: Fake, tmp_path: Path) -> None:
    one = driver(AZURE, azure, tmp_path)
    one.list()
    cloud_of(azure).forget_tokens()
    assert one.list() == []


def test_tokens_that_azure_refuses_are_not_hidden_for_ever(azure: Fake, tmp_path: Path) -> None:
    """As when the tenant is not the subscription's."""
    one = driver(AZURE, azure, tmp_path)
    refused = told(401, "InvalidAuthenticationTokenTenant", "the token is from the wrong issuer")
    with azure.trouble(method="GET", path=MACHINES, answer=refused):
        for _ in range(5):
            with pytest.raises(AuthenticationError):
                one.list()
    tokens = {asked.headers["authorization"] for asked in azure.sent("GET", MACHINES)}
    assert len(tokens) == 5
    assert {redacted(token) for token in tokens} == tokens


def test_missing_tenant_names_the_option(azure: Fake, tmp_path: Path) -> None:
    with pytest.raises(AuthenticationError, match="check domain"):
        driver(AZURE, azure, tmp_path, domain="nobody.example").list()


def test_a_login_that_hangs_is_given_up(azure: Fake, tmp_path: Path) -> None:
    one = driver(AZURE, azure, tmp_path, timeout=timedelta(seconds=0.3))
    hold = threading.Event()
    with azure.trouble(method="POST", path="/oauth2/token", hold=hold), pytest.raises(UnavailableError):
        one.create(spec(AZURE))
