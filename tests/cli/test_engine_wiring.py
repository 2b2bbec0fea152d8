"""From the configuration to drivers that run: those that block get threads enough to be looked at while they hang."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cloudgraft.cli.engine_wiring import blueprint
from cloudgraft.config import load
from cloudgraft.sdk.driver import MachineSpec
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


async def test_a_list_is_answered_while_every_call_that_the_engine_may_make_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 1: more calls than the pool of an author has by itself."""
    points = {"hanging": "hanging_cloud:Hanging"}
    write_package(tmp_path, "hanging-cloud", group="cloudgraft.drivers", points=points, code=HANGING)
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "cloudgraft.yaml"
    groups = "[{id: g, cloud: a, maxSize: 1, template: {capacity: {cpu: 1, memory: 1Gi}}}]"
    clouds = "{a: {driver: hanging, engine: {maxCalls: 12}}}"
    file.write_text(f"{{cluster: c, clouds: {clouds}, nodeGroups: {groups}}}", "utf-8")
    driver = blueprint(load(file)).clouds["a"].make()
    import hanging_cloud  # type: ignore[import-not-found]  # made above

    creates = [asyncio.create_task(driver.create(MachineSpec(name=f"m-{n}", group="g"))) for n in range(12)]
    for _ in creates:
        await asyncio.to_thread(hanging_cloud.BEGUN.acquire)
    assert await driver.list() == []
    hanging_cloud.FREE.set()
    done = await asyncio.gather(*creates, return_exceptions=True)
    assert all(isinstance(one, RuntimeError) for one in done)
    await driver.close()


def test_a_driver_whose_library_is_missing_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cloudgraft.plugins.registry import Kind, find
    from cloudgraft.sdk.errors import PreconditionError

    points = {"far": "far_cloud:Far [far]"}
    write_package(tmp_path, "far-cloud", group="cloudgraft.drivers", points=points, code="import no_such_library")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PreconditionError, match=r"No module named 'no_such_library'; pip install 'far-cloud\[far\]'"):
        find(Kind.DRIVER, "far").load()
