"""`cloudgraft deploy render` for a driver of somebody else's package: what it declares is enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudgraft.config import ConfigError
from tests.deploy.rendering import own, rendered, warnings
from tests.plugins.fake_packages import write_package

DRIVER = """
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from cloudgraft.sdk import BlockingDriver, MadePath, StateFile

class OrchardDriver(BlockingDriver):
    @dataclass
    class Options:
        token_file: str
        keys: Mapping[str, Path] = field(default_factory=dict)
        scripts_dir: str = ""
        ledger: StateFile = None
        cache: MadePath = Path("cache")

    @dataclass
    class MachineSettings:
        shape: str
        seed_file: str = ""

    def __init__(self, options):
        pass

    create = delete = list = lambda self, *_: None
"""
CONFIG = """\
cluster: prod
clouds:
  trees:
    driver: orchard
    tokenFile: token
    keys: {a: keys/a, b: keys/b}
    scriptsDir: scripts
    ledger: trees.db
    cache: /var/cache/trees
  any:
    driver: router
    shapes: {small: [{cloud: trees, machine: {shape: s, seedFile: seeds/any}}]}
    engine: {guards: {maxMachines: 3}}
nodeGroups:
  - {id: a, cloud: trees, maxSize: 3, machine: {shape: s, seedFile: seeds/a}, template: TEMPLATE}
  - {id: b, cloud: any, maxSize: 3, machine: {shape: small}, template: TEMPLATE}
guards: {maxMachines: 10, maxCreatesPerHour: 10}
""".replace("TEMPLATE", "{capacity: {cpu: 1, memory: 1Gi, pods: 10}}")
STORE = "store: {postgresql: db.example/cg, user: cg, passwordFile: pw, ca: ca.pem}\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    site = tmp_path / "site"
    site.mkdir()
    points = {"orchard": "cloudgraft_orchard:OrchardDriver"}
    write_package(site, "cloudgraft-orchard", group="cloudgraft.drivers", points=points, code=DRIVER)
    monkeypatch.syspath_prepend(str(site))
    return tmp_path


def test_its_files_are_found_by_their_types(package: Path) -> None:
    found = rendered(package, CONFIG)
    content = own(found)
    assert content["clouds"]["trees"] == {
        "driver": "orchard",
        "tokenFile": "/etc/cloudgraft/trees/token",
        "keys": {"a": "/etc/cloudgraft/trees/a", "b": "/etc/cloudgraft/trees/b"},
        "scriptsDir": "/etc/cloudgraft/scripts-dir",
        "ledger": "/var/lib/cloudgraft/cloud-trees.db",
        "cache": "/var/lib/cloudgraft/trees-trees",
    }
    (backend,) = content["clouds"]["any"]["shapes"]["small"]
    assert backend["machine"]["seedFile"] == "/etc/cloudgraft/trees/any"
    assert content["nodeGroups"][0]["machine"]["seedFile"] == "/etc/cloudgraft/trees/2-a"


def test_its_package_goes_into_an_image(package: Path) -> None:
    found = rendered(package, CONFIG)
    assert "RUN pip install cloudgraft-orchard" in found.dockerfile
    assert any("the Python package cloudgraft-orchard goes into an image" in one for one in warnings(found))


def test_replicas_refuse_what_it_writes(package: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        rendered(package, CONFIG + STORE)
    assert {problem.key for problem in caught.value.problems} == {"clouds.trees.driver", "clouds.trees.cache"}
