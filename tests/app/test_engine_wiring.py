"""From the configuration to drivers that run: those that block get threads enough to be looked at while they hang."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.app.engine_wiring import desired_state
from cloudgraft.config import ConfigError, load, parse
from cloudgraft.engine.groups.desired import CloudDeclaration
from cloudgraft.sdk.driver import Driver, Machine, MachineSpec
from tests.plugins.fake_packages import write_package

HANGING = """
import threading
from cloudgraft.sdk import BlockingDriver

FREE = threading.Event()
BEGUN = threading.Semaphore(0)

class Hanging(BlockingDriver):
    def create(self, spec):
        BEGUN.release()
        FREE.wait()
        raise RuntimeError("nobody cares any more")

    def delete(self, machine): ...

    def list(self):
        return []
"""


@dataclass
class Hung:
    """Clouds whose creates hang until the end of the test."""

    clouds: Mapping[str, CloudDeclaration]
    module: Any

    async def begin(self, driver: Driver, count: int) -> list[asyncio.Task[Machine]]:
        """Creates that hang, each in a thread of its own."""
        specs = [MachineSpec(name=f"m-{n}", group="g", settings={"shape": "any"}) for n in range(count)]
        creates = [asyncio.create_task(driver.create(spec)) for spec in specs]
        for _ in creates:
            assert await asyncio.to_thread(self.module.BEGUN.acquire, timeout=20), "one waits for a thread"
        return creates


@pytest.fixture
def hung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Hung]]:
    """Makes the clouds of a file, of which one is ``a`` and hangs."""
    write_package(
        tmp_path, "hanging-cloud", group="cloudgraft.drivers", points={"hanging": "hanging_cloud:Hanging"}, code=HANGING
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "hanging_cloud", raising=False)

    def make(clouds: str) -> Hung:
        file = tmp_path / "cloudgraft.yaml"
        groups = "[{id: g, cloud: a, maxSize: 1, template: {capacity: {cpu: 1, memory: 1Gi}}}]"
        file.write_text(f"{{cluster: c, clouds: {clouds}, nodeGroups: {groups}}}", "utf-8")
        return Hung(desired_state(load(file)).clouds, sys.modules["hanging_cloud"])

    yield make
    sys.modules["hanging_cloud"].FREE.set()


async def test_a_list_is_answered_while_every_call_that_the_engine_may_make_hangs(hung: Callable[[str], Hung]) -> None:
    """Law 1: more calls than the pool of an author has by itself."""
    made = hung("{a: {driver: hanging, engine: {maxCalls: 12}}}")
    driver = made.clouds["a"].make()
    creates = await made.begin(driver, 12)
    assert await driver.list() == []
    made.module.FREE.set()
    done = await asyncio.gather(*creates, return_exceptions=True)
    assert all(isinstance(one, RuntimeError) for one in done)
    await driver.close()


async def test_a_list_is_answered_while_every_call_of_the_cloud_and_of_its_router_hangs(
    hung: Callable[[str], Hung],
) -> None:
    """Law 6: the two share one driver, and either of them may make as many calls as it is allowed."""
    router = "{driver: router, shapes: {any: [{cloud: a}]}, engine: {maxCalls: 9}}"
    made = hung(f"{{a: {{driver: hanging, engine: {{maxCalls: 7}}}}, all: {router}}}")
    drivers = [made.clouds[name].make() for name in ("a", "all")]
    for driver in drivers:
        await driver.start()
    creates = [*await made.begin(drivers[0], 7), *await made.begin(drivers[1], 9)]
    assert [await driver.list() for driver in drivers] == [[], []]
    made.module.FREE.set()
    await asyncio.gather(*creates, return_exceptions=True)
    for driver in drivers:
        await driver.close()


def test_a_driver_whose_library_is_missing_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cloudgraft.plugins.registry import Kind, find
    from cloudgraft.sdk.errors import PreconditionError

    points = {"far": "far_cloud:Far [far]"}
    write_package(tmp_path, "far-cloud", group="cloudgraft.drivers", points=points, code="import no_such_library")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PreconditionError, match=r"No module named 'no_such_library'; pip install 'far-cloud\[far\]'"):
        find(Kind.DRIVER, "far").load()


LOOSE = """
from cloudgraft.sdk import BlockingDriver

class Loose(BlockingDriver):
    MachineSettings = dict
    create = delete = lambda self, *_: None
    list = lambda self: []

class Broken(Loose):
    def __init__(self):
        raise RuntimeError("the password is hunter2")

class Careless(Loose):
    def __init__(self):
        open("/nowhere/token")
"""


@pytest.fixture
def loose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    points = {name.lower(): f"loose_cloud:{name}" for name in ("Loose", "Broken", "Careless")}
    write_package(tmp_path, "loose-cloud", group="cloudgraft.drivers", points=points, code=LOOSE)
    yield tmp_path
    sys.modules.pop("loose_cloud", None)


def test_machine_settings_that_are_not_checked_may_have_zones_and_shapes(loose: Path) -> None:
    group_text = "{id: g, cloud: c, maxSize: 1, zones: [a], shapes: [s]}"
    file = f"cluster: t\nclouds: {{c: {{driver: loose}}}}\nnodeGroups: [{group_text}]\n"
    (group,) = desired_state(parse(file, loose)).groups
    assert (group.id, group.machine) == ("g-s-a", {"shape": "s", "zone": "a"})


def test_a_driver_with_a_bug_is_reported_at_its_cloud_without_its_message(loose: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        desired_state(parse("cluster: t\nclouds: {c: {driver: broken}}\nnodeGroups: []\n", loose, name="f"))
    assert str(caught.value).startswith("f:2:")
    assert "clouds.c: the driver broken failed with RuntimeError" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_problem_of_a_spread_group_is_reported_once(tmp_path: Path) -> None:
    group = "{id: g, cloud: c, maxSize: 1, machine: {shap: small}, zones: [a, b, c]}"
    with pytest.raises(ConfigError) as caught:
        desired_state(parse(f"cluster: t\nclouds: {{c: {{driver: simulated}}}}\nnodeGroups: [{group}]\n", tmp_path))
    keys = [problem.key for problem in caught.value.problems]
    assert len(keys) == len(set(keys))


def test_a_driver_that_needs_a_missing_file_is_reported_with_its_path(loose: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        desired_state(parse("cluster: t\nclouds: {c: {driver: careless}}\nnodeGroups: []\n", loose, name="f"))
    why = "the driver careless failed with FileNotFoundError: /nowhere/token: No such file or directory"
    assert f"clouds.c: {why}" in str(caught.value)
