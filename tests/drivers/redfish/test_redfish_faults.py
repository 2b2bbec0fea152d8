"""Whatever goes wrong with controllers: the right error, no second request, no host lost and none given to two."""

from __future__ import annotations

import socket
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.drivers.redfish.bmc import Bmc
from cloudgraft.drivers.redfish.options import RedfishHost
from cloudgraft.sdk.driver import Machine, MachineState
from cloudgraft.sdk.errors import (
    AuthenticationError,
    CloudgraftError,
    ConflictError,
    DeadlineError,
    InvalidArgumentError,
    OutOfStockError,
    PermissionDeniedError,
    PreconditionError,
    RateLimitedError,
    UnavailableError,
    UnsupportedError,
)
from tests.drivers.redfish.redfish_fake import READER, READER_PASSWORD, FakeRedfish, FakeSystem, Fault
from tests.drivers.redfish.redfish_stage import (
    hurry,
    images_in,
    only,
    redfish_driver,
    redfish_hosts,
    redfish_options,
    spec,
)
from tests.drivers.slow_server import HEAD, slow_server

ISO = "https://images.example.org/os.iso"
RESET = "Actions/ComputerSystem.Reset"
INSERT = "VirtualMedia.InsertMedia"


async def test_wrong_credentials_are_called_so_and_not_shown(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("a-password-that-is-wrong")
    with FakeRedfish(FakeSystem(id="h1")) as fake:
        driver = redfish_driver(fake, tmp_path, password_file=wrong)
        with pytest.raises(AuthenticationError, match="username and passwordFile") as caught:
            await driver.create(spec("a"))
        assert "a-password-that-is-wrong" not in str(caught.value)
        wrong.write_text("correct-horse-battery\n")  # taken up without a restart
        assert (await driver.create(spec("a"))).machine_id == "h1"


async def test_an_account_that_may_only_read_is_told_what_it_lacks_and_the_host_is_free(tmp_path: Path) -> None:
    reader = tmp_path / "reader"
    reader.write_text(READER_PASSWORD)
    with FakeRedfish(FakeSystem(id="h1")) as fake:
        driver = redfish_driver(fake, tmp_path, username=READER, password_file=reader)
        with pytest.raises(PermissionDeniedError, match="role Operator"):
            await driver.create(spec("a"))
        assert await driver.list() == []


@pytest.mark.parametrize(
    ("status", "message", "error"),
    [
        (409, "Base.1.5.ResourceInUse", ConflictError),
        (400, "Base.1.12.ActionNotSupported", UnsupportedError),
        (503, "Base.1.8.ServiceTemporarilyUnavailable", UnavailableError),
        (503, "Base.1.8.SessionLimitExceeded", RateLimitedError),
        (400, "iLO.2.14.UnableToModifyDuringSystemPOST", ConflictError),
        (400, "Contoso.1.0.Unheard", InvalidArgumentError),
    ],
)
async def test_a_refusal_has_its_class_and_frees_the_host(
    tmp_path: Path, status: int, message: str, error: type[CloudgraftError]
) -> None:
    with FakeRedfish(FakeSystem(id="h1")) as fake:
        fake.faults = [Fault(kind="error", part=RESET, status=status, message=message, headers={"Retry-After": "7"})]
        driver = redfish_driver(fake, tmp_path)
        with pytest.raises(error, match=message) as caught:
            await driver.create(spec("a"))
        assert type(caught.value) is error
        assert caught.value.retry_after == 7
        assert len(fake.changes()) == 1
        assert await driver.list() == []


@pytest.mark.parametrize("fault", [Fault(kind="reset after"), Fault(kind="error", status=500), Fault(kind="hang")])
async def test_a_switch_of_which_nobody_knows_what_it_did_is_made_once_and_keeps_the_host(
    tmp_path: Path, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeRedfish(FakeSystem(id="h1"), FakeSystem(id="h2")) as fake:
        fake.faults = [Fault(kind=fault.kind, status=fault.status, part=RESET, times=1)]
        hurry(monkeypatch, fake)
        driver = redfish_driver(fake, tmp_path)
        with pytest.raises(DeadlineError):
            await driver.create(spec("a"))
        assert len(fake.changes()) == 1
        shown = await only(driver)
        is_on = fault.kind == "reset after"
        assert shown.state is (MachineState.RUNNING if is_on else MachineState.PENDING)
        assert (await driver.create(spec("a"))).machine_id == "h1"
        assert fake.systems["h1"].history == ["On"]
        assert fake.systems["h2"].history == []


async def test_a_controller_that_is_away_leaves_its_machine_listed_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeRedfish(FakeSystem(id="h1"), FakeSystem(id="h2")) as fake:
        hurry(monkeypatch, fake)
        driver = redfish_driver(fake, tmp_path)
        for name in ("a", "b"):
            await driver.create(spec(name))
        for fault in (Fault(kind="reset"), Fault(kind="hang"), Fault(kind="garbage"), Fault(kind="error", status=502)):
            fake.faults = [Fault(kind=fault.kind, status=fault.status, part="Systems/h1")]
            first, second = await driver.list()
            assert first.state is second.state is MachineState.RUNNING
            assert first.reason.startswith("cannot be asked for its state")
            assert second.reason == ""
            with pytest.raises(CloudgraftError):  # nobody knows: it is not given back
                await driver.delete(first)
        fake.faults = []
        assert [machine.reason for machine in await driver.list()] == ["", ""]


async def test_a_host_whose_controller_is_away_is_passed_over_and_named(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1")) as fake:
        dead = RedfishHost(id="dead", url="http://127.0.0.1:9", system="/redfish/v1/Systems/1")
        driver = redfish_driver(fake, tmp_path, hosts=[dead, *redfish_hosts(fake)])
        assert (await driver.create(spec("a"))).machine_id == "h1"
        with pytest.raises(OutOfStockError, match=r"dead cannot be asked for its state: .*refused"):
            await driver.create(spec("b"))
        alone = redfish_driver(fake, tmp_path, hosts=[dead], state_file=tmp_path / "alone.json")
        with pytest.raises(UnavailableError, match="dead cannot be asked"):
            await alone.create(spec("c"))


async def test_a_host_whose_controller_was_away_is_tried_last_the_next_time(tmp_path: Path) -> None:
    with FakeRedfish(*(FakeSystem(id=one) for one in ("h1", "h2", "h3"))) as fake:
        fake.faults = [Fault(kind="reset", part="Systems/h1")]
        driver = redfish_driver(fake, tmp_path)
        assert (await driver.create(spec("a"))).machine_id == "h2"
        fake.requests.clear()
        assert (await driver.create(spec("b"))).machine_id == "h3"
        assert not [path for _, path in fake.requests if path.endswith("h1")]


async def test_a_controller_that_never_answers_costs_its_timeout_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with FakeRedfish(FakeSystem(id="h1")) as fake:
            hosts = [RedfishHost(id="silent", url=url, system="/redfish/v1/Systems/1"), *redfish_hosts(fake)]
            hurry(monkeypatch, fake, url)
            driver = redfish_driver(fake, tmp_path, hosts=hosts)
            assert (await driver.create(spec("a"))).machine_id == "h1"


async def test_an_answer_that_trickles_holds_no_thread_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with slow_server(HEAD) as url, FakeRedfish(FakeSystem(id="h1")) as fake:
        slow = RedfishHost(id="slow", url=url.rstrip("/"), system="/redfish/v1/Systems/1")
        hurry(monkeypatch, fake, url)
        driver = redfish_driver(fake, tmp_path, hosts=[slow, *redfish_hosts(fake)])
        assert (await driver.create(spec("a"))).machine_id == "h1"


def test_nobody_waits_for_ever_while_another_call_talks_to_the_same_controller(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1")) as fake:
        soon = {"timeout": timedelta(seconds=0.1), "connect_timeout": timedelta(seconds=0.1)}
        bmc = Bmc(redfish_hosts(fake)[0], redfish_options(fake, tmp_path, **soon))
        with bmc._lock:
            for call in (bmc.look, bmc.clear, lambda: bmc.switch_off(is_forced=True)):
                with pytest.raises(UnavailableError, match="at this moment"):
                    call()
        assert fake.requests == []


async def test_a_switch_is_not_sent_elsewhere_when_the_answer_says_so(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1"), FakeSystem(id="h2")) as fake:
        elsewhere = {"Location": f"{fake.url}/redfish/v1/Systems/h2/{RESET}"}
        fake.faults = [Fault(kind="error", part=f"h1/{RESET}", status=307, headers=elsewhere, times=1)]
        with pytest.raises(DeadlineError, match="leads elsewhere"):
            await redfish_driver(fake, tmp_path).create(spec("a"))
        assert fake.systems["h2"].history == []
        assert len(fake.changes()) == 1


async def test_a_free_host_that_is_on_is_somebodys_and_one_in_use_that_is_off_has_stopped(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1", power="On"), FakeSystem(id="h2")) as fake:
        driver = redfish_driver(fake, tmp_path, power_on_time=timedelta(0))
        assert (await driver.create(spec("a"))).machine_id == "h2"
        with pytest.raises(OutOfStockError, match="h1 is on already, and is not given out; taken are h2 by a"):
            await driver.create(spec("b"))
        fake.systems["h2"].power = "Off"
        assert (await only(driver)).state is MachineState.STOPPED
        assert fake.systems["h1"].history == []


async def test_a_host_that_somebody_switches_on_just_then_is_left_alone(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1")) as fake:
        driver = redfish_driver(fake, tmp_path)
        looked = driver._switch.free_state

        async def meanwhile(host: RedfishHost) -> object:
            state = await looked(host)
            fake.systems["h1"].power, fake.systems["h1"].media["Cd"] = "On", "https://example.org/theirs.iso"
            return state

        driver._switch.free_state = meanwhile  # type: ignore[method-assign,assignment]  # between two requests
        with pytest.raises(PreconditionError, match="by somebody else"):
            await driver.create(spec("a", image=ISO))
        assert fake.changes() == []
        assert await driver.list() == []


async def test_two_clusters_with_one_account_never_touch_each_others_hosts(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1"), FakeSystem(id="h2")) as fake:
        ours, theirs = redfish_driver(fake, tmp_path), redfish_driver(fake, tmp_path)
        await ours.create(spec("a", cluster="c1"))
        await theirs.create(spec("b", cluster="c2"))
        marks = {machine.name: machine.tags["cloudgraft-cluster-id"] for machine in await ours.list()}
        assert marks == {"a": "c1", "b": "c2"}
        await ours.delete(Machine(name="a", machine_id="h2"))  # late: the host serves another
        assert fake.systems["h2"].power == "On"
        with pytest.raises(OutOfStockError, match="taken are h1 by a, h2 by b"):
            await theirs.create(spec("c", cluster="c2"))


async def test_a_way_to_switch_that_is_not_offered_is_replaced_or_told(tmp_path: Path) -> None:
    systems = [FakeSystem(id="h1", resets=("ForceOn", "ForceOff")), FakeSystem(id="h2", resets=("PushPowerButton",))]
    with FakeRedfish(*systems) as fake:
        driver = redfish_driver(fake, tmp_path, graceful_time=timedelta(minutes=1))
        await driver.delete(await driver.create(spec("a")))
        assert fake.systems["h1"].history == ["ForceOn", "ForceOff"]
        fake.systems["h1"].power = "On"
        with pytest.raises(UnsupportedError, match="h2: its controller offers neither On nor ForceOn, but Push"):
            await driver.create(spec("b"))
        assert await driver.list() == []


async def test_a_boot_device_that_is_not_offered_is_told_and_nothing_is_switched(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1")) as fake:
        driver = redfish_driver(fake, tmp_path)
        with pytest.raises(UnsupportedError, match=r"cannot boot it from UefiHttp, but from Cd, Hdd, None, Pxe"):
            await driver.create(spec("a", boot="UefiHttp", httpBootUrl="https://example.org/shim.efi"))
        assert await driver.list() == []
        assert fake.systems["h1"].history == []


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(kind="error", status=400, message="Base.1.8.CouldNotEstablishConnection"), InvalidArgumentError),
        (Fault(kind="error", status=403, message="iLO.2.14.LicenseKeyRequired"), PreconditionError),
        (Fault(kind="error", status=500), UnavailableError),
        (Fault(kind="reset after"), UnavailableError),
    ],
)
async def test_media_that_are_refused_leave_the_host_off_empty_and_free(
    tmp_path: Path, fault: Fault, error: type[CloudgraftError]
) -> None:
    with FakeRedfish(FakeSystem(id="h1")) as fake:
        fake.faults = [Fault(kind=fault.kind, status=fault.status, message=fault.message, part=f"Usb/Actions/{INSERT}")]
        driver = redfish_driver(fake, tmp_path, seed_directory=tmp_path, seed_url="https://seeds.example.org")
        with pytest.raises(error) as caught:
            await driver.create(spec("a", image=ISO, user_data="a-secret-token"))
        assert type(caught.value) is error
        system = fake.systems["h1"]
        assert (system.history, system.media) == ([], {"Cd": "", "Usb": ""})
        assert images_in(tmp_path) == []
        assert await driver.list() == []


async def test_a_host_without_a_second_drive_is_told(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1", media={"Cd": ""})) as fake:
        driver = redfish_driver(fake, tmp_path, seed_directory=tmp_path, seed_url="https://seeds.example.org")
        with pytest.raises(UnsupportedError, match="too few virtual drives for 2 images: Cd"):
            await driver.create(spec("a", image=ISO, user_data="x"))


async def test_media_that_do_not_come_out_keep_the_host_until_they_do(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1")) as fake:
        driver = redfish_driver(fake, tmp_path)
        machine = await driver.create(spec("a", image=ISO))
        await driver.list()
        fake.faults = [Fault(kind="error", status=409, part="EjectMedia", message="Base.1.8.ResourceInUse")]
        with pytest.raises(ConflictError, match="does not eject Cd"):
            await driver.delete(machine)
        with pytest.raises(OutOfStockError):
            await driver.create(spec("b"))
        fake.faults = []
        await driver.delete(machine)
        assert await driver.list() == []


async def test_a_system_that_a_controller_does_not_know_is_no_machine_that_is_gone(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1")) as fake:
        driver = redfish_driver(fake, tmp_path)
        machine = await driver.create(spec("a"))
        fake.faults = [Fault(kind="error", status=404, part="Systems", message="Base.1.8.ResourceMissingAtURI")]
        with pytest.raises(PreconditionError, match="look at url and system"):
            await driver.delete(machine)
        assert (await only(driver)).name == "a"


async def test_a_controller_that_does_not_tell_the_power_is_not_believed(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1", power=None)) as fake:
        with pytest.raises(UnavailableError, match="does not tell whether it is on"):
            await redfish_driver(fake, tmp_path).create(spec("a"))
        assert fake.changes() == []


async def test_a_name_that_is_no_name_of_a_file_is_refused(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1")) as fake:
        driver = redfish_driver(fake, tmp_path, seed_directory=tmp_path, seed_url="https://seeds.example.org")
        with pytest.raises(InvalidArgumentError, match="cannot be the name of a file"):
            await driver.create(spec("../etc/passwd", user_data="x"))


async def test_what_a_crash_left_half_made_is_shown_and_is_taken_away_by_a_delete(tmp_path: Path) -> None:
    with FakeRedfish(FakeSystem(id="h1")) as fake:
        killed = redfish_driver(fake, tmp_path)
        killed._assignments.take(redfish_hosts(fake)[0], "a", {"cloudgraft-name": "a"}, {"media": "inserted"})
        fake.systems["h1"].media["Cd"] = ISO  # and then it was killed
        driver = redfish_driver(fake, tmp_path, power_on_time=timedelta(0))
        shown = await only(driver)
        assert (shown.name, shown.state) == ("a", MachineState.PENDING)
        await driver.delete(shown)
        assert await driver.list() == []
        assert fake.systems["h1"].media["Cd"] == ""
        assert fake.systems["h1"].history == []
