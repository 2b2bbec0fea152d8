"""What goes wrong between us and a cluster: what it means, what is left, and that nothing is made twice."""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.drivers.proxmox.driver import ProxmoxDriver
from cloudgraft.drivers.proxmox.inventory import vmid_of
from cloudgraft.sdk.driver import Machine, MachineState
from cloudgraft.sdk.errors import (
    AuthenticationError,
    CloudgraftError,
    DeadlineError,
    InvalidArgumentError,
    OutOfStockError,
    PermissionDeniedError,
    PreconditionError,
    RateLimitedError,
    UnavailableError,
)
from cloudgraft.sdk.secrecy import redacted
from clouds.servers.proxmox_fake import Cluster, FakeProxmox, Fault, Kind
from tests.drivers.proxmox.proxmox_stage import hurry, proxmox_driver, soon, spec
from tests.drivers.slow_server import HEAD, slow_server

DATA = "#cloud-config\nruncmd: [join 0123456789abcdef]\n"
MORE = (Kind.RESET, Kind.HALF_BODY, Kind.ERROR_AFTER)
STEPS = ("/clone$", "/upload$", "/resize$", "/config$", "/status/start$")


@pytest.mark.parametrize(
    ("message", "error", "told"),
    [
        ("Permission check failed (/vms/9001, VM.Clone)", PermissionDeniedError, "give the user"),
        ("cluster not ready - no quorum?", UnavailableError, "half of them"),
        ("Linked clone feature is not supported for 'x' (scsi0)", InvalidArgumentError, "fullClone"),
        ("no space left on device", OutOfStockError, "room"),
        ("storage 'x' does not exist", InvalidArgumentError, "seedStorage"),
    ],
)
def test_a_refused_clone_has_the_class_of_its_cause_and_says_what_to_do(
    fake: FakeProxmox, driver: ProxmoxDriver, message: str, error: type[CloudgraftError], told: str
) -> None:
    status = 403 if "Permission" in message else 500
    fake.faults.order(Fault(kind=Kind.ERROR, method="POST", path="/clone", status=status, message=message))
    with pytest.raises(CloudgraftError, match=told) as refused:
        driver.create(spec("one"))
    assert type(refused.value) is error
    assert message in refused.value.message
    assert fake.count("POST", "/clone") == 1, "it is sent once"


def test_a_clone_that_a_server_failed_at_is_open_and_repeated_a_few_times_for_the_same_vmid(
    fake: FakeProxmox, driver: ProxmoxDriver
) -> None:
    unknown = "something that nobody knows"
    fake.faults.order(Fault(kind=Kind.ERROR, method="POST", path="/clone", message=unknown, times=-1))
    with pytest.raises(DeadlineError, match=unknown):
        driver.create(spec("one"))
    assert fake.count("POST", "/clone") == 3


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", [Kind.RESET_AFTER, *(pytest.param(kind, marks=pytest.mark.thorough) for kind in MORE)])
def test_an_answer_that_gets_lost_at_any_step_makes_neither_two_machines_nor_half_a_one(
    fake: FakeProxmox, driver: ProxmoxDriver, step: str, kind: Kind
) -> None:
    fake.faults.order(Fault(kind=kind, method="POST" if "resize" not in step else "PUT", path=step))
    made = driver.create(spec("one", user_data=DATA))
    assert fake.cluster.alive() == fake.cluster.ever == ["one"]
    guest = fake.cluster.guests[int(made.machine_id)]
    assert guest.is_running
    assert "size=20G" in guest.config["scsi0"]
    assert guest.config["ide2"].startswith("local:iso/one.iso")
    driver.delete(made)
    assert not fake.cluster.leftovers()


@pytest.mark.parametrize("step", STEPS[1:])
def test_a_step_that_fails_for_good_leaves_nothing(fake: FakeProxmox, driver: ProxmoxDriver, step: str) -> None:
    method = "POST" if "resize" not in step else "PUT"
    fake.faults.order(Fault(kind=Kind.TASK, method=method, path=step, message="QEMU exited with code 1"))
    with pytest.raises(PreconditionError, match="QEMU exited"):
        driver.create(spec("one", user_data=DATA))
    assert not fake.cluster.alive()
    assert not fake.cluster.leftovers()


