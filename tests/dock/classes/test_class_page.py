"""The page about machine classes: what it shows is what works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from cloudgraft.config import load
from cloudgraft.dock.classes.declared import Declared, Snapshot
from cloudgraft.dock.classes.files import ConfiguredReader, DirectoryReader
from cloudgraft.dock.classes.store import MachineClasses
from cloudgraft.dock.slot import shape_of
from cloudgraft.kube.objects import MACHINE_CLASSES, SECRET_CONTENTS

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "machine-classes.md").read_text()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, content in re.findall(r"^```\w+ file=(\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


def only(snapshot: Snapshot | None) -> Declared:
    assert snapshot is not None
    assert snapshot.problems == ()
    (found,) = snapshot.classes
    return found


def test_its_configuration_and_its_files_are_good(files: Path) -> None:
    dock = load(files / "cloudgraft.yaml").dock
    assert dock is not None
    configured = only(ConfiguredReader(dock.classes).read())
    assert configured.data == {"token": b"0123456789abcdef"}
    written = only(DirectoryReader(files / "classes").read())
    assert written.data == {"token": b"0123456789abcdef", "userData": b"#cloud-config"}
    store = MachineClasses(["page"])
    store.publish("page", Snapshot(classes=(configured, written)))
    assert sorted(shape_of(found).name for found in store.classes()) == ["acme-small", "acme.large"]


def test_its_role_is_what_is_needed() -> None:
    (role,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    granted = {(*rule["apiGroups"], *rule["resources"], *rule["verbs"]) for rule in yaml.safe_load(role)["rules"]}
    kinds = (MACHINE_CLASSES, SECRET_CONTENTS)
    assert granted == {(kind.group, kind.plural, "list", "watch") for kind in kinds}
