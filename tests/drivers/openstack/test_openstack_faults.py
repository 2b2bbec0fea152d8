"""Faults of an OpenStack cloud, and the driver's errors: over real sockets, with injected faults."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
import requests

from cloudgraft.drivers.openstack.errors import error_of_answer
from cloudgraft.drivers.openstack.options import USER_DATA_LIMIT
from cloudgraft.drivers.openstack.session import Call
from cloudgraft.sdk.driver import Machine, MachineState
from cloudgraft.sdk.errors import (
    AuthenticationError,
    CloudgraftError,
    ConflictError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    QuotaExceededError,
    RateLimitedError,
    UnavailableError,
    UnsupportedError,
)
from clouds.servers.openstack_fake import FakeOpenstack
from clouds.servers.openstack_fake_state import Project
from tests.drivers.openstack.openstack_clouds import driver, spec
from tests.drivers.slow_server import HEAD, slow_server

SERVERS = "/compute/v2.1/servers"
DATA = "#cloud-config\ntoken: abcdef.0123456789abcdef\n"


@pytest.fixture
def cloud() -> Iterator[FakeOpenstack]:
    with FakeOpenstack() as fake:
        yield fake


def test_wrong_credentials_raise_an_error_and_list_nothing(cloud: FakeOpenstack, tmp_path: Path) -> None:
    with pytest.raises(AuthenticationError, match="password") as refused:
        driver(cloud, tmp_path, password="a-wrong-password").list()
    assert "a-wrong-password" not in str(refused.value)
    with pytest.raises(AuthenticationError):
        driver(cloud, tmp_path, password="a-wrong-password").create(spec())
    assert not cloud.project.servers


@pytest.mark.parametrize(
    ("status", "message", "error", "told"),
    [
        (403, "Quota exceeded for cores: Requested 8, but already used 20 of 20 cores", QuotaExceededError, "raise"),
        (403, "Maximum number of ports exceeded", QuotaExceededError, "quota"),
        (403, "Policy doesn't allow os_compute_api:servers:create to be performed.", PermissionDeniedError, "member"),
        (400, "Can not find requested image 4711", InvalidArgumentError, "machine.image"),
        (400, "Flavor 99 could not be found.", InvalidArgumentError, "machine.shape"),
        (400, "Invalid key_name provided.", InvalidArgumentError, "machine.keyPair"),
        (400, "The requested availability zone is not available", InvalidArgumentError, "machine.zone"),
        (409, "Multiple possible networks found, use a Network ID", InvalidArgumentError, "machine.networks"),
        (409, "something else changed", ConflictError, "something"),
        (403, "Only volume-backed servers are allowed for flavors with zero disk.", InvalidArgumentError, "bootVolume"),
        (406, "Version 2.69 is not supported by the API. Minimum is 2.1", UnsupportedError, "Stein"),
        (404, "The resource could not be found.", NotFoundError, "found"),
    ],
)
def test_a_refused_create_has_the_class_of_its_cause_and_says_what_to_do(
    cloud: FakeOpenstack, tmp_path: Path, status: int, message: str, error: type[CloudgraftError], told: str
) -> None:
    trouble = cloud.trouble(method="POST", path=SERVERS, status=status, message=message)
    with trouble, pytest.raises(CloudgraftError, match=told) as refused:
        driver(cloud, tmp_path).create(spec())
    assert type(refused.value) is error
    assert message in refused.value.message


def test_name_of_a_server_does_not_decide_the_error(cloud: FakeOpenstack, tmp_path: Path) -> None:
    for message in ("Invalid input", "Invalid input for field/attribute name. Value: prod-marker-pool."):
        trouble = cloud.trouble(method="POST", path=SERVERS, status=400, message=message)
        with trouble, pytest.raises(InvalidArgumentError):
            driver(cloud, tmp_path).create(spec("prod-marker-pool"))


@pytest.mark.parametrize("status", [413, 429])
def test_rate_limit_says_when_to_retry(cloud: FakeOpenstack, tmp_path: Path, status: int) -> None:
    trouble = cloud.trouble(method="POST", path=SERVERS, status=status, headers={"Retry-After": "42"})
    with trouble as fault, pytest.raises(RateLimitedError) as refused:
        driver(cloud, tmp_path).create(spec())
    assert refused.value.retry_after == 42
    assert fault.times == 999_999, "it was sent once"


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_create_that_a_server_failed_at_is_unknown_and_is_sent_once(
    cloud: FakeOpenstack, tmp_path: Path, status: int
) -> None:
    with cloud.trouble(method="POST", path=SERVERS, status=status) as fault:
        with pytest.raises(DeadlineError):
            driver(cloud, tmp_path).create(spec())
        assert fault.times == 999_999
    with cloud.trouble(method="GET", path=SERVERS, status=status), pytest.raises(UnavailableError):
        driver(cloud, tmp_path).list()


def test_words_of_a_proxys_page_prove_nothing_about_a_create() -> None:
    def answered(body: bytes, status: int) -> requests.Response:
        response = requests.Response()
        response.status_code, response._content = status, body
        return response

    page = answered(b"<html>503: connection quota exceeded</html>", 503)
    assert type(error_of_answer(page, "create", is_change=True)) is DeadlineError
    assert type(error_of_answer(page, "list", is_change=False)) is QuotaExceededError
    own = answered(b'{"forbidden": {"message": "Quota exceeded for cores", "code": 403}}', 403)
    assert type(error_of_answer(own, "create", is_change=True)) is QuotaExceededError


def test_broken_connection_after_the_request_means_unknown_outcome(cloud: FakeOpenstack, tmp_path: Path) -> None:
    one = driver(cloud, tmp_path)
    with cloud.trouble(method="POST", path=SERVERS, is_reset=True), pytest.raises(DeadlineError):
        one.create(spec())
    assert [machine.name for machine in one.list()] == ["one"], "it was made, and a list settles it"
    with cloud.trouble(method="POST", path=SERVERS, is_half=True), pytest.raises(DeadlineError):
        one.create(spec("two"))
    assert len(one.list()) == 2


@pytest.mark.parametrize("what", ["is_half", "is_reset"])
def test_half_a_page_is_no_list(cloud: FakeOpenstack, tmp_path: Path, what: str) -> None:
    cloud.project.page = 2
    one = driver(cloud, tmp_path)
    for number in range(5):
        one.create(spec(f"m{number}"))
    assert len(one.list()) == 5
    trouble = cloud.trouble(method="GET", path="marker=", **{what: True})
    with trouble, pytest.raises((UnavailableError, InternalError)):
        one.list()


def test_short_page_while_servers_are_built_is_not_the_last(cloud: FakeOpenstack, tmp_path: Path) -> None:
    cloud.project.page, cloud.project.is_short = 4, True
    one = driver(cloud, tmp_path)
    for number in range(5):
        one.create(spec(f"m{number}"))
    assert len(one.list()) == 5


def test_repeated_page_while_servers_are_built_is_neither_end_nor_error(cloud: FakeOpenstack, tmp_path: Path) -> None:
    cloud.project.page, cloud.project.repeats = 2, 2
    one = driver(cloud, tmp_path)
    for number in range(5):
        one.create(spec(f"m{number}"))
    assert sorted(machine.name for machine in one.list()) == [f"m{number}" for number in range(5)]
    cloud.project.repeats = 1000
    with pytest.raises(InternalError, match="page"):
        one.list()


def test_a_list_whose_cell_is_down_raises_instead_of_missing_machines(cloud: FakeOpenstack, tmp_path: Path) -> None:
    one = driver(cloud, tmp_path)
    one.create(spec())
    cloud.project.is_cell_down = True
    with pytest.raises(UnavailableError, match="cell"):
        one.list()


def test_list_restarts_when_its_marker_is_deleted(cloud: FakeOpenstack, tmp_path: Path) -> None:
    one = driver(cloud, tmp_path)
    one.create(spec())
    message = "marker [4711] not found"
    with cloud.trouble(method="GET", path="marker=", status=400, message=message, times=2):
        assert len(one.list()) == 1
    with cloud.trouble(method="GET", path="marker=", status=400, message=message), pytest.raises(ConflictError):
        one.list()


def test_a_cloud_that_hangs_is_given_up(cloud: FakeOpenstack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = driver(cloud, tmp_path)
    one.create(spec("before"))  # who we are and what is ordered is known now: the next request is the one that hangs
    monkeypatch.setattr(Call, "_left", lambda *_: 0.3)
    with cloud.trouble(method="POST", path=SERVERS, hold=threading.Event()), pytest.raises(DeadlineError):
        one.create(spec())
    with cloud.trouble(method="GET", path=SERVERS, hold=threading.Event()), pytest.raises(UnavailableError):
        one.list()


def test_keystone_that_hangs_or_fails_means_that_nothing_was_done(cloud: FakeOpenstack, tmp_path: Path) -> None:
    with cloud.trouble(method="POST", path="/auth/tokens", status=500), pytest.raises(UnavailableError):
        driver(cloud, tmp_path).create(spec())
    with cloud.trouble(method="POST", path="/auth/tokens", hold=threading.Event()), pytest.raises(UnavailableError):
        driver(cloud, tmp_path, timeout=timedelta(seconds=0.3)).create(spec())
    assert not cloud.project.servers


def test_an_answer_that_trickles_is_given_up(cloud: FakeOpenstack, tmp_path: Path) -> None:
    """A byte now and then would hold one of the driver's few threads for ever."""
    with slow_server(HEAD) as url, pytest.raises(UnavailableError):
        driver(cloud, tmp_path, auth_url=f"{url}v3", timeout=timedelta(seconds=0.3)).create(spec())


