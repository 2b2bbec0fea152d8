"""What a configuration file may say about libvirt, and what of it is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloudgraft.config import ConfigError, Where, parse_options
from cloudgraft.drivers.libvirt.options import Boot, Disk, DomainType, LibvirtOptions, MachineSettings, Network
from cloudgraft.sdk.driver import Idempotency, Ownership
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.validation import read_settings
from cloudgraft.validation.document import Document

SHAPES = {"small": {"cpu": 2, "memory": "4Gi", "disk": "20Gi"}, "bare": {"cpu": 1, "memory": "512Mi"}}
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "use-libvirt.md"


def read(section: Mapping[str, Any], kind: type[Any] = LibvirtOptions) -> Any:
    where = Where(document=Document.without_file("options"), base_dir=Path("/etc/cg"), path=())
    return parse_options(kind, section, where)


def refusal(**section: object) -> str:
    with pytest.raises(ConfigError) as caught:
        read({"shapes": SHAPES, **section})
    return str(caught.value)


def test_only_shapes_must_be_said() -> None:
    options = read({"shapes": SHAPES})
    assert options.uri == options.address == "qemu:///system"
    assert options.networks == (Network(network="default"),)
    assert options.domain_type is None
    assert options.traits().ownership is Ownership.TAGS
    assert options.traits().idempotency is Idempotency.TOKEN


def test_everything_can_be_said() -> None:
    options = read(
        {
            "shapes": SHAPES,
            "uri": "qemu+tls://kvm1/system",
            "networks": [{"bridge": "br0", "model": "e1000"}, {"network": "lab"}],
            "username": "cg",
            "passwordFile": "secret",
            "domainType": "qemu",
            "firmware": "efi",
            "seedBus": "sata",
            "createTimeout": "20m",
            "hostMemoryReserve": "8Gi",
        }
    )
    assert options.password_file == Path("/etc/cg/secret")
    assert options.domain_type is DomainType.QEMU
    assert [network.bridge or network.network for network in options.networks] == ["br0", "lab"]
    assert options.traits().create_timeout == options.create_timeout


def test_shapes_tell_what_kubernetes_will_see() -> None:
    small, bare = read({"shapes": SHAPES, "arch": "aarch64"}).offers()
    assert small.capacity["memory"] == Quantity("4Gi")
    assert small.capacity["ephemeral-storage"] == Quantity("20Gi")
    assert small.labels["node.kubernetes.io/instance-type"] == "small"
    assert small.labels["kubernetes.io/arch"] == "arm64"
    assert "ephemeral-storage" not in bare.capacity


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("qemu+ssh://root@kvm1/system", "qemu+ssh://root@kvm1/system?no_tty=1"),
        ("qemu+ssh://kvm1/system?keyfile=/etc/key", "qemu+ssh://kvm1/system?keyfile=/etc/key&no_tty=1"),
        ("qemu+ssh://kvm1/system?no_tty=0", "qemu+ssh://kvm1/system?no_tty=0"),
        ("qemu+unix:///session?socket=/run/s", "qemu+unix:///session?socket=/run/s"),
    ],
)
def test_ssh_never_asks_for_a_password(uri: str, address: str) -> None:
    assert read({"shapes": SHAPES, "uri": uri}).address == address


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"uri": "http://kvm1"}, "qemu:///system"),
        ({"uri": "qemu+tcp://me:secret-word@kvm1/system"}, "passwordFile"),
        ({"shapes": {}}, "shapes"),
        ({"shapes": {"a": {"cpu": 0, "memory": "4Gi"}}}, "cpu"),
        ({"shapes": {"a": {"cpu": 1, "memory": "4"}}}, "16Mi"),
        ({"shapes": {"a": {"cpu": 1, "memory": "4Gi", "disk": "much"}}}, "disk"),
        ({"networks": [{}]}, "bridge"),
        ({"networks": [{"bridge": "br0", "network": "default"}]}, "bridge"),
        ({"networks": [{"bridge": "br0", "model": "a b"}]}, "model"),
        ({"username": "me"}, "passwordFile"),
        ({"machineType": "<pc/>"}, "machineType"),
        ({"consoleLogDirectory": "logs"}, "consoleLogDirectory"),
        ({"hostMemoryReserve": "-1Gi"}, "hostMemoryReserve"),
        ({"maxMachines": -1}, "maxMachines"),
        ({"keepalive": "10ms"}, "keepalive"),
        ({"createTimeout": "0s"}, "createTimeout"),
        ({"domainType": "xen"}, "domainType"),
        ({"pol": "vms"}, "pool"),
    ],
)
def test_what_cannot_work_is_refused_at_the_start(section: dict[str, object], words: str) -> None:
    message = refusal(**section)
    assert words in message
    assert "secret-word" not in message


def test_a_machine_section_is_read_as_the_file_has_it() -> None:
    section = {
        "shape": "small",
        "disk": "clone",
        "size": "30Gi",
        "networks": [{"bridge": "br0"}],
        "networkConfig": {"version": 2},
        "boot": {"kernel": "/boot/vmlinuz", "cmdline": "quiet"},
    }
    expected = MachineSettings(
        shape="small",
        disk=Disk.CLONE,
        size="30Gi",
        networks=[Network(bridge="br0")],
        network_config={"version": 2},
        boot=Boot(kernel="/boot/vmlinuz", cmdline="quiet"),
    )
    assert read_settings(MachineSettings, section) == expected
    assert read(section, MachineSettings) == expected
    assert read_settings(MachineSettings, {"shape": "small"}).networks is None


@pytest.mark.parametrize(
    ("section", "word"),
    [
        ({}, "shape"),
        ({"shape": ""}, "shape"),
        ({"shape": "a", "disk": "copy"}, "overlay"),
        ({"shape": "a", "size": True}, "size"),
        ({"shape": "a", "size": "-1Gi"}, "size"),
        ({"shape": "a", "networks": "br0"}, "networks"),
        ({"shape": "a", "networks": [{"bridge": "br0", "vlan": "3"}]}, "vlan"),
        ({"shape": "a", "boot": {"kernel": "vmlinuz"}}, "boot.kernel"),
        ({"shape": "a", "imagee": "b"}, "image"),
    ],
)
def test_a_machine_section_that_makes_no_sense_is_an_invalid_argument(section: dict[str, object], word: str) -> None:
    with pytest.raises(InvalidArgumentError, match=word):
        read_settings(MachineSettings, section)


def test_the_configuration_of_the_page_is_good() -> None:
    """The page itself cannot run it where libvirt is not installed."""
    block = PAGE.read_text("utf-8").partition("```yaml file=cloudgraft.yaml\n")[2].partition("```")[0]
    document = yaml.safe_load(block)
    for cloud in document["clouds"].values():
        read({key: value for key, value in cloud.items() if key != "driver"})
    for group in document["nodeGroups"]:
        assert read(group["machine"], MachineSettings) == read_settings(MachineSettings, group["machine"])
