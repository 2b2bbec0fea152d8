"""Clones under way, as a vCenter may tell of them: not all at once, and not all of it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cloudgraft.drivers.vsphere.clones import Clones
from cloudgraft.drivers.vsphere.driver import VsphereDriver
from cloudgraft.drivers.vsphere.inventory import Template
from cloudgraft.drivers.vsphere.options import ShapeOptions, VsphereOptions
from cloudgraft.drivers.vsphere.pyvmomi import vim, vmodl
from cloudgraft.sdk.driver import MachineSpec
from cloudgraft.sdk.errors import OutOfStockError

COLLECTOR = vmodl.query.PropertyCollector
NOW = datetime(2026, 1, 2, tzinfo=UTC)
FOLDER, TASK = vim.Folder("group-v1"), vim.Task("task-1")
USER_DATA = "#cloud-config\ntoken: hidden-in-user-data\n"


class Told:
    """A session with a vCenter that knows properties of tasks, and nothing else."""

    def __init__(self, **task: Any) -> None:
        self.task = {f"info.{key}": value for key, value in task.items()}
        self.on_tasks: Callable[[], None] = lambda: None
        self.events: list[Any] = []

    def read(self, what: str, call: Callable[[Any], Any]) -> Any:
        if what == "virtual machine":
            return None
        collector = SimpleNamespace(RetrievePropertiesEx=self._asked, RetrieveContents=self._recent)
        events = SimpleNamespace(QueryEvents=lambda _: self.events)
        manager = vim.TaskManager("TaskManager")
        return call(SimpleNamespace(propertyCollector=collector, eventManager=events, taskManager=manager))

    def change(self, _what: str, _call: object) -> Any:
        return TASK

    def close(self) -> None: ...

    def _asked(self, specs: list[Any], _options: object) -> Any:
        if specs[0].propSet[0].type is vim.VirtualMachine:
            return None
        return COLLECTOR.RetrieveResult(objects=[self._content(specs[0].propSet[0].pathSet)])

    def _recent(self, _specs: object) -> list[Any]:
        self.on_tasks()
        return [self._content(list(self.task))]

    def _content(self, paths: list[str]) -> Any:
        shown = [vmodl.DynamicProperty(name=path, val=self.task[path]) for path in paths]
        return COLLECTOR.ObjectContent(obj=TASK, propSet=shown)


def driver(tmp_path: Path, session: Told, **changes: Any) -> VsphereDriver:
    given: dict[str, Any] = {"server": "vcenter.example", "user": "u", "password_file": tmp_path / "p"}
    given |= {"datacenter": "DC0", "cluster": "C0", "shapes": {"small": ShapeOptions(cpu=2, memory="4Gi")}}
    made = VsphereDriver(VsphereOptions(**{**given, **changes}))
    made._session = session  # type: ignore[assignment]  # as far as it is asked
    made._inventory._folder = FOLDER
    return made


def test_a_clone_that_runs_and_is_not_among_the_recent_tasks_is_not_forgotten() -> None:
    """Law 3: a list without it would say that it was never made."""
    clones = Clones()
    clone = clones.begin("prod-1", {}, TASK)
    nothing: Mapping[str, Mapping[str, Any]] = {}
    assert clones.take_in(Told(state="running"), nothing, [clone]) == set()  # type: ignore[arg-type]  # the same
    assert clones.of("prod-1") == [clone]
    assert clones.take_in(Told(state="success", result=None), nothing, [clone]) == {"prod-1"}  # type: ignore[arg-type]
    assert clones.of("prod-1") == []


def test_a_clone_that_begins_while_a_list_is_made_is_in_it_once(tmp_path: Path) -> None:
    task = {"key": "task-1", "descriptionId": "VirtualMachine.clone", "queueTime": NOW, "eventChainId": 7}
    session = Told(state="running", **task)
    made = driver(tmp_path, session)
    folder = vim.event.FolderEventArgument(name="cloudgraft", folder=FOLDER)
    event = vim.event.VmBeingClonedEvent(destFolder=folder, destName="prod-1", chainId=7, createdTime=NOW)
    session.events = [event]
    assert [(m.name, dict(m.tags)) for m in made.list()] == [("prod-1", {})], "of another process"

    def begin() -> None:
        made._clones.begin("prod-1", {"a": "b"}, TASK)

    session.on_tasks = begin
    assert [(m.name, dict(m.tags)) for m in made.list()] == [("prod-1", {"a": "b"})]


def test_why_a_clone_failed_holds_no_user_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = base64.b64encode(USER_DATA.encode()).decode()
    fault = vim.fault.NoDiskSpace(datastore="ds1", msg=f"cannot store {sent}, which is token: hidden-in-user-data")
    made = driver(tmp_path, Told(state="error", error=fault))
    template = Template(name="t", reference=vim.VirtualMachine("vm-1"), devices=[], snapshot=None)
    for name, found in {"template": template, "pool": vim.ResourcePool("p"), "datastore": None, "networks": ()}.items():
        monkeypatch.setattr(made._inventory, name, lambda _settings, found=found: found)
    with pytest.raises(OutOfStockError, match="ds1") as caught:
        made.create(MachineSpec(name="prod-1", group="g", settings={"shape": "small"}, user_data=USER_DATA))
    assert "hidden" not in caught.value.message
    assert sent not in caught.value.message


def test_a_create_has_as_long_as_it_was_told_to_look_on_and_some_more(tmp_path: Path) -> None:
    made = driver(tmp_path, Told(), clone_wait=timedelta(minutes=10))
    assert made.traits.create_timeout == timedelta(minutes=12)
