"""What is to be seen on a real host beside conformance: machines that boot, daemons that die, domains of others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from cloudgraft.drivers.libvirt.domains import disk_volume, seed_volume, uuid_of
from cloudgraft.drivers.libvirt.driver import LibvirtDriver
from cloudgraft.sdk.driver import Machine, MachineSpec, MachineState
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    CloudgraftError,
    DeadlineError,
    InvalidArgumentError,
    OutOfStockError,
    PreconditionError,
    UnavailableError,
)
from clouds.servers.libvirt_driving import driver_of, expect, is_listed, only, outcome, spec_of
from clouds.servers.libvirt_guest import BEGIN, END, boot_files
from clouds.servers.libvirtd import Libvirtd
from e2e.waiting import until

__all__ = ["Checks"]

_SECONDS: Final = 60.0
_MANY: Final = 300
_TESTS: Final = Path(__file__).resolve().parents[2] / "tests" / "drivers" / "libvirt" / "test_libvirt_connection.py"


class Checks:
    """All of them, on one host. Each leaves nothing behind."""

    def __init__(self, host: Libvirtd, cloud: Mapping[str, Any]) -> None:
        self._host = host
        self._cloud = cloud
        self._pool: str = cloud["pool"]

    def all(self) -> dict[str, Callable[[], None]]:
        """By name."""
        found = {
            "a machine boots and reads its user data": self.it_boots,
            "a copy of the image with a larger size": self.it_clones,
            "kill -9 of libvirtd in the middle of a create": self.it_survives_the_daemon,
            "kill -9 of the driver in the middle of a create": self.it_survives_itself,
            "a half-made machine is shown, finished and removed": self.it_finishes,
            "a daemon that hangs is away, and comes back": self.it_notices_silence,
            "a machine undefined or renamed by hand": self.it_sees_what_hands_did,
            "two clusters on one host, and other people's domains": self.it_leaves_others_alone,
            "what is missing on the host is named": self.it_names_what_is_missing,
            "a host without room is out of stock": self.it_counts,
            f"a list of {_MANY} machines": self.it_lists_many,
            "closing while calls are under way": self.it_closes,
            "tests that need the library": self.it_passes_its_tests,
        }
        if os.geteuid() == 0:
            found["a full storage pool is out of stock"] = self.it_fills_up
        return {name: partial(self._tidily, check) for name, check in found.items()}

    def _tidily(self, check: Callable[[], None]) -> None:
        """A check that fails must not be the reason why others do."""
        try:
            check()
        except BaseException:
            for name in self._host.domains():
                with suppress(AssertionError):
                    self._host.virsh("destroy", name)
                self._host.virsh("undefine", name)
            for name in self._leftovers():
                self._host.virsh("vol-delete", name, "--pool", self._pool)
            raise

    @contextmanager
    def _driver(self, **options: object) -> Iterator[LibvirtDriver]:
        driver = driver_of({**self._cloud, **options})
        driver.start()
        try:
            yield driver
        finally:
            driver.close()

    # -- machines ------------------------------------------------------------------------------------------------------

    def it_boots(self) -> None:
        """The user data is seen on the serial console, byte for byte, and so is the name."""
        user_data = "#cloud-config\n# \u00fc and a token: abcdef.0123456789abcdef\n"
        spec = spec_of("boots-1", user_data, shape="boots", boot=boot_files(self._host.home))
        log = self._host.consoles / "boots-1.log"
        with self._driver() as driver:
            machine = driver.create(spec)
            try:
                until(lambda: log.exists() and END in log.read_text("utf-8", "replace"), "it prints", seconds=180)
                text = log.read_text("utf-8").replace("\r\n", "\n")
                seed = text.partition(f"{BEGIN}\n")[2].partition(END)[0]
                assert seed.startswith(user_data), f"the guest read {seed!r}"
                assert '"local-hostname": "boots-1"' in seed, f"the guest read {seed!r}"
                assert only(driver).state is MachineState.RUNNING
            finally:
                driver.delete(machine)
        log.unlink()

    def it_clones(self) -> None:
        """A copy has no base, and is as large as was asked for."""
        with self._driver() as driver:
            machine = driver.create(spec_of("clone-1", disk="clone", size="100Mi"))
            xml = self._host.virsh("vol-dumpxml", disk_volume("clone-1"), "--pool", self._pool)
            driver.delete(machine)
        assert "<backingStore>" not in xml, xml
        assert f"<capacity unit='bytes'>{100 * 2**20}</capacity>" in xml, xml

    # -- faults --------------------------------------------------------------------------------------------------------

    def it_survives_the_daemon(self) -> None:
        """Whenever it is killed: there is one machine or none, and a repeated create makes it one."""
        with self._driver() as driver:
            began = time.monotonic()
            driver.delete(driver.create(spec_of("killed-0")))
            whole = (time.monotonic() - began) / 2
            for number in range(1, 7):
                self._kill_during(driver, spec_of(f"killed-{number}"), whole * number / 6)
        assert not self._host.domains(), self._host.domains()

    def _kill_during(self, driver: LibvirtDriver, spec: MachineSpec, after: float) -> None:
        ended: list[Machine | CloudgraftError] = []
        thread = threading.Thread(target=lambda: ended.append(outcome(driver, spec)))
        thread.start()
        thread.join(after)
        self._host.kill()
        self._host.start()
        thread.join(_SECONDS)
        assert ended, "create did not end after its daemon was killed"
        first = ended[0]
        names = [machine.name for machine in driver.list()]
        if isinstance(first, CloudgraftError):
            assert isinstance(first, DeadlineError | UnavailableError), first
            assert isinstance(first, DeadlineError) or not names, f"{first!r}, and there is {names}"
        else:
            assert names == [spec.name], names
        machine = driver.create(spec)
        assert only(driver).tags == spec.tags
        assert only(driver).state is MachineState.RUNNING
        driver.delete(machine)
        assert not driver.list()

    def it_survives_itself(self) -> None:
        """Whenever its program is killed: what it left is listed with its marks, finished, and removed in whole."""
        command = [sys.executable, "-m", "clouds.servers.libvirt_driving", json.dumps(dict(self._cloud))]
        with self._driver() as driver, self._driver(createTimeout="1ms") as late:
            for number in range(6):
                spec = spec_of(f"dies-{number}")
                with subprocess.Popen([*command, spec.name], stdout=subprocess.PIPE) as program:
                    assert program.stdout is not None
                    assert program.stdout.readline() == b"begins\n"
                    with suppress(subprocess.TimeoutExpired):
                        program.wait(number * 0.06)
                    program.kill()
                left = late.list()
                assert [machine.tags for machine in left] in ([], [spec.tags]), left
                if number % 2 == 0:
                    driver.create(spec)
                    until(lambda: only(driver).state is MachineState.RUNNING, "it runs", seconds=_SECONDS)
                for machine in late.list():
                    driver.delete(machine)
                assert self._leftovers() == [], self._leftovers()

    def it_finishes(self) -> None:
        """As a create leaves it that dies after each of its steps."""
        with self._driver() as driver, self._driver(createTimeout="1ms") as late:
            for steps in ("define", "disk", "seed"):
                spec = spec_of(f"half-{steps}")
                self._leave_half(driver, spec, steps)
                assert not driver.list(), "it is listed, so nobody would finish it"
                assert only(late).state is MachineState.FAILED, only(late)
                assert only(late).tags == spec.tags
                driver.create(spec)
                assert only(driver).state is MachineState.RUNNING, only(driver)
                driver.delete(only(driver))
                self._leave_half(driver, spec, steps)
                driver.delete(only(late))
                assert not late.list()
                assert self._leftovers() == [], self._leftovers()

    def _leave_half(self, driver: LibvirtDriver, spec: MachineSpec, last: str) -> None:
        driver.create(spec)
        self._host.virsh("destroy", spec.name)
        xml = self._host.virsh("dumpxml", "--inactive", spec.name)
        self._host.virsh("undefine", spec.name)
        file = self._host.home / "half.xml"
        file.write_text(xml, "utf-8")
        self._host.virsh("define", str(file))
        gone = {"define": (disk_volume, seed_volume), "disk": (seed_volume,), "seed": ()}[last]
        for volume in gone:
            self._host.virsh("vol-delete", volume(spec.name), "--pool", self._pool)

    def it_notices_silence(self) -> None:
        """A daemon that is stopped answers nothing: the call ends all the same, and says that nobody is there."""
        with self._driver(keepalive="1s", connectTimeout="3s") as driver:
            driver.list()
            self._host.signal(signal.SIGSTOP)
            try:
                for _ in range(2):  # in the middle of a call, and while connecting anew
                    try:
                        driver.list()
                    except UnavailableError:
                        continue
                    raise AssertionError("a list of a host that says nothing")
            finally:
                self._host.signal(signal.SIGCONT)
            until(lambda: is_listed(driver), "the host is back", seconds=_SECONDS)

    # -- other hands ---------------------------------------------------------------------------------------------------

    def it_sees_what_hands_did(self) -> None:
        """One that was undefined is gone, and its volumes go when it is deleted; a renamed one is still known."""
        with self._driver() as driver:
            machine = driver.create(spec_of("hand-1"))
            self._host.virsh("destroy", "hand-1")
            stopped = only(driver)
            assert stopped.state is MachineState.STOPPED, stopped
            self._host.virsh("domrename", "hand-1", "mine-now")
            renamed = only(driver)
            assert (renamed.name, renamed.machine_id) == ("hand-1", machine.machine_id), renamed
            self._host.virsh("undefine", "mine-now")
            assert not driver.list()
            driver.delete(machine)
            assert self._leftovers() == [], self._leftovers()

    def it_leaves_others_alone(self) -> None:
        """Another cluster's machine is shown with its marks; a domain without ours is neither shown nor touched."""
        xml = self._host.home / "other.xml"
        devices = "<domain type='qemu'><name>{}</name>{}<memory>65536</memory><os><type>hvm</type></os></domain>"
        with self._driver() as driver:
            ours, theirs = driver.create(spec_of("own-1")), driver.create(spec_of("own-2", cluster="bbbbbbbbbb"))
            for name, uuid in {
                "stranger": "",
                "taken-1": "",
                "unmarked-1": f"<uuid>{uuid_of('unmarked-1')}</uuid>",
            }.items():
                xml.write_text(devices.format(name, uuid), "utf-8")
                self._host.virsh("define", str(xml))
            shown = {machine.name: machine.tags.get("cloudgraft-cluster-id") for machine in driver.list()}
            assert shown == {"own-1": "aaaaaaaaaa", "own-2": "bbbbbbbbbb", "unmarked-1": None}, shown
            for name in ("taken-1", "unmarked-1"):
                expect(AlreadyExistsError, partial(driver.create, spec_of(name)))
            expect(AlreadyExistsError, lambda: driver.create(spec_of("own-2")))  # with the marks of the first cluster
            unmarked = next(machine for machine in driver.list() if machine.name == "unmarked-1")
            expect(PreconditionError, lambda: driver.delete(unmarked))
            driver.delete(replace(ours, machine_id=self._host.virsh("domuuid", "stranger").strip()))
            driver.delete(ours)
            assert sorted(self._host.domains()) == ["own-2", "stranger", "taken-1", "unmarked-1"]
            driver.delete(theirs)
        for name in ("stranger", "taken-1", "unmarked-1"):
            self._host.virsh("undefine", name)

    # -- limits --------------------------------------------------------------------------------------------------------

    def it_names_what_is_missing(self) -> None:
        """An image, a network, a pool, a size, a name: each is an invalid argument that says where to look."""
        nets = [{"network": "nowhere"}]
        with self._driver() as driver, self._driver(pool="nowhere") as lost, self._driver(machineType="zx81") as odd:
            expect(InvalidArgumentError, lambda: driver.create(spec_of("no-1", image="nowhere")), "image")
            expect(InvalidArgumentError, lambda: driver.create(spec_of("no-1", networks=nets)), "networks")
            expect(InvalidArgumentError, lambda: driver.create(spec_of("no-1", size="1Mi")), "size")
            expect(InvalidArgumentError, lambda: driver.create(spec_of("no-1" + "x" * 60)), "name")
            expect(InvalidArgumentError, lambda: lost.create(spec_of("no-1")), "pool")
            expect(InvalidArgumentError, lambda: odd.create(spec_of("no-1")), "machineType")
            bridge = [{"bridge": "nowhere0"}]  # which only shows when the machine is started
            expect(InvalidArgumentError, lambda: driver.create(spec_of("no-1", networks=bridge)), "bridge")
            assert not driver.list()
        assert self._leftovers() == [], self._leftovers()

    def it_counts(self) -> None:
        """Each limit is told before anything is made; a machine that is too large for its host leaves nothing."""
        large: dict[str, object] = {"shapes": {"tiny": {"cpu": 1, "memory": "64Ti"}}}
        options: list[dict[str, object]] = [
            {"maxMachines": 0},
            {"hostMemoryReserve": "1Pi"},
            {"poolReserve": "1Ei"},
            large,
        ]
        for limits in options:
            with self._driver(**limits) as driver:
                expect(OutOfStockError, partial(driver.create, spec_of("much-1")))
                assert not driver.list()
        with self._driver(maxMachines=1, hostMemoryReserve="64Mi", poolReserve="1Mi") as driver:
            machine = driver.create(spec_of("much-1"))
            expect(OutOfStockError, lambda: driver.create(spec_of("much-2")), "maxMachines")
            driver.delete(machine)
        assert self._leftovers() == [], self._leftovers()

    def it_fills_up(self) -> None:
        """A copy that does not fit: out of stock, and half of it is not left."""
        place = self._host.home / "full"
        place.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=0777", "full", place], check=True)
        try:
            self._host.make_pool("full", place)
            options = {"pool": "full", "imagePool": self._pool}
            with self._driver(**options) as driver:
                expect(OutOfStockError, lambda: driver.create(spec_of("full-1", disk="clone")))
                assert not driver.list()
            assert self._host.volumes("full") == []
            self._host.virsh("pool-destroy", "full")
            self._host.virsh("pool-undefine", "full")
        finally:
            subprocess.run(["umount", place], check=True)

    def it_lists_many(self) -> None:
        """In one call, and one for each machine's marks."""
        with self._driver() as driver:
            driver.create(spec_of("many-0"))
            xml = self._host.virsh("dumpxml", "--inactive", "many-0")
            driver.delete(only(driver))
            connection = driver._connection.get()  # noqa: SLF001 - virsh would take a minute for this
            names = [f"many-{number}" for number in range(_MANY)]
            domains = [connection.defineXML(_named(xml, name)) for name in names]
            began = time.monotonic()
            with self._driver(createTimeout="1ms") as late:  # they never ran: to the other they are being made
                listed = late.list()
            took = time.monotonic() - began
            for domain in domains:
                domain.undefine()
        assert sorted(machine.name for machine in listed) == sorted(names)
        assert took < 10, f"{took:.1f} s"

    def it_closes(self) -> None:
        """A connection that is closed under a call takes the whole process with it."""
        command = [sys.executable, "-m", "clouds.servers.libvirt_driving", json.dumps(dict(self._cloud))]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert (done.returncode, done.stderr) == (0, ""), f"it ended with {done.returncode}: {done.stderr[-500:]}"

    def it_passes_its_tests(self) -> None:
        """They are not among those of `make test`, which has not got the library."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(_TESTS)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout[-2000:]

    def _leftovers(self) -> list[str]:
        return [name for name in self._host.volumes(self._pool) if name != self._cloud["image"]]


def _named(xml: str, name: str) -> str:
    return xml.replace("many-0", name).replace(uuid_of("many-0"), uuid_of(name))
