"""Faults of a cloud or the network, and the errors that they become; each over a socket."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

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
from clouds.servers.libcloud_cases import CLOUDS, google_key
from clouds.servers.libcloud_clouds import TOKEN
from clouds.servers.libcloud_fake import Answer, Asked, Fake
from clouds.servers.libcloud_job_clouds import FakeCloudstack, FakeEc2, FakeGce
from tests.drivers.libcloud.libcloud_driving import USER_DATA, driver, opened, spec


@pytest.fixture
def ocean() -> Iterator[Fake]:
    with opened("DIGITAL_OCEAN") as fake:
        yield fake


# -- errors ------------------------------------------------------------------------------------------------------------


def failure(provider: str, fake: Fake, directory: Path, answer: Answer) -> CloudgraftError:
    method, path = CLOUDS[provider].create
    one = driver(provider, fake, directory)
    with fake.trouble(method=method, path=path, answer=answer), pytest.raises(CloudgraftError) as caught:
        one.create(spec(provider))
    return caught.value


@pytest.mark.parametrize("provider", CLOUDS)
def test_a_server_that_failed_leaves_the_outcome_open(provider: str, tmp_path: Path) -> None:
    with opened(provider) as fake:
        page = Answer(502, "<html><body>Bad Gateway</body></html>")
        error = failure(provider, fake, tmp_path, page)
        assert type(error) is DeadlineError
        assert "Bad Gateway" in error.message
        assert "a-very-secret-token" not in str(error)


@pytest.mark.parametrize("provider", CLOUDS)
def test_rate_limit_has_retry_after(provider: str, tmp_path: Path) -> None:
    with opened(provider) as fake:
        error = failure(provider, fake, tmp_path, Answer(429, {"message": "slow down"}, {"Retry-After": "7"}))
        assert (type(error), error.retry_after) == (RateLimitedError, 7.0)


@pytest.mark.parametrize("provider", CLOUDS)
def test_a_list_is_whole_or_an_error(provider: str, tmp_path: Path) -> None:
    with opened(provider) as fake:
        one = driver(provider, fake, tmp_path)
        one.create(spec(provider))
        one.list()
        path = fake.asked[-1].path
        method = fake.asked[-1].method
        with fake.trouble(method=method, path=path, is_half=True), pytest.raises(UnavailableError):
            one.list()
        bodies: tuple[Any, ...] = ({}, "<html>", "null")
        for body in bodies:
            with fake.trouble(method=method, path=path, answer=Answer(200, body)):
                if provider == "GCE" and body == {}:
                    continue  # a project without zones does not exist, but Google leaves out what is empty
                with pytest.raises(CloudgraftError):
                    one.list()
        later = Answer(503, {"message": "later"})
        with fake.trouble(method=method, path=path, answer=later), pytest.raises(UnavailableError):
            one.list()


def test_incomplete_page_is_an_error(ocean: Fake, tmp_path: Path) -> None:
    one = driver("DIGITAL_OCEAN", ocean, tmp_path)
    one.create(spec("DIGITAL_OCEAN"))
    short = Answer(200, {"droplets": [], "meta": {"total": 4}})
    with ocean.trouble(method="GET", path="/v2/droplets", answer=short), pytest.raises(ConflictError):
        one.list()


EC2 = "<Response><Errors><Error><Code>{}</Code><Message>no</Message></Error></Errors></Response>"
REFUSALS: list[tuple[str, int, Any, type[CloudgraftError]]] = [
    (
        "DIGITAL_OCEAN",
        422,
        {"message": "creating this/these droplet(s) will exceed your droplet limit"},
        QuotaExceededError,
    ),
    ("DIGITAL_OCEAN", 422, {"message": "Size is not available in this region."}, OutOfStockError),
    ("DIGITAL_OCEAN", 403, {"id": "forbidden", "message": "You are not authorized"}, PermissionDeniedError),
    (
        "LINODE",
        400,
        {"errors": [{"reason": "Account Limit reached. Please open a support ticket."}]},
        QuotaExceededError,
    ),
    ("LINODE", 403, {"errors": [{"reason": "Unauthorized"}]}, PermissionDeniedError),
    ("CLOUDSCALE", 400, {"flavor": ["Object with slug does not exist."]}, InvalidArgumentError),
    ("CLOUDSCALE", 400, {"detail": {"nested": ["The server limit reached"]}}, QuotaExceededError),
    ("VULTR", 400, {"error": "Plan is not available in the selected region.", "status": 400}, OutOfStockError),
    (
        "BRIGHTBOX",
        403,
        {"error_name": "account_limit_exceeded", "errors": ["Account limit reached"]},
        QuotaExceededError,
    ),
    ("GCE", 403, {"error": {"message": "no", "errors": [{"reason": "quotaExceeded"}]}}, QuotaExceededError),
    ("GCE", 403, {"error": {"message": "no", "errors": [{"reason": "rateLimitExceeded"}]}}, RateLimitedError),
    ("GCE", 409, {"error": {"message": "no", "errors": [{"reason": "alreadyExists"}]}}, AlreadyExistsError),
    ("CLOUDSTACK", 535, {"r": {"errortext": "Maximum number of resources of type 'user_vm'"}}, QuotaExceededError),
    ("RACKSPACE", 403, {"forbidden": {"code": 403, "message": "Quota exceeded for ram"}}, QuotaExceededError),
    ("EC2", 500, EC2.format("InsufficientInstanceCapacity"), OutOfStockError),
    ("EC2", 400, EC2.format("VcpuLimitExceeded"), QuotaExceededError),
    ("EC2", 503, EC2.format("RequestLimitExceeded"), RateLimitedError),
    ("EC2", 403, EC2.format("UnauthorizedOperation"), PermissionDeniedError),
    # A page of a proxy: its words do not prove that the cloud did nothing.
    ("DIGITAL_OCEAN", 503, "<html>Error 1102: Worker exceeded resource limits</html>", DeadlineError),
    ("DIGITAL_OCEAN", 502, "<html>upstream: connection limit exceeded</html>", DeadlineError),
    ("EC2", 400, EC2.format("InvalidAMIID.NotFound"), InvalidArgumentError),
]


@pytest.mark.parametrize(("provider", "status", "body", "error"), REFUSALS)
def test_a_refusal_has_its_class(
    provider: str, status: int, body: Any, error: type[CloudgraftError], tmp_path: Path
) -> None:
    with opened(provider) as fake:
        assert type(failure(provider, fake, tmp_path, Answer(status, body))) is error


def test_a_list_is_read_again_when_the_last_server_of_a_page_is_gone(tmp_path: Path) -> None:
    with opened("RACKSPACE") as fake:
        one = driver("RACKSPACE", fake, tmp_path)
        for number in range(4):
            one.create(spec("RACKSPACE", name=f"lab-{number}"))
        gone = list(fake.cloud.machines)[2]  # the last one of the first page
        answer = fake.cloud.answer

        def and_delete(asked: Asked) -> Answer:
            found = answer(asked)
            if asked.path.endswith("/servers/detail"):
                fake.cloud.machines.pop(gone, None)
            return found

        fake.cloud.answer = and_delete  # type: ignore[method-assign]
        assert [machine.name for machine in one.list()] == ["lab-0", "lab-1", "lab-3"]


def test_server_that_nova_shows_twice_is_listed_once(tmp_path: Path) -> None:
    with opened("RACKSPACE") as fake:
        one = driver("RACKSPACE", fake, tmp_path)
        one.create(spec("RACKSPACE"))
        again = Answer(200, {"servers": list(fake.cloud.machines.values())})
        with fake.trouble(method="GET", path="/servers/detail", answer=again):
            assert len(one.list()) == 1
        full = {**again.body, "servers_links": [{"rel": "next", "href": "https://x/?marker=1"}]}
        more = Answer(200, full)  # may be behind it
        with fake.trouble(method="GET", path="/servers/detail", answer=more), pytest.raises(ConflictError):
            one.list()


def test_user_data_is_in_no_message_though_a_cloud_repeats_it(tmp_path: Path) -> None:
    encoded = quote(base64.b64encode(USER_DATA.encode()).decode(), safe="")
    said = f"The request: Action=RunInstances&UserData={encoded}&ImageId=ami-1 and {USER_DATA}"
    refusal = f"<R><Errors><Error><Code>SignatureDoesNotMatch</Code><Message>{said}</Message></Error></Errors></R>"
    with opened("EC2") as fake:
        error = failure("EC2", fake, tmp_path, Answer(403, refusal.replace("&", "&amp;")))
    assert type(error) is AuthenticationError
    assert encoded[:30] not in error.message
    assert "a-very-secret-token" not in error.message
    assert "ImageId=ami-1" in error.message


def test_wrong_clock_is_named_in_the_error(tmp_path: Path) -> None:
    with opened("EC2") as fake:
        error = failure("EC2", fake, tmp_path, Answer(400, EC2.format("RequestExpired")))
    assert type(error) is AuthenticationError
    assert "clock" in error.message


def test_a_cloud_that_cannot_be_reached_did_nothing(tmp_path: Path) -> None:
    with opened("DIGITAL_OCEAN") as fake:
        one = driver("DIGITAL_OCEAN", fake, tmp_path)
    with pytest.raises(UnavailableError, match="Nothing was done"):
        one.create(spec("DIGITAL_OCEAN"))
    with pytest.raises(UnavailableError):
        one.list()


def test_a_second_linode_of_one_name_is_refused(tmp_path: Path) -> None:
    with opened("LINODE") as fake:
        one = driver("LINODE", fake, tmp_path)
        one.create(spec("LINODE"))
        with pytest.raises(AlreadyExistsError):
            one.create(spec("LINODE"))


def test_a_second_order_with_one_token_is_the_first_machine(tmp_path: Path) -> None:
    with opened("EC2") as fake:
        one = driver("EC2", fake, tmp_path)
        assert one.create(spec("EC2")).machine_id == one.create(spec("EC2")).machine_id
        assert isinstance(fake.cloud, FakeEc2)
        assert all("UserData" not in asked.query for asked in fake.asked)  # secrets are not in a URL


def test_created_server_is_known_although_reading_it_failed(tmp_path: Path) -> None:
    with opened("RACKSPACE") as fake:  # its fake answers 503 to that look
        made = driver("RACKSPACE", fake, tmp_path).create(spec("RACKSPACE"))
        assert made.machine_id in fake.cloud.machines


# -- logins ------------------------------------------------------------------------------------------------------------


def test_a_new_secret_is_used_when_the_file_changes(ocean: Fake, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("an-old-token")
    one = driver("DIGITAL_OCEAN", ocean, tmp_path)
    with pytest.raises(CloudgraftError) as refused:
        one.list()
    assert "an-old-token" not in str(refused.value)
    file.write_text(TOKEN)
    os.utime(file, ns=(1, 1))
    assert one.list() == []


def test_refused_token_is_replaced(tmp_path: Path) -> None:
    with opened("BRIGHTBOX") as fake:
        one = driver("BRIGHTBOX", fake, tmp_path)
        one.list()
        mine = one._threads.mine
        mine.cloud.connection.token = "expired"
        assert one.list() == []
        assert len(fake.sent("POST", "/token")) == 2


# -- Google and CloudStack: work that fails later ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("ZONE_RESOURCE_POOL_EXHAUSTED", OutOfStockError),
        ("QUOTA_EXCEEDED", QuotaExceededError),
        ("X", UnavailableError),
    ],
)
def test_failed_operation_has_the_error_of_its_code(code: str, error: type[CloudgraftError], tmp_path: Path) -> None:
    with opened("GCE") as fake:
        assert isinstance(fake.cloud, FakeGce)
        fake.cloud.failure = {"error": {"errors": [{"code": code, "message": "it did not work"}]}}
        with pytest.raises(error, match="it did not work"):
            driver("GCE", fake, tmp_path).create(spec("GCE"))
        assert fake.cloud.machines == {}


def test_a_zone_that_does_not_answer_makes_a_list_an_error(tmp_path: Path) -> None:
    with opened("GCE") as fake:
        assert isinstance(fake.cloud, FakeGce)
        fake.cloud.unreachable = "zones/us-east1-b"
        with pytest.raises(UnavailableError, match="us-east1-b"):
            driver("GCE", fake, tmp_path).list()


def test_a_google_login_needs_a_key_and_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    with opened("GCE") as fake:
        (tmp_path / "secret").write_text("no key at all")
        with pytest.raises(PreconditionError, match="JSON key"):
            driver("GCE", fake, tmp_path).start()
        (tmp_path / "secret").write_text(google_key().replace("BEGIN", "BEGUN"))
        with pytest.raises(CloudgraftError) as refused:
            driver("GCE", fake, tmp_path).list()
        assert "PRIVATE KEY" not in str(refused.value)
        (tmp_path / "secret").write_text(google_key())
        driver("GCE", fake, tmp_path).list()
    assert list((tmp_path / "home").iterdir()) == []  # no token in a file


@pytest.mark.parametrize(
    ("text", "error"),
    [("Insufficient capacity in the zone", OutOfStockError), ("it fell over", UnavailableError)],
)
def test_a_job_that_failed_leaves_nothing_behind(text: str, error: type[CloudgraftError], tmp_path: Path) -> None:
    with opened("CLOUDSTACK") as fake:
        assert isinstance(fake.cloud, FakeCloudstack)
        fake.cloud.failure = text
        with pytest.raises(error, match=text):
            driver("CLOUDSTACK", fake, tmp_path).create(spec("CLOUDSTACK"))
        assert fake.cloud.machines == {}
        (deleted,) = fake.sent("GET", "destroyVirtualMachine")
        assert deleted.query["expunge"] == "True"


def test_a_job_that_failed_and_cannot_be_cleared_away_is_unknown(tmp_path: Path) -> None:
    with opened("CLOUDSTACK") as fake:
        assert isinstance(fake.cloud, FakeCloudstack)
        fake.cloud.failure = "Insufficient capacity"
        refused = Answer(530, {"destroyvirtualmachineresponse": {"errortext": "not now"}})
        with fake.trouble(method="GET", path="destroyVirtualMachine", answer=refused), pytest.raises(DeadlineError):
            driver("CLOUDSTACK", fake, tmp_path).create(spec("CLOUDSTACK"))
