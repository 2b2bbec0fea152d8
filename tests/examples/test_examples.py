"""The examples that the documentation uses, run as a reader would run them: as programs of their own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cloudgraft.certs.authority import create_bundle
from cloudgraft.client import Address, CloudConfig, SyncCloudProvider, SyncNodeGroup
from cloudgraft.sdk import AutoscalingOptions, Instance, InvalidArgumentError, NodeRef
from cloudgraft.service.options import FLAG_DEFAULTS

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples"
SECONDS = 30


class Program:
    """An example that serves: started with a free port, asked over the socket."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.address = self._wait_for_address()

    def _wait_for_address(self) -> str:
        assert self.process.stderr is not None
        seen = []
        for line in self.process.stderr:
            seen.append(line)
            if found := re.search(r"serving \w+ on (\S+);", line):
                return found[1]
        raise AssertionError(f"ended with {self.process.wait(SECONDS)} before it served: {''.join(seen)}")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(SECONDS)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


Start = Callable[..., Program]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts programs in one directory, and ends those that are left."""
    started: list[Program] = []

    def begin(*arguments: str) -> Program:
        program = Program(tmp_path, *arguments)
        started.append(program)
        return program

    yield begin
    for program in started:
        if program.process.poll() is None:
            program.end()


def _connect(program: Program) -> SyncCloudProvider:
    return SyncCloudProvider.connect(CloudConfig(address=Address.parse(program.address)))


def _only_group(cloud: SyncCloudProvider) -> SyncNodeGroup:
    (group,) = cloud.node_groups()
    return group


def _ids(instances: list[Instance]) -> list[str]:
    return [instance.id for instance in instances]


# -- the tutorial ------------------------------------------------------------------------------------------------------


def test_the_tutorials_show_the_examples_as_they_are() -> None:
    driver = (ROOT / "docs/tutorial/your-first-driver.md").read_text()
    assert f"```python file=lab_driver.py\n{(EXAMPLES / 'first_driver.py').read_text()}```" in driver
    http_api = (ROOT / "docs/how-to/write-a-driver-for-an-http-api.md").read_text()
    for name in ("acme_driver.py", "acme_cloud.py"):
        assert f"```python file={name}\n{(EXAMPLES / 'http_api' / name).read_text()}```" in http_api
    page = (ROOT / "docs/tutorial/your-first-provider.md").read_text()
    shown = re.search(r"^```python file=first_provider\.py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert shown is not None
    assert shown[1] == (EXAMPLES / "first_provider.py").read_text()


def test_the_first_provider_adds_and_deletes_machines(start: Start) -> None:
    with _connect(start(str(EXAMPLES / "first_provider.py"), "127.0.0.1:0")) as cloud:
        lab = _only_group(cloud)
        assert (lab.id, lab.min_size, lab.max_size) == ("lab", 0, 3)
        lab.increase_size(3)
        assert _ids(lab.nodes()) == ["lab://lab-1", "lab://lab-2", "lab://lab-3"]
        with pytest.raises(InvalidArgumentError, match="cannot grow"):
            lab.increase_size(1)
        lab.delete_nodes([NodeRef(name="worker", provider_id="lab://lab-2")])
        lab.delete_nodes([NodeRef(name="lab-2")])
        assert lab.target_size() == 2
        lab.increase_size(1)
        assert _ids(lab.nodes()) == ["lab://lab-1", "lab://lab-3", "lab://lab-4"]
        template = lab.template_node_info()
        assert template is not None
        assert {name: str(quantity) for name, quantity in template.allocatable.items()} == {
            "cpu": "4",
            "memory": "16Gi",
            "pods": "110",
        }


def test_the_first_provider_leaves_foreign_nodes_alone(start: Start, tmp_path: Path) -> None:
    """R17, R52: also those whose names try to leave the directory."""
    (tmp_path / "secret").write_text("running")
    with _connect(start(str(EXAMPLES / "first_provider.py"), "127.0.0.1:0")) as cloud:
        lab = _only_group(cloud)
        lab.increase_size(1)
        for foreign in ("elsewhere://lab-1", "lab://lab-9", "lab://../secret"):
            assert cloud.node_group_for_node(NodeRef(name="x", provider_id=foreign)) is None
            with pytest.raises(InvalidArgumentError, match="none was deleted"):
                lab.delete_nodes([NodeRef(name="lab-1"), NodeRef(name="x", provider_id=foreign)])
        assert lab.target_size() == 1
    assert (tmp_path / "secret").read_text() == "running"


def test_the_first_provider_knows_its_machines_after_kill_9(start: Start) -> None:
    """T9, R24: those that are gone too, as long as their nodes may be asked about."""
    program = start(str(EXAMPLES / "first_provider.py"), "127.0.0.1:0")
    with _connect(program) as cloud:
        lab = _only_group(cloud)
        lab.increase_size(2)
        lab.delete_nodes([NodeRef(name="lab-1")])
    assert program.end(signal.SIGKILL) == -signal.SIGKILL
    with _connect(start(str(EXAMPLES / "first_provider.py"), "127.0.0.1:0")) as cloud:
        assert _ids(_only_group(cloud).nodes()) == ["lab://lab-2"]
        assert cloud.node_group_for_node(NodeRef(name="lab-1")) is not None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_example_that_serves_ends_when_told(start: Start, number: signal.Signals) -> None:
    assert start(str(EXAMPLES / "first_provider.py"), "127.0.0.1:0").end(number) == 0


# -- a provider that blocks --------------------------------------------------------------------------------------------


@pytest.fixture
def inventory(start: Start) -> Iterator[SyncCloudProvider]:
    with _connect(start(str(EXAMPLES / "blocking_provider.py"), "inventory.db", "127.0.0.1:0")) as cloud:
        yield cloud


def test_the_blocking_provider_switches_machines_on_and_off(inventory: SyncCloudProvider) -> None:
    metal = _only_group(inventory)
    assert (metal.id, metal.max_size) == ("metal", 4)
    metal.increase_size(2)
    assert _ids(metal.nodes()) == ["inventory://rack-1", "inventory://rack-2"]
    node = NodeRef(name="worker", provider_id="inventory://rack-1")
    metal.delete_nodes([node])
    metal.delete_nodes([node])
    assert metal.target_size() == 1
    owner = inventory.node_group_for_node(node)
    assert owner is not None
    assert owner.id == "metal"
    metal.increase_size(3)
    assert metal.target_size() == 4


def test_the_blocking_provider_deletes_all_or_nothing(inventory: SyncCloudProvider) -> None:
    metal = _only_group(inventory)
    metal.increase_size(2)
    with pytest.raises(InvalidArgumentError, match="not in the inventory"):
        metal.delete_nodes([NodeRef(name="rack-1"), NodeRef(name="elsewhere")])
    assert metal.target_size() == 2
    assert inventory.node_group_for_node(NodeRef(name="elsewhere")) is None


def test_the_blocking_provider_overrides_one_option(inventory: SyncCloudProvider) -> None:
    wanted = _only_group(inventory).get_options(FLAG_DEFAULTS)
    assert isinstance(wanted, AutoscalingOptions)
    assert wanted.max_node_provision_time is not None
    assert wanted.max_node_provision_time.total_seconds() == 30 * 60
    assert wanted.scale_down_unneeded_time == FLAG_DEFAULTS.scale_down_unneeded_time


# -- the client --------------------------------------------------------------------------------------------------------


def _use_the_client(cloud_config: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "use_the_client.py", cloud_config],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.thorough
def test_the_client_is_used_without_tls(start: Start, tmp_path: Path) -> None:
    program = start(str(EXAMPLES / "first_provider.py"), "127.0.0.1:0")
    config = tmp_path / "cloud-config.yaml"
    config.write_text(f"address: {program.address}\n")
    assert _use_the_client(config) == [
        "lab: 0 of 0..3",
        "  a new node has cpu 4, memory 16Gi, pods 110",
        "added lab://lab-1 to lab: running",
        "deleted lab://lab-1: 0 left in lab",
    ]
    with _connect(program) as cloud:
        _only_group(cloud).increase_size(3)
    assert _use_the_client(config)[-1] == "no group has room for one more machine"


SERVE_WITH_MTLS = """
from pathlib import Path
from cloudgraft.server import ServeOptions, TlsFiles, serve
from cloudgraft.testing import MemoryGroup, MemoryOptions, MemoryProvider

files = TlsFiles(cert=Path("server.crt"), key=Path("server.key"), client_ca=Path("ca.crt"))
provider = MemoryProvider(MemoryOptions(groups=[MemoryGroup(id="small", boot_seconds=3600)]))
serve(provider, ServeOptions(listen="127.0.0.1:0", tls=files))
"""


def test_the_client_is_used_with_mtls(start: Start, tmp_path: Path) -> None:
    bundle = create_bundle(tmp_path, hosts=["127.0.0.1"])
    program = start("-c", SERVE_WITH_MTLS)
    config = tmp_path / "cloud-config.yaml"
    config.write_text(
        f"address: {program.address}\nkey: {bundle.client_key}\ncert: {bundle.client_cert}\ncacert: {bundle.ca_cert}\n"
    )
    assert _use_the_client(config) == [
        "small: 0 of 0..10",
        "  a new node has cpu 4, memory 16Gi, pods 110",
        "added memory://small/small-1 to small: creating",
        "deleted memory://small/small-1: 0 left in small",
    ]