def test_a_token_that_expired_is_replaced_and_the_create_is_done_once(cloud: FakeOpenstack, tmp_path: Path) -> None:
    one = driver(cloud, tmp_path)
    one.list()
    cloud.tokens.clear()  # as when Keystone's clock is ahead of ours, or somebody revoked it
    one.create(spec())
    assert len(cloud.project.servers) == 1
    assert cloud.logins == 2


def test_threads_share_one_token(cloud: FakeOpenstack, tmp_path: Path) -> None:
    one = driver(cloud, tmp_path)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda number: one.create(spec(f"m{number}")), range(8)))
        assert len({machine.machine_id for machine in made}) == 8
    assert len(one.list()) == 8
    assert cloud.logins == 1
    one.close()


def test_a_flavour_that_no_host_can_hold_is_out_of_stock(cloud: FakeOpenstack, tmp_path: Path) -> None:
    one = driver(cloud, tmp_path)
    one.create(spec(shape="m1.huge"))
    (machine,) = one.list()
    assert machine.state is MachineState.FAILED
    assert "No valid host" in machine.reason
    assert machine.failure == "out_of_stock"


def test_what_was_renamed_or_deleted_by_hand_is_shown_as_it_is(cloud: FakeOpenstack, tmp_path: Path) -> None:
    one = driver(cloud, tmp_path)
    made = one.create(spec())
    cloud.project.servers[made.machine_id].name = "renamed"
    (machine,) = one.list()
    assert (machine.name, machine.tags) == ("renamed", spec().tags)
    cloud.project.servers.clear()
    assert one.list() == []
    one.delete(made)