def test_a_clone_that_fails_is_gone_and_says_why(fake: FakeProxmox, driver: ProxmoxDriver) -> None:
    told = "clone failed: lvcreate error: insufficient free space"
    fake.faults.order(Fault(kind=Kind.TASK, path="/clone", message=told))
    with pytest.raises(OutOfStockError, match="make room"):
        driver.create(spec("one"))
    assert not fake.cluster.alive()
    driver.create(spec("one"))


@pytest.mark.parametrize(
    ("path", "right"),
    [
        ("/vms/9", "VM.Clone"),
        pytest.param("/vms/", "VM.Allocate", marks=pytest.mark.thorough),
        pytest.param("/storage/local-lvm", "Datastore.AllocateSpace", marks=pytest.mark.thorough),
        ("/storage/local", "Datastore.AllocateTemplate"),
        ("/vms/", "VM.Config.Options"),
        pytest.param("/vms/", "VM.Config.CDROM", marks=pytest.mark.thorough),
        pytest.param("/vms/", "VM.PowerMgmt", marks=pytest.mark.thorough),
    ],
)
def test_a_right_that_is_missing_is_named(fake: FakeProxmox, driver: ProxmoxDriver, path: str, right: str) -> None:
    fake.cluster.denied.add((path, right))
    with pytest.raises((PermissionDeniedError, DeadlineError), match=right) as refused:
        driver.create(spec("one", user_data=DATA))
    fake.cluster.denied.clear()
    if isinstance(refused.value, PermissionDeniedError):
        assert not fake.cluster.alive()
    if fake.cluster.alive():
        driver.delete(driver.create(spec("one", user_data=DATA)))
    assert not fake.cluster.leftovers()


def test_a_cd_that_may_not_be_removed_keeps_no_machine_alive(fake: FakeProxmox, driver: ProxmoxDriver) -> None:
    made = driver.create(spec("one", user_data=DATA))
    fake.cluster.denied.add(("/storage/local", "Datastore.Allocate"))
    with pytest.raises(PermissionDeniedError, match=r"local:iso/one\.iso is left"):
        driver.delete(made)
    assert not fake.cluster.alive()


AWAY = Fault(kind=Kind.ERROR, method="DELETE", path="/content/", message="storage 'local' is not online", times=-1)


def test_a_storage_that_is_away_keeps_no_machine_alive_that_has_no_cd(fake: FakeProxmox, driver: ProxmoxDriver) -> None:
    made = driver.create(spec("one"))
    fake.faults.order(AWAY)
    driver.delete(made)
    assert not fake.cluster.alive()


@pytest.mark.parametrize("is_set_up", [True, False])
def test_a_machine_whose_cd_may_be_on_a_storage_that_is_away_stays_until_it_is_back(
    fake: FakeProxmox, driver: ProxmoxDriver, is_set_up: bool
) -> None:
    """Its CD holds secrets, and nobody would know of it any more."""
    made = driver.create(spec("one", user_data=DATA))
    config = fake.cluster.guests[int(made.machine_id)].config
    if not is_set_up:
        del config["tags"]
        config["ide2"] = "none,media=cdrom"
    fake.faults.order(AWAY)
    with pytest.raises(UnavailableError, match="is not online"):
        driver.delete(made)
    assert fake.cluster.alive() == ["one"]
    fake.faults.order()
    driver.delete(made)
    assert not fake.cluster.leftovers()


def test_rights_that_come_with_the_pool_are_enough(fake: FakeProxmox, tmp_path: Path) -> None:
    fake.cluster.is_pool_only = True
    driver = proxmox_driver(fake, tmp_path, pool="kubernetes")
    made = driver.create(spec("one", user_data=DATA))
    assert [one.name for one in driver.list()] == ["one"]
    driver.delete(made)
    assert not fake.cluster.alive()


