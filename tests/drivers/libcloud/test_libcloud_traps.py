"""Unsafe defaults of libcloud, and faults of the network; each over a socket."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from libcloud import security
from libcloud.compute.providers import DRIVERS
from libcloud.compute.types import Provider as LibcloudProvider

from cloudgraft.drivers.common.label_text import from_words, words
from cloudgraft.drivers.libcloud import wire as wires
from cloudgraft.drivers.libcloud.driver import LibcloudDriver
from cloudgraft.drivers.libcloud.google import Gce
from cloudgraft.drivers.libcloud.options import LibcloudOptions, MachineSettings
from cloudgraft.drivers.libcloud.providers import ADAPTERS, REFUSED
from cloudgraft.drivers.libcloud.wire import Wire
from cloudgraft.sdk.driver import Machine, Ownership
from cloudgraft.sdk.errors import (
    DeadlineError,
    InvalidArgumentError,
    PreconditionError,
    UnavailableError,
)
from cloudgraft.validation import read_settings
from clouds.servers.libcloud_cases import CLOUDS
from clouds.servers.libcloud_fake import Answer, Fake
from tests.drivers.libcloud.libcloud_driving import NAME, USER_DATA, driver, opened, spec
from tests.drivers.slow_server import HEAD, slow_server


@pytest.fixture
def ocean() -> Iterator[Fake]:
    with opened("DIGITAL_OCEAN") as fake:
        yield fake


# -- which clouds ------------------------------------------------------------------------------------------------------


def test_every_cloud_of_libcloud_is_served_or_refused() -> None:
    known = {name for name, value in vars(LibcloudProvider).items() if name.isupper() and value in DRIVERS}
    assert known == {*ADAPTERS, *REFUSED}
    assert not set(ADAPTERS) & set(REFUSED)
    assert set(CLOUDS) | {"OPENSTACK"} == set(ADAPTERS)  # each was exercised over a socket
    assert all(REFUSED.values())


@pytest.mark.parametrize("name", REFUSED)
def test_a_cloud_that_is_not_served_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        LibcloudOptions(provider=name, secret_file=Path("s"))
    assert REFUSED[name] in str(refused.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"provider": "digital-ocean"}, "did you mean DIGITAL_OCEAN"),
        ({"provider": "hetzner"}, "there is: EC2"),
        ({"provider": "OVH"}, "driver `openstack`"),
        ({"provider": "DIGITAL_OCEAN", "key": "k", "project": "p"}, "key is not used: remove it; project is not used"),
        ({"provider": "EC2"}, "key is missing; region is missing"),
        ({"provider": "VULTR", "endpoint": "http://api.example"}, "use https"),
        ({"provider": "VULTR", "endpoint": "https://me:secret@api.example"}, "without credentials"),
        ({"provider": "VULTR", "timeout": timedelta(0)}, "more than zero"),
        ({"provider": "VULTR", "list_delay": timedelta(-1)}, "not be negative"),
    ],
)
def test_options_that_cannot_work_are_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        LibcloudDriver(LibcloudOptions(secret_file=Path("s"), **given))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"shape": "s"}, "image: is missing"),
        ({"shape": "s", "image": ""}, "not empty"),
        ({"shape": "s", "image": "i", "networks": "n"}, "must be a list, not a string"),
        ({"shape": "s", "image": "i", "sshKeys": [""]}, "not empty"),
        ({"shape": "s", "image": "i", "diskSize": 0}, "at least 1"),
        ({"shape": "s", "image": "i", "zones": "x"}, "did you mean|zone"),
    ],
)
def test_settings_that_cannot_work_are_refused(given: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        read_settings(MachineSettings, given)


def test_what_a_cloud_cannot_do_is_refused_before_it_is_asked(ocean: Fake, tmp_path: Path) -> None:
    one = driver("DIGITAL_OCEAN", ocean, tmp_path)
    machine = CLOUDS["DIGITAL_OCEAN"].machine
    for changes, told in (
        ({"settings": {**machine, "securityGroups": ["x"]}}, "does not support machine.securityGroups"),
        ({"settings": {**machine, "zone": ""}}, "set machine.zone"),
        ({"name": "x" * 64}, "does not accept the machine name"),
        ({"user_data": "x" * 65537}, "user data has 65537 bytes"),
    ):
        with pytest.raises(InvalidArgumentError, match=told):
            one.create(spec("DIGITAL_OCEAN", **changes))
    assert ocean.asked == []


def test_where_no_marks_are_kept_the_name_is_the_proof(tmp_path: Path) -> None:
    for provider, case in CLOUDS.items():
        options = {"endpoint": "https://cloud.example/api", **case.options}
        one = LibcloudDriver(LibcloudOptions(provider=provider, secret_file=tmp_path / "s", **options))
        assert one.traits.ownership is (Ownership.TAGS if case.has_tags else Ownership.NAME)


def test_a_mark_that_lost_a_part_is_not_there() -> None:
    tags = {"long": "x" * 90, "short": "Ä b"}
    listed = words(tags, 50)
    assert from_words(listed) == tags
    assert all(len(word) <= 50 for word in listed)
    assert from_words(word for word in listed if not word.startswith("long_1")) == {"short": "Ä b"}


# -- the environment ---------------------------------------------------------------------------------------------------


def test_a_post_is_not_repeated_whatever_the_environment_says(
    ocean: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIBCLOUD_RETRY_FAILED_HTTP_REQUESTS", "false")  # to libcloud, that is a yes
    one = driver("DIGITAL_OCEAN", ocean, tmp_path)
    with ocean.trouble(method="POST", path="/v2/droplets", is_reset=True), pytest.raises(DeadlineError):
        one.create(spec("DIGITAL_OCEAN"))
    assert len(ocean.sent("POST", "/v2/droplets")) == 1
    assert [machine.name for machine in one.list()] == [NAME]


def test_a_log_of_all_secrets_is_refused_at_the_start(
    ocean: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIBCLOUD_DEBUG", str(tmp_path / "log"))
    with pytest.raises(PreconditionError, match="LIBCLOUD_DEBUG"):
        driver("DIGITAL_OCEAN", ocean, tmp_path).start()


def test_tls_is_checked_whatever_the_process_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "VERIFY_SSL_CERT", False)
    limits: dict[str, Any] = {"connect_timeout": timedelta(1), "timeout": timedelta(1), "changes": lambda _: False}
    assert Wire(ca_file=None, **limits).connection("cloud.example", 443).verification is True
    ours = Wire(ca_file=tmp_path / "ca.pem", **limits).connection("cloud.example", 443)
    assert ours.verification == str(tmp_path / "ca.pem")


def test_a_login_of_the_netrc_file_is_not_taken(ocean: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert driver("DIGITAL_OCEAN", ocean, tmp_path).list() == []


def test_a_pricing_file_of_the_user_changes_nothing(
    ocean: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".libcloud").mkdir()
    (tmp_path / ".libcloud" / "pricing.json").write_text('{"compute": {}}')
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(driver("DIGITAL_OCEAN", ocean, tmp_path).prices()) == 2


# -- threads -----------------------------------------------------------------------------------------------------------


def test_each_thread_has_a_driver_of_its_own_and_gets_its_own_answers(ocean: Fake, tmp_path: Path) -> None:
    one = driver("DIGITAL_OCEAN", ocean, tmp_path)
    names = [f"lab-{number}" for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        made: list[Machine] = list(pool.map(lambda name: one.create(spec("DIGITAL_OCEAN", name=name)), names))
    assert [machine.name for machine in made] == names
    assert {machine.machine_id: machine.name for machine in made} == {
        number: str(droplet["name"]) for number, droplet in ocean.cloud.machines.items()
    }


def test_a_driver_is_made_in_the_thread_that_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    connect: Callable[..., Any] = Gce.connect

    def noted(self: Gce, wire: Wire, secret: str) -> Any:
        made.append(threading.get_ident())
        return connect(self, wire, secret)

    monkeypatch.setattr(Gce, "connect", noted)
    with opened("GCE") as fake, ThreadPoolExecutor(1) as pool:
        one = driver("GCE", fake, tmp_path)
        one.start()
        assert fake.asked == []
        ident = pool.submit(threading.get_ident).result()
        pool.submit(one.list).result()
        pool.submit(one.list).result()
    assert made == [ident]


# -- time --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", CLOUDS)
def test_a_cloud_that_hangs_is_given_up(provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    send = wires._Adapter.send
    method, path = CLOUDS[provider].create

    def hurried(adapter: wires._Adapter, request: requests.PreparedRequest, *args: Any, **more: Any) -> Any:
        """What is on its way to the create may take its time: only what hangs must not."""
        if request.method == method and path in str(request.url):
            adapter._wire.timeout = timedelta(seconds=0.3)
        return send(adapter, request, *args, **more)

    with opened(provider) as fake:
        one = driver(provider, fake, tmp_path)
        one.list()
        monkeypatch.setattr(wires._Adapter, "send", hurried)
        held = threading.Event()
        with fake.trouble(method=method, path=path, hold=held), pytest.raises(DeadlineError):
            one.create(spec(provider))


def test_an_answer_that_trickles_is_given_up(tmp_path: Path) -> None:
    """A byte now and then would hold one of the driver's few threads for ever."""
    (tmp_path / "secret").write_text("a-token")
    with slow_server(HEAD) as url:
        options = LibcloudOptions(
            provider="VULTR", secret_file=tmp_path / "secret", endpoint=url, timeout=timedelta(seconds=0.3)
        )
        with pytest.raises(UnavailableError):
            LibcloudDriver(options).list()


