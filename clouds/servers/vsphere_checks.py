"""What else is to be seen of the driver on a vCenter: what arrives there, and what people do by hand."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from cloudgraft.drivers.vsphere.driver import VsphereDriver
from cloudgraft.drivers.vsphere.options import VsphereOptions
from cloudgraft.sdk.driver import Machine, MachineSpec, MachineState
from cloudgraft.sdk.errors import AlreadyExistsError, CloudgraftError, InvalidArgumentError
from clouds.servers.vcsim import Vcsim, vim

__all__ = ["Bench", "Checks", "raises"]

TAGS: Final = {"cloudgraft-cluster": "judged", "cloudgraft-cluster-id": "abcdefghij", "cloudgraft-group": 'é/ü "q"'}


@contextmanager
def raises(kind: type[CloudgraftError], *words: str) -> Iterator[None]:
    """The error must be of exactly that kind, and say these words."""
    caught: CloudgraftError | None = None
    try:
        yield
    except CloudgraftError as error:
        caught = error
    assert caught is not None, f"nothing was raised, and it should be {kind.__name__}"
    assert type(caught) is kind, f"{type(caught).__name__} instead of {kind.__name__}: {caught}"
    missing = [word for word in words if word not in caught.message]
    assert not missing, f"{missing} is not in: {caught.message}"


class Bench:
    """A driver on a vCenter, and both can be asked."""

    def __init__(self, server: Vcsim, options: VsphereOptions) -> None:
        self.server = server
        self.options = options

    @contextmanager
    def driver(self, **changes: Any) -> Iterator[VsphereDriver]:
        """One with other options; what it leaves in the folder is removed."""
        driver = VsphereDriver(replace(self.options, **changes))
        try:
            yield driver
        finally:
            self.server.clones()
            driver.close()
            self.server.empty()

    def spec(self, name: str, user_data: str = "", **settings: object) -> MachineSpec:
        """A machine to create."""
        tags = {**TAGS, "cloudgraft-name": name}
        return MachineSpec(
            name=name, group="judged", settings={"shape": "small", **settings}, tags=tags, user_data=user_data
        )


class Checks(Bench):
    """By name, for the judge's table."""

    def all(self) -> Mapping[str, Callable[[], None]]:
        """All of them."""
        return {
            "what is asked for arrives": self.arrives,
            "linked clones, pools and datastore clusters": self.places,
            "what is not there is named": self.unknown,
            "renamed by hand": self.renamed,
            "deleted by hand": self.deleted,
            "copied by hand": self.copied,
            "two clusters in one folder": self.two_clusters,
        }

    def arrives(self) -> None:
        """The size, the marks, the user data, in the call that makes it."""
        with self.driver() as driver:
            made = driver.create(
                self.spec("judged-a", "#cloud-config\nä: 1\n", shape="large", extraConfig={"x.y": "z"})
            )
            (machine,) = self.server.machines()
            config = machine.config
            extra = {one.key: one.value for one in config.extraConfig}
            assert (config.hardware.numCPU, config.hardware.memoryMB) == (8, 32 * 1024)
            disk = next(one for one in config.hardware.device if getattr(one, "capacityInKB", None))
            assert disk.capacityInKB == 40 * 1024 * 1024, disk.capacityInKB
            assert base64.b64decode(extra["guestinfo.userdata"]).decode() == "#cloud-config\nä: 1\n"
            metadata = json.loads(base64.b64decode(extra["guestinfo.metadata"]))
            assert metadata == {"instance-id": "judged-a", "local-hostname": "judged-a"}, metadata
            assert extra["x.y"] == "z"
            assert made.provider_id == f"vsphere://{config.uuid.lower()}", made
            assert made.tags == {**TAGS, "cloudgraft-name": "judged-a"}
            (listed,) = driver.list()
            assert listed == made, (listed, made)

    def places(self) -> None:
        """Each of them, by a group's own settings."""
        root = self.server.machine("DC0/host/DC0_C0").resourcePool
        pool = root.CreateResourcePool("nodes", root.config)
        with self.driver() as driver:
            driver.create(self.spec("judged-linked", linkedClone=True, snapshot="base"))
            driver.create(self.spec("judged-pool", cluster="DC0_C0", resourcePool="nodes"))
            driver.create(self.spec("judged-pod", datastoreCluster="DC0_POD0"))
            driver.create(self.spec("judged-net", networks=["VM Network", "DC0_DVPG0"]))
            made = {str(one.name): one for one in self.server.machines()}
            assert made["judged-pool"].resourcePool == pool
            assert [str(one.name) for one in made["judged-pod"].datastore] == ["LocalDS_1"]
            assert sorted(str(one.name) for one in made["judged-net"].network) == ["DC0_DVPG0", "VM Network"]
            assert {one.state for one in driver.list()} == {MachineState.RUNNING}
        self.server.done(pool.Destroy_Task())

    def unknown(self) -> None:
        """The message says which option to look at, and nothing was made."""
        wrong = {"template": "no-such", "cluster": "no-such", "datastore": "no-such", "datastoreCluster": "no-such"}
        with self.driver() as driver:
            for option, value in wrong.items():
                with raises(InvalidArgumentError, "no-such", option):
                    driver.create(self.spec("judged-wrong", **{option: value}))
            with raises(InvalidArgumentError, "no-such", "networks"):
                driver.create(self.spec("judged-wrong", networks=["no-such"]))
            with raises(InvalidArgumentError, "snapshot"):
                driver.create(self.spec("judged-wrong", linkedClone=True, snapshot="no-such"))
            with raises(InvalidArgumentError, "large"):
                driver.create(self.spec("judged-wrong", shape="huge"))
            with raises(InvalidArgumentError, "user data"):
                driver.create(self.spec("judged-wrong", "x" * 50_000))
            with raises(InvalidArgumentError, "80"):
                driver.create(self.spec("x" * 81))
            assert not self.server.names()

    def renamed(self) -> None:
        """It stays the machine that it was: its marks count, and its name is not given away again."""
        with self.driver() as driver:
            made = driver.create(self.spec("judged-b"))
            self.server.done(self.server.machines()[0].Rename_Task("somebody-was-here"))
            assert [one.name for one in driver.list()] == ["judged-b"]
            with raises(AlreadyExistsError):
                driver.create(self.spec("judged-b"))
            driver.delete(made)
            assert not self.server.names()

    def deleted(self) -> None:
        """That is no error, and it is gone from the list."""
        with self.driver() as driver:
            made = driver.create(self.spec("judged-c"))
            self.server.empty()
            assert not driver.list()
            driver.delete(made)

    def copied(self) -> None:
        """A copy has our marks, but is not ours: it is shown without them, and not deleted in the original's place."""
        with self.driver() as driver:
            made = driver.create(self.spec("judged-d"))
            self._copy(self.server.machines()[0], "by-hand")
            seen = {one.name: one for one in driver.list()}
            assert dict(seen["by-hand"].tags) == {}, seen
            assert seen["judged-d"] == made
            driver.delete(made)
            driver.delete(replace(made, machine_id=seen["by-hand"].machine_id))
            assert self.server.names() == ["by-hand"]

    def _copy(self, machine: Any, name: str) -> None:
        config = vim.vm.ConfigSpec(extraConfig=machine.config.extraConfig)  # vcsim alone does not copy these
        spec = vim.vm.CloneSpec(location=vim.vm.RelocateSpec(), config=config, powerOn=False, template=False)
        self.server.done(machine.CloneVM_Task(machine.parent, name, spec))

    def two_clusters(self) -> None:
        """Each sees whose machine it is; what is deleted is deleted by id."""
        with self.driver() as ours, self.driver() as theirs:
            made = ours.create(self.spec("judged-e"))
            strange = self.spec("judged-f")
            theirs.create(replace(strange, tags={**strange.tags, "cloudgraft-cluster-id": "zyxwvutsrq"}))
            by_name: dict[str, Machine] = {one.name: one for one in ours.list()}
            assert by_name["judged-f"].tags["cloudgraft-cluster-id"] == "zyxwvutsrq"
            ours.delete(made)
            ours.delete(replace(made, machine_id=by_name["judged-f"].machine_id))
            assert self.server.names() == ["judged-f"]