def test_a_create_that_meets_a_clone_under_way_waits_for_it(tmp_path: Path) -> None:
    with FakeProxmox(Cluster(clone_time=math.inf)) as fake:
        one, two = proxmox_driver(fake, tmp_path), proxmox_driver(fake, tmp_path)
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(one.create, spec("one", user_data=DATA))
            soon(lambda: fake.cluster.ever, "the clone is under way")
            (machine,) = two.list()
            assert (machine.name, machine.state) == ("", MachineState.PENDING), "it has no name yet"
            looked = fake.count("GET", f"/qemu/{machine.machine_id}/config")
            second = pool.submit(two.create, spec("one", user_data=DATA))
            soon(lambda: fake.count("GET", f"/qemu/{machine.machine_id}/config") > looked, "it has met the clone")
            fake.cluster.let_go()
            assert first.result().machine_id == second.result().machine_id
        assert fake.cluster.ever == ["one"]


def test_a_machine_on_another_node_is_met_by_the_clone_that_fails_there(
    fake: FakeProxmox, driver: ProxmoxDriver, tmp_path: Path
) -> None:
    """Its VMID is taken by ours of before, which this account cannot see in the list; the worker finds out."""
    made = driver.create(spec("one"))
    fake.cluster.denied.add((f"/vms/{made.machine_id}", "VM.Audit"))
    where = fake.cluster.guests[int(made.machine_id)].node
    other = next(node for node in fake.cluster.nodes if node != where)
    fake.cluster.task_time = 0.0  # the worker has failed before anybody asks: no time is spent on it
    hasty = proxmox_driver(fake, tmp_path, nodes=[other], create_timeout=timedelta(seconds=0.3))
    with pytest.raises(DeadlineError, match="is not whole"):
        hasty.create(spec("one"))
    assert fake.cluster.ever == ["one"]


def test_a_delete_waits_until_the_clone_is_whole(tmp_path: Path) -> None:
    with FakeProxmox(Cluster(clone_time=math.inf)) as fake:
        driver = proxmox_driver(fake, tmp_path)
        hasty = proxmox_driver(fake, tmp_path, create_timeout=timedelta(seconds=0.1))
        with pytest.raises(DeadlineError):
            hasty.create(spec("one"))
        made = Machine(name="one", machine_id=str(vmid_of("one", 100_000_000, 999_999_999)))
        with ThreadPoolExecutor(1) as pool:
            going = pool.submit(driver.delete, made)
            soon(lambda: fake.count("GET", f"/qemu/{made.machine_id}/config") > 1, "it has looked more than once")
            assert fake.cluster.alive()
            fake.cluster.let_go()
            going.result()
        assert not fake.cluster.alive()


def test_a_lock_that_goes_away_is_waited_for(fake: FakeProxmox, driver: ProxmoxDriver) -> None:
    locked = Fault(kind=Kind.ERROR, method="POST", path="/(config|start)$", message="VM is locked (backup)", times=3)
    fake.faults.order(locked)
    made = driver.create(spec("one"))
    assert fake.cluster.guests[int(made.machine_id)].is_running


def test_a_machine_that_is_deleted_while_it_is_made_is_no_half_machine(
    fake: FakeProxmox, driver: ProxmoxDriver
) -> None:
    gone = "Configuration file 'nodes/pve1/qemu-server/1.conf' does not exist"
    fake.faults.order(Fault(kind=Kind.ERROR, method="POST", path="/config$", message=gone))
    with pytest.raises(CloudgraftError, match="deleted while it was made"):
        driver.create(spec("one", user_data=DATA))
    assert not fake.cluster.alive()
    assert not fake.cluster.leftovers()