def test_a_job_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    send, now = wires._Adapter.send, [0.0]

    def sent(adapter: wires._Adapter, request: requests.PreparedRequest, *args: Any, **more: Any) -> Any:
        """Hours pass while it asks for the job, and no time before."""
        if "queryAsyncJobResult" in str(request.url):
            now[0] += 3600.0
        return send(adapter, request, *args, **more)

    monkeypatch.setattr(wires, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with opened("CLOUDSTACK") as fake:
        one = driver("CLOUDSTACK", fake, tmp_path)
        monkeypatch.setattr(wires._Adapter, "send", sent)
        pending = Answer(200, {"queryasyncjobresultresponse": {"jobstatus": 0}})
        with fake.trouble(method="GET", path="queryAsyncJobResult", answer=pending), pytest.raises(DeadlineError):
            one.create(spec("CLOUDSTACK"))
        assert len(one.list()) == 1


def test_a_wire_sends_nothing_when_the_time_is_over() -> None:
    wire = Wire(connect_timeout=timedelta(1), timeout=timedelta(1), ca_file=None, changes=lambda _: True)
    wire.begin(timedelta(0))
    with pytest.raises(requests.Timeout):
        wire.connection("127.0.0.1", 9).request("GET", "/")
    assert wire.exchanges == []


@pytest.mark.parametrize(("provider", "path"), [("CLOUDSIGMA", "/servers/detail/"), ("KUBEVIRT", "/virtualmachines")])
def test_unreadable_response_is_not_shown_with_its_user_data(provider: str, path: str, tmp_path: Path) -> None:
    user_data = base64.b64encode(USER_DATA.encode()).decode()
    cut = Answer(200, f'{{"objects": [{{"meta": {{"cloudinit-user-data": "{user_data}"')
    with (
        opened(provider) as fake,
        fake.trouble(method="GET", path=path, answer=cut),
        pytest.raises(UnavailableError, match="cannot read the response") as caught,
    ):
        driver(provider, fake, tmp_path).list()
    assert user_data not in str(caught.value)


@pytest.mark.parametrize("provider", ["CLOUDSTACK", "EUCALYPTUS", "KUBEVIRT"])
def test_an_endpoint_may_be_an_address_of_ipv6(provider: str, tmp_path: Path) -> None:
    with opened(provider) as fake, pytest.raises(UnavailableError) as caught:
        driver(provider, fake, tmp_path, endpoint="http://[::1]:9/api").list()
    assert "InvalidURL" not in str(caught.value)