def test_unknown_state_does_not_break_the_list_and_deleted_ones_are_left_out(
    cloud: FakeOpenstack, tmp_path: Path
) -> None:
    one = driver(cloud, tmp_path)
    states = {"NEW_IN_2031": "pending", "SHUTOFF": "stopped", "DELETED": "", "SOFT_DELETED": "", "REBOOT": "running"}
    for status in states:
        cloud.project.servers[one.create(spec(status)).machine_id].status = status
    cloud.project.servers[one.create(spec("going")).machine_id].task = "deleting"
    seen = {machine.name: machine.state.value for machine in one.list()}
    assert seen == {**{name: state for name, state in states.items() if state}, "going": "deleting"}


def test_accepted_deletion_is_listed_as_deleting(cloud: FakeOpenstack, tmp_path: Path) -> None:
    one = driver(cloud, tmp_path)
    going, staying = one.create(spec("going")), one.create(spec("staying"))
    cloud.project.is_slow_to_delete = True
    one.delete(going)
    cloud.project.servers[staying.machine_id].status = "ACTIVE"
    seen = {machine.name: machine.state for machine in one.list()}
    assert seen == {"going": MachineState.DELETING, "staying": MachineState.RUNNING}


def test_what_nova_cannot_keep_is_refused_before_it_is_asked(cloud: FakeOpenstack, tmp_path: Path) -> None:
    one = driver(cloud, tmp_path)
    refused = {
        "1 to 255": spec("n" * 256),
        "user data": spec(user_data="x" * (USER_DATA_LIMIT + 1)),
        "255 at most": spec(tags={"cloudgraft-group": "g" * 256}),
        "cannot keep": spec(tags={"cloudgraft-group": "\N{HONEYBEE}"}),
        "no key": spec(tags={"a/b": "c"}),
        "machine.image": spec(image="no-such"),
        "machine.shape": spec(shape="no-such"),
        "machine.networks": spec(networks=["no-such"]),
        "machine.serverGroup": spec(serverGroup="no-such"),
        "machine.flavour: unknown key": spec(flavour="m1"),
    }
    for told, order in refused.items():
        with pytest.raises(InvalidArgumentError, match=told):
            one.create(order)
    assert not cloud.project.servers
    one.create(spec(user_data="x" * USER_DATA_LIMIT))  # exactly so much is taken