def test_a_cluster_that_goes_away_after_a_lost_answer_leaves_the_outcome_open(
    fake: FakeProxmox, driver: ProxmoxDriver
) -> None:
    lost = Fault(kind=Kind.RESET_AFTER, path="/clone")
    away = Fault(kind=Kind.ERROR, path="/cluster/resources", status=503, times=-1)
    first = Fault(kind=Kind.TASK, path="/cluster/resources")  # the first list is answered, as if nothing were ordered
    fake.faults.order(first, lost, away)
    with pytest.raises(DeadlineError, match="earlier try"):
        driver.create(spec("one"))


# -- the connection ----------------------------------------------------------------------------------------------------


def test_a_rate_limit_says_when_to_come_again(fake: FakeProxmox, driver: ProxmoxDriver) -> None:
    fake.faults.order(Fault(kind=Kind.ERROR, status=429, headers={"Retry-After": "42"}))
    with pytest.raises(RateLimitedError) as refused:
        driver.list()
    assert refused.value.retry_after == 42


@pytest.mark.parametrize("kind", [Kind.HALF_BODY, Kind.GARBAGE, Kind.RESET, Kind.ERROR])
def test_half_a_list_is_no_list(fake: FakeProxmox, driver: ProxmoxDriver, kind: Kind) -> None:
    driver.create(spec("one"))
    fake.faults.order(Fault(kind=kind, path="/cluster/resources", status=596))
    with pytest.raises(UnavailableError):
        driver.list()
    assert len(driver.list()) == 1


def test_a_cluster_that_hangs_is_given_up(
    fake: FakeProxmox, driver: ProxmoxDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch, "cluster/resources$")
    fake.faults.order(Fault(kind=Kind.HANG, path="/cluster/resources"))
    with pytest.raises(UnavailableError):
        driver.list()
    monkeypatch.undo()
    hurry(monkeypatch, "/clone$")
    fake.faults.order(Fault(kind=Kind.HANG_AFTER, path="/clone"))
    driver.create(spec("one"))
    monkeypatch.undo()
    machines = r"/qemu/\d{9}/config$"  # and no template's
    hurry(monkeypatch, machines)
    fake.faults.order(Fault(kind=Kind.HANG, path=machines, times=-1))
    with pytest.raises(DeadlineError):
        proxmox_driver(fake, tmp_path, create_timeout=timedelta(seconds=0.5)).create(spec("two"))


@pytest.mark.parametrize("user", ["", "by-password@pve"])
def test_an_answer_that_trickles_is_given_up(fake: FakeProxmox, tmp_path: Path, user: str) -> None:
    """A byte now and then would hold one of the driver's few threads for ever."""
    more = {"user": user} if user else {}
    with slow_server(HEAD) as url, pytest.raises(UnavailableError):
        proxmox_driver(fake, tmp_path, url=url.rstrip("/"), timeout=timedelta(seconds=0.3), **more).list()


def test_a_task_that_never_ends_is_given_up(fake: FakeProxmox, tmp_path: Path) -> None:
    fake.cluster.clone_time = 60.0
    hasty = proxmox_driver(fake, tmp_path, create_timeout=timedelta(seconds=0.3))
    with pytest.raises(DeadlineError, match="takes too long"):
        hasty.create(spec("one"))


def test_an_unreachable_node_means_that_nothing_was_done(fake: FakeProxmox, driver: ProxmoxDriver) -> None:
    fake.faults.order(Fault(kind=Kind.ERROR, path="/clone", status=595, message="No route to host"))
    with pytest.raises(UnavailableError):
        driver.create(spec("one"))
    fake.faults.order(Fault(kind=Kind.ERROR, path="/clone", status=596, message="Connection timed out", times=-1))
    with pytest.raises(DeadlineError):
        driver.create(spec("one"))


def test_another_node_answers_when_the_first_is_away(fake: FakeProxmox, tmp_path: Path) -> None:
    driver = proxmox_driver(fake, tmp_path, url="http://127.0.0.1:9", fallback_urls=[fake.url])
    driver.create(spec("one"))
    assert len(driver.list()) == 1


# -- who we are --------------------------------------------------------------------------------------------------------


