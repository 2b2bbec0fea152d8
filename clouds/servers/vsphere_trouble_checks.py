"""What else is to be seen of the driver on a vCenter: slow clones, faults, broken connections, ended sessions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from cloudgraft.drivers.vsphere.options import VsphereOptions
from cloudgraft.sdk.driver import Machine, MachineState
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    AuthenticationError,
    CloudgraftError,
    ConflictError,
    DeadlineError,
    OutOfStockError,
    PermissionDeniedError,
    PreconditionError,
    QuotaExceededError,
    UnavailableError,
)
from clouds.servers.flaky_proxy import Breakage, FlakyProxy
from clouds.servers.vcsim import Vcsim
from clouds.servers.vsphere_checks import Bench, raises
from e2e.cloudgraft_process import CloudgraftServer
from e2e.waiting import eventually, until

__all__ = ["TroubleChecks"]

_SLOW: Final = 4000  # milliseconds that a clone takes
_NO_WAIT: Final = timedelta(0)
_CLONE: Final = b"<CloneVM_Task "
_LIST: Final = b"<RetrievePropertiesEx "
_NEXT_PAGE: Final = b"<ContinueRetrievePropertiesEx "


class TroubleChecks(Bench):
    """By name, for the judge's table."""

    def __init__(self, server: Vcsim, options: VsphereOptions, directory: Path, document: Mapping[str, Any]) -> None:
        super().__init__(server, options)
        self._directory = directory
        self._document = document

    def all(self) -> Mapping[str, Callable[[], None]]:
        """All of them."""
        return {
            "a clone that takes its time": self.slow,
            "a clone that fails late": self.late_failure,
            "deleted while it is cloned": self.deleted_early,
            "faults of vSphere": self.faults,
            "cloned, but not switched on": self.not_switched_on,
            "an ended session": self.ended_session,
            "credentials and certificates": self.credentials,
            "a lost answer": self.lost_answer,
            "half a list": self.half_a_list,
            "a hang": self.hang,
            "killed in the middle of a clone": self.killed,
        }

    def slow(self) -> None:
        """It is listed from the first moment on, with one id for life; another process sees it too."""
        with self.driver(clone_wait=_NO_WAIT) as driver, self.driver() as other:
            self.server.clones(delay=_SLOW)
            made = driver.create(self.spec("judged-slow"))
            assert made.state is MachineState.PENDING, made
            assert driver.list() == [made], driver.list()
            (strange,) = other.list()
            assert (strange.name, strange.machine_id, strange.state) == (made.name, made.machine_id, made.state)
            with raises(AlreadyExistsError):
                driver.create(self.spec("judged-slow"))
            with raises(ConflictError, "still being cloned"):
                other.delete(strange)
            (running,) = eventually(driver.list, _is_running, "it runs", seconds=30)
            assert (running.machine_id, running.tags) == (made.machine_id, made.tags), running
            assert self.server.names() == ["judged-slow"]

    def late_failure(self) -> None:
        """It is shown as failed, with the right class, until it is deleted."""
        with self.driver(clone_wait=_NO_WAIT) as driver:
            self.server.clones(fault="NoDiskSpace", delay=_SLOW // 4)
            made = driver.create(self.spec("judged-late"))

            def is_failed(seen: Sequence[Machine]) -> bool:
                return [one.state for one in seen] == [MachineState.FAILED]

            (failed,) = eventually(driver.list, is_failed, "it failed", seconds=30)
            assert (failed.machine_id, failed.failure) == (made.machine_id, "out_of_stock"), failed
            assert "NoDiskSpace" in failed.reason, failed.reason
            driver.delete(failed)
            assert not driver.list()

    def deleted_early(self) -> None:
        """The clone is cancelled. The simulator goes on with it all the same: what it makes is ours, and deleted."""
        with self.driver(clone_wait=_NO_WAIT) as driver:
            self.server.clones(delay=_SLOW // 2)
            made = driver.create(self.spec("judged-early"))
            driver.delete(made)
            assert True in self.server.clone_tasks("info.cancelled"), "the task was not cancelled"
            until(self.server.names, "the simulator makes what was cancelled", seconds=30)
            until(lambda: _is_running(driver.list()), "it is listed", seconds=30)
            driver.delete(made)
            assert not self.server.names()

    def faults(self) -> None:
        """Each is an error of its class, and nothing was made."""
        expected: dict[str, tuple[type[CloudgraftError], str]] = {
            "InsufficientMemoryResourcesFault": (OutOfStockError, "InsufficientMemoryResourcesFault"),
            "NoDiskSpace": (OutOfStockError, "LocalDS_0"),
            "NotEnoughLicenses": (QuotaExceededError, "licence"),
            "NoPermission": (PermissionDeniedError, "VirtualMachine.Provisioning.DeployTemplate"),
            "ConcurrentAccess": (ConflictError, "ConcurrentAccess"),
            "SystemError": (UnavailableError, "the judge wanted it"),
        }
        with self.driver() as driver:
            for fault, (kind, word) in expected.items():
                self.server.clones(fault=fault)
                with raises(kind, word):
                    driver.create(self.spec("judged-fault"))
                assert not self.server.names()
                assert not driver.list()

    def not_switched_on(self) -> None:
        """What is there of it is removed before the error is told."""
        with self.driver() as driver:
            self.server.clones(fault="InsufficientMemoryResourcesFault", late=True)
            with raises(OutOfStockError):
                driver.create(self.spec("judged-off"))
            assert not self.server.names()

    def ended_session(self) -> None:
        """Several threads that lose it at once log in once, and no call fails."""
        with self.driver() as driver:
            driver.list()
            assert self.server.end_sessions() >= 1
            errors: list[BaseException] = []

            def make(number: int) -> None:
                try:
                    driver.create(self.spec(f"judged-s{number}"))
                except BaseException as error:  # noqa: BLE001 - told below
                    errors.append(error)

            threads = [threading.Thread(target=make, args=(number,)) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert not errors, errors
            assert self.server.end_sessions() == 1, "there was more than one session"
            assert len(driver.list()) == 8

    def credentials(self) -> None:
        """A wrong password, an unknown authority, a folder that is not there."""
        wrong = self._directory / "another-password"
        wrong.write_text("not-the-password", "utf-8")
        with self.driver(password_file=wrong) as driver, raises(AuthenticationError, "passwordFile"):
            driver.list()
        with self.driver(ca_file=None) as driver, raises(UnavailableError, "caFile"):
            driver.list()
        with self.driver(ca_file=None, insecure=True) as driver:
            assert not driver.list()
        with self.driver(folder="no-such") as driver, raises(PreconditionError, "no-such", "folder"):
            driver.list()

    def lost_answer(self) -> None:
        """Nobody knows, and it is said so; the list tells, and a second create makes no second machine."""
        with self._proxy().run() as proxy, self.driver(server=f"127.0.0.1:{proxy.port}") as driver:
            driver.list()
            broken = proxy.arm(_CLONE, Breakage.LOST_ANSWER)
            with raises(DeadlineError, "not known"):
                driver.create(self.spec("judged-lost"))
            broken.result(0)
            until(lambda: _is_running(driver.list()), "it is listed", seconds=30)
            with raises(AlreadyExistsError):
                driver.create(self.spec("judged-lost"))
            proxy.arm(_CLONE, Breakage.LOST_REQUEST)
            with raises(DeadlineError, "not known"):
                driver.create(self.spec("judged-lost-too"))
            assert [one.name for one in driver.list()] == ["judged-lost"]
            proxy.arm(_LIST, Breakage.LOST_ANSWER)
            assert len(driver.list()) == 1, "a read is made a second time"
            proxy.is_refusing = True
            driver.close()
            with raises(UnavailableError):
                driver.list()
            proxy.is_refusing = False
            assert len(driver.list()) == 1

    def half_a_list(self) -> None:
        """A page that is lost makes no shorter list: it is an error."""
        with self._proxy().run() as proxy, self.driver(server=f"127.0.0.1:{proxy.port}", page_size=1) as driver:
            for number in range(3):
                driver.create(self.spec(f"judged-p{number}"))
            proxy.arm(_NEXT_PAGE, Breakage.LOST_ANSWER)
            with raises(UnavailableError):
                driver.list()
            assert len(driver.list()) == 3

    def hang(self) -> None:
        """A call ends by its timeout."""
        seconds = timedelta(seconds=1)
        with self._proxy().run() as proxy, self.driver(server=f"127.0.0.1:{proxy.port}", timeout=seconds) as driver:
            driver.list()
            proxy.arm(_CLONE, Breakage.HANG)
            with raises(DeadlineError, "not known"):
                driver.create(self.spec("judged-hang"))
            proxy.arm(_LIST, Breakage.HANG)
            with raises(UnavailableError):
                driver.list()
            until(lambda: _is_running(driver.list()), "it is listed", seconds=30)

    def _proxy(self) -> FlakyProxy:
        return FlakyProxy(("127.0.0.1", self.server.port), inward=self.server.inward(), outward=self.server.outward())

    def killed(self) -> None:
        """The engine is killed while vCenter clones, and started again: one machine, adopted, and then deleted."""
        home = self._directory / "killed"
        home.mkdir()
        server = CloudgraftServer(home, self._document)
        server.start()
        self.server.clones(delay=_SLOW)
        try:
            server.call("NodeGroupIncreaseSize", {"id": "judged", "delta": 1})
            until(self._is_cloning, "vCenter clones", seconds=30, check=server.check)
            server.kill()
            server.start()
            wanted = {"judged": {"running": 1}}
            until(lambda: server.states() == wanted, "the machine runs", seconds=60, check=server.check)
            (machine,) = server.groups()["judged"]["machines"]
            assert self.server.names() == [machine["name"]], (self.server.names(), machine)
            node = {"providerID": machine["providerId"], "name": machine["name"]}
            server.call("NodeGroupDeleteNodes", {"id": "judged", "nodes": [node]})
            until(lambda: not self.server.names(), "it is gone", seconds=60, check=server.check)
        finally:
            self.server.clones()
            server.stop()
            self.server.empty()

    def _is_cloning(self) -> bool:
        return "running" in self.server.clone_tasks("info.state")


def _is_running(machines: Sequence[Machine]) -> bool:
    return [one.state for one in machines] == [MachineState.RUNNING]