def test_ambiguous_image_is_refused_and_a_replaced_one_is_found(cloud: FakeOpenstack, tmp_path: Path) -> None:
    one = driver(cloud, tmp_path)
    one.create(spec())
    new, other = "6f0f2c0e-6e57-4b62-a4f6-8a4a37f3a0aa", "6f0f2c0e-6e57-4b62-a4f6-8a4a37f3a0ab"
    cloud.project.images = {new: "cirros"}
    with pytest.raises(InvalidArgumentError, match=r"machine\.image"):
        one.create(spec("two"))  # the id of the old one was still believed
    one.create(spec("two"))
    cloud.project.images = {new: "cirros", other: "cirros"}
    with pytest.raises(InvalidArgumentError, match="2 are named"):
        driver(cloud, tmp_path).create(spec("three"))


def test_user_data_and_secrets_are_in_no_error(cloud: FakeOpenstack, tmp_path: Path) -> None:
    message = f"Invalid input: {DATA.splitlines()[1]}"
    trouble = cloud.trouble(method="POST", path=SERVERS, status=400, message=message)
    with trouble, pytest.raises(InvalidArgumentError) as refused:
        driver(cloud, tmp_path).create(spec(user_data=DATA))
    assert "0123456789abcdef" not in str(refused.value)


def test_what_nova_repeats_of_a_request_has_no_user_data_in_it(cloud: FakeOpenstack, tmp_path: Path) -> None:
    """It refuses a value by showing it, or all that it is in: encoded, and so long that a message cuts it."""
    long = DATA * 40
    encoded = base64.b64encode(long.encode()).decode()
    message = f"Invalid input for field/attribute server. Value: {{'name': 'one', 'user_data': '{encoded}'}}."
    trouble = cloud.trouble(method="POST", path=SERVERS, status=400, message=message)
    with trouble, pytest.raises(InvalidArgumentError, match="field/attribute server") as refused:
        driver(cloud, tmp_path).create(spec(user_data=long))
    assert encoded[:12] not in str(refused.value)


@pytest.mark.parametrize("status", [302, 303, 307])
def test_create_does_not_follow_redirects(cloud: FakeOpenstack, tmp_path: Path, status: int) -> None:
    headers = {"Location": f"{cloud.auth_url.partition('/identity')[0]}{SERVERS}"}
    trouble = cloud.trouble(method="POST", path=SERVERS, status=status, headers=headers, times=1)
    with trouble, pytest.raises(InternalError):
        driver(cloud, tmp_path).create(spec())
    assert not cloud.project.servers


def test_a_machine_without_an_id_is_not_taken_for_gone(cloud: FakeOpenstack, tmp_path: Path) -> None:
    with pytest.raises(PreconditionError, match="no id"):
        driver(cloud, tmp_path).delete(Machine(name="one", machine_id=""))


def test_missing_service_in_the_catalogue_names_the_options_to_check(cloud: FakeOpenstack, tmp_path: Path) -> None:
    with pytest.raises(PreconditionError, match="region"):
        driver(cloud, tmp_path, region="elsewhere").list()


def test_a_page_that_leads_nowhere_is_an_error_and_no_endless_loop(tmp_path: Path) -> None:
    with FakeOpenstack(Project(page=0)) as cloud, pytest.raises(InternalError, match="page"):
        driver(cloud, tmp_path).list()
