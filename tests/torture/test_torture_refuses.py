"""What torture refuses to touch, and the private configuration that it makes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.config import load
from cloudgraft.engine.machines.identity import Identity
from cloudgraft.sdk.driver import DriverTraits, Machine, MachineState, Ownership
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.store.databases.filelock import FileLock
from cloudgraft.store.records import MachineRecord, State
from cloudgraft.torture.journal_view import JournalView, OwnJournal, read_own
from cloudgraft.torture.plan import Bounds, kills
from cloudgraft.torture.prepare import remove
from cloudgraft.torture.private_config import Paths, choose_group, new_identity, private_config
from cloudgraft.torture.refusals import config_refusals, journal_refusals, list_refusals, traits_refusals
from cloudgraft.torture.run import RefusedError
from tests.torture.rig import STRANGER, World, job, simulated, tortured

BOUNDS = Bounds(machines=3, creates=9)


def written(tmp_path: Path, **more: Any) -> Path:
    cloud = {"driver": "simulated", "url": "http://127.0.0.1:9", "engine": {"observeEvery": "5s"}}
    groups = [{"id": "small", "cloud": "sim", "maxSize": 9, "minSize": 2, "machine": {"shape": "small"}}]
    file = tmp_path / "cloudgraft.yaml"
    file.write_text(json.dumps({"cluster": "mine", "clouds": {"sim": cloud}, "nodeGroups": groups, **more}))
    return file


def owned(**fields: Any) -> OwnJournal:
    made = MachineRecord(
        **{
            "name": "mine-1",
            "group": "small",
            "cloud": "sim",
            "placeholder": "p",
            "state": State.RUNNING,
            "requested_at": 0.0,
            "state_since": 0.0,
            **fields,
        }
    )
    return OwnJournal(view=JournalView(machines={made.name: made}, cluster_id="aaaaaaaaaa"))


# -- the private configuration -----------------------------------------------------------------------------------------


def test_the_private_configuration_leads_nowhere_else(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.touch()
    user = load(
        written(
            tmp_path,
            kubernetes={"kubeconfig": str(kubeconfig)},
            join={"template": "k3s"},
            server={"listen": "127.0.0.1:8086"},
            store={"path": "mine.db"},
            guards={"maxMachines": 2, "maxCreatesPerHour": 100},
            providers=[{"type": "memory"}],
        )
    )
    us, paths = new_identity(), Paths(tmp_path / "run")
    made = private_config(user, choose_group(user, ""), us, paths, BOUNDS)
    assert set(made) == {
        "cluster",
        "clusterId",
        "server",
        "admin",
        "log",
        "store",
        "guards",
        "engine",
        "clouds",
        "nodeGroups",
    }
    assert made["cluster"] != "mine"
    assert made["store"] == {"path": str(paths.journal)}
    assert made["guards"] == {"maxMachines": 2, "maxCreatesPerHour": 9}
    assert made["clouds"]["sim"]["engine"]["observeEvery"] == "1s"
    assert [(group["minSize"], group["maxSize"]) for group in made["nodeGroups"]] == [(0, 3)]
    assert all(str(tmp_path / "run") in made[part]["listen"] for part in ("server", "admin"))


def test_paths_stay_and_a_state_file_does_not(tmp_path: Path) -> None:
    script = tmp_path / "lab.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    lab = {"driver": "exec", "create": ["./lab.sh", "c"], "delete": ["./lab.sh", "d"], "list": ["./lab.sh", "l"]}
    sim = {"driver": "simulated", "stateFile": "precious.db"}
    groups = [{"id": name, "cloud": name, "maxSize": 1, "machine": {"shape": "small"}} for name in ("lab", "sim")]
    user = load(written(tmp_path, clouds={"lab": lab, "sim": sim}, nodeGroups=groups))
    paths = Paths(tmp_path / "run")
    derived = {
        name: private_config(user, choose_group(user, name), new_identity(), paths, BOUNDS)["clouds"]
        for name in ("lab", "sim")
    }
    assert derived["lab"]["lab"]["workingDirectory"] == str(tmp_path)
    assert "stateFile" not in derived["sim"]["sim"]


def test_the_group_must_be_named_where_there_are_several(tmp_path: Path) -> None:
    groups = [{"id": name, "cloud": "sim", "maxSize": 1, "machine": {"shape": "small"}} for name in ("one", "two")]
    user = load(written(tmp_path, nodeGroups=groups))
    with pytest.raises(InvalidArgumentError, match="with --group; there is: one, two"):
        choose_group(user, "")
    with pytest.raises(InvalidArgumentError, match="did you mean two"):
        choose_group(user, "tow")
    assert choose_group(user, "two").id == "two"


def test_a_plan_follows_from_its_seed() -> None:
    assert list(kills(BOUNDS, 7)) == list(kills(BOUNDS, 7)) != list(kills(BOUNDS, 8))


def test_orders_are_spread_over_all_kills() -> None:
    bounds, ordered = Bounds(machines=6, creates=60, kills=10), 0
    for left in range(9, -1, -1):
        allowed = bounds.may_order(ordered, left)
        assert allowed >= 2
        ordered += allowed
    assert ordered <= 60


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cloud", "says"),
    [
        ({"driver": "simulated"}, "lives in the server's process"),
        ({"driver": "simulated", "url": "http://127.0.0.1:9", "engine": {"observeOnly": True}}, "observeOnly"),
    ],
)
def test_a_cloud_that_cannot_be_judged_is_refused(tmp_path: Path, cloud: dict[str, Any], says: str) -> None:
    user = load(written(tmp_path, clouds={"sim": cloud}))
    (reason,) = config_refusals(user, choose_group(user, ""))
    assert says in reason


@pytest.mark.parametrize(
    ("own", "says"),
    [
        (owned(), "is in use"),
        (owned(state=State.GONE), ""),
        (owned(group="other"), ""),
        (OwnJournal(server="process 1"), "process 1"),
        (OwnJournal(trouble="damaged"), "damaged"),
        (OwnJournal(), ""),
    ],
)
def test_a_journal_with_machines_of_the_group_is_refused(tmp_path: Path, own: OwnJournal, says: str) -> None:
    user = load(written(tmp_path))
    reasons = list(journal_refusals(own, choose_group(user, "")))
    assert [says in reason for reason in reasons] == ([True] if says else [])


def test_real_machines_need_a_word_and_an_unused_inventory(tmp_path: Path) -> None:
    group = choose_group(load(written(tmp_path)), "")
    inventory = DriverTraits(ownership=Ownership.INVENTORY)
    unused, other = OwnJournal(), owned(group="other")
    assert ["--yes-use small" in one for one in traits_refusals(inventory, unused, group, "")] == [True]
    assert list(traits_refusals(inventory, unused, group, "small")) == []
    assert ["by other groups" in one for one in traits_refusals(inventory, other, group, "small")] == [True]
    incomplete = DriverTraits(complete_list=False)
    assert ["not complete" in one for one in traits_refusals(incomplete, unused, group, "")] == [True]


def test_machines_of_the_group_in_the_cloud_are_refused(tmp_path: Path) -> None:
    user = load(written(tmp_path))
    group = choose_group(user, "")
    mine, other = Identity("mine", "aaaaaaaaaa"), Identity("mine", "bbbbbbbbbb")

    def reasons(owner: Identity, of: str, **more: Any) -> int:
        name = owner.new_name(of)
        one = Machine(**{"name": name, "machine_id": "1", "tags": owner.tags(name, of), **more})
        return len(list(list_refusals([one], user, owned(state=State.GONE), group)))

    assert reasons(mine, "small") == reasons(other, "small") == reasons(mine, "small", tags={}) == 1
    assert reasons(mine, "small", state=MachineState.DELETING) == reasons(mine, "large") == 0
    assert reasons(Identity("theirs", "aaaaaaaaaa"), "small", tags={}) == 0


def test_a_running_server_is_found_by_its_lock(tmp_path: Path) -> None:
    user = load(written(tmp_path))
    assert read_own(user) == OwnJournal()
    lock = FileLock(tmp_path / "journal.db.lock", what="it")
    lock.acquire()
    (tmp_path / "journal.db").touch()
    assert str(os.getpid()) in read_own(user).server
    lock.release()


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[tuple[Any, Path]]:
    with simulated(tmp_path, World()) as made:
        yield made


async def test_a_no_creates_nothing(cloud: tuple[Any, Path]) -> None:
    run = job(cloud[1])
    with pytest.raises(RefusedError, match="nothing was done"):
        await tortured(run, lambda _: False)
    assert [machine.name for machine in cloud[0].machines()] == [STRANGER.name]
    remove(run.paths)