def test_wrong_secrets_are_told_and_not_shown(fake: FakeProxmox, tmp_path: Path) -> None:
    for user in (fake.user, fake.token_user):
        driver = proxmox_driver(fake, tmp_path, user=user, secret="a-wrong-secret-of-mine")
        with pytest.raises(AuthenticationError, match="tokenFile or passwordFile") as refused:
            driver.list()
        assert "a-wrong-secret" not in str(refused.value)


def test_an_upload_is_repeated_whole_with_a_new_ticket(fake: FakeProxmox, tmp_path: Path) -> None:
    driver = proxmox_driver(fake, tmp_path, user=fake.user)
    driver.start()
    fake.faults.order(Fault(kind=Kind.ERROR, path="/upload", status=401))
    driver.create(spec("one", user_data="#cloud-config"))
    assert fake.count("POST", "/upload") == 2
    assert b"#cloud-config" in fake.cluster.seed("one")
    driver.close()


def test_a_ticket_is_shared_and_fetched_anew_when_it_is_not_believed(fake: FakeProxmox, tmp_path: Path) -> None:
    driver = proxmox_driver(fake, tmp_path, user=fake.user)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: driver.create(spec(f"m{number}", user_data=DATA)), range(4)))
    assert len(fake.tickets) == 1
    (old,) = fake.tickets
    assert old not in redacted(f"the ticket {old}")
    fake.tickets.clear()  # it has expired, or the clocks differ
    driver.create(spec("m4"))
    assert len(fake.cluster.ever) == 5
    assert len(fake.tickets) == 1


def test_a_login_that_fails_did_nothing(fake: FakeProxmox, tmp_path: Path) -> None:
    driver = proxmox_driver(fake, tmp_path, user=fake.user)
    fake.faults.order(Fault(kind=Kind.ERROR, path="/access/ticket", status=500), Fault(kind=Kind.GARBAGE, path="/acc"))
    for _ in range(2):
        with pytest.raises(UnavailableError):
            driver.create(spec("one"))
    assert not fake.cluster.ever


def test_a_secret_that_changes_is_read_again(fake: FakeProxmox, tmp_path: Path) -> None:
    driver = proxmox_driver(fake, tmp_path)
    driver.list()
    fake.token = "fa4e0000-9999-9999-9999-999999999999"
    with pytest.raises(AuthenticationError):
        driver.list()
    (tmp_path / "secret").write_text(fake.token, "utf-8")
    driver.list()


def test_a_certificate_of_nobody_we_know_is_refused_unless_insecure_is_said(tmp_path: Path) -> None:
    with FakeProxmox(tls=tmp_path) as fake:
        with pytest.raises(UnavailableError, match="certificate"):
            proxmox_driver(fake, tmp_path).create(spec("one"))
        assert proxmox_driver(fake, tmp_path, insecure=True).list() == []
        assert proxmox_driver(fake, tmp_path, ca_file=tmp_path / "ca.crt").list() == []


def test_user_data_is_in_no_error(fake: FakeProxmox, driver: ProxmoxDriver) -> None:
    line = DATA.splitlines()[1]
    fake.faults.order(Fault(kind=Kind.ERROR, path="/upload", status=400, message=f"bad: {line}"))
    with pytest.raises(InvalidArgumentError) as refused:
        driver.create(spec("one", user_data=DATA))
    assert "0123456789abcdef" not in str(refused.value)


@pytest.mark.thorough
def test_threads_do_not_disturb_each_other(fake: FakeProxmox, driver: ProxmoxDriver) -> None:
    stop = threading.Event()
    with ThreadPoolExecutor(8) as pool:
        listing = pool.submit(lambda: [driver.list() for _ in iter(stop.is_set, True)])
        made = list(pool.map(lambda number: driver.create(spec(f"m{number}")), range(6)))
        list(pool.map(driver.delete, made))
        stop.set()
        assert listing.result()
    assert not fake.cluster.alive()
    assert not fake.cluster.leftovers()
