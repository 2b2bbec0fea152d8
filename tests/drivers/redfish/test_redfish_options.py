"""What a configuration may say, and what is refused at the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudgraft.drivers.redfish.driver import RedfishDriver
from cloudgraft.drivers.redfish.options import Boot, MachineSettings, RedfishHost, RedfishOptions, ShapeOptions
from cloudgraft.sdk.errors import InvalidArgumentError, PreconditionError
from cloudgraft.validation import read_settings

URL = "https://bmc-1.example.org"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"id": ""}, "needs an id"),
        ({"url": "bmc-1"}, "url: is no address"),
        ({"url": "https://root:calvin@bmc-1"}, "must not have a user or a password"),
        ({"url": "http://bmc-1"}, "everybody on the way can read the password"),
        ({"system": "Systems/1"}, "system: must be a path"),
        ({"insecure": True, "ca_file": Path("ca")}, "say one"),
    ],
)
def test_a_host_that_can_never_work_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        RedfishHost(**{"id": "h", "url": URL, **given})


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"hosts": ()}, "hosts: say here, or in a hostsFile"),
        ({"username": ""}, "h: say username and passwordFile"),
        ({"hosts": [RedfishHost(id="h", url=URL)] * 2}, "two machines have the id 'h'"),
        ({"seed_url": "https://seeds.example.org"}, "seedDirectory: goes together with seedUrl"),
        ({"seed_directory": Path(), "seed_url": "seeds"}, "seedUrl: is no address"),
        ({"concurrency": 0}, "concurrency: must be at least 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(given: dict[str, Any], why: str) -> None:
    good = {"hosts": [RedfishHost(id="h", url=URL)], "username": "u", "password_file": Path("p")}
    with pytest.raises(InvalidArgumentError, match=why):
        RedfishOptions(**{**good, **given})


def test_amounts_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="cpu: "):
        ShapeOptions(cpu="many", memory="1Gi")


def test_the_section_of_a_group_is_read_and_its_mistakes_are_named() -> None:
    read = read_settings(MachineSettings, {"image": "https://example.org/os.iso", "select": {"rack": "7"}})
    assert (read.boot_target, read.select) == (Boot.CD, {"rack": "7"})
    assert read_settings(MachineSettings, {"boot": "Pxe"}).boot_target is Boot.PXE
    for wrong, why in (
        ({"boot": "Tape"}, "machine.boot: must be one of Cd, Pxe, Hdd, UefiHttp"),
        ({"image": "os.iso"}, "machine.image: is no address"),
        ({"httpBootUrl": "https://example.org/x.efi"}, "is for `boot: UefiHttp`"),
        ({"imag": "x"}, "did you mean '?image"),
    ):
        with pytest.raises(InvalidArgumentError, match=why):
            read_settings(MachineSettings, wrong)


def test_hosts_may_be_in_a_file_of_their_own_with_paths_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "hosts.yaml"
    file.write_text(
        "hosts:\n"
        f"- {{id: h1, url: '{URL}', username: root, passwordFile: h1.txt, caFile: ca.crt, shape: big, group: g}}\n"
        f"- {{id: h2, url: '{URL}', username: root, passwordFile: h2.txt, insecure: true, labels: {{rack: '7'}}}}\n"
    )
    driver = RedfishDriver(RedfishOptions(hosts_file=file))
    assert driver._hosts["h1"].password_file == tmp_path / "h1.txt"
    assert driver._hosts["h1"].ca_file == tmp_path / "ca.crt"
    assert driver._hosts["h2"].insecure
    for text, why in (
        ("- {id: h1, url: 'https://x', insecure: maybe}", "insecure: must be true or false"),
        ("- {id: h1, url: 'https://x'}", "h1: say username and passwordFile"),
        ("[{id: a, url: x, system: y}, {id: b, url: z}]", r"\[0\].url: is no.*\[0\].system: must.*\[1\].url: is no"),
        ("- {id: h1, url: 'https://x', username: u, passwordFile: p, shap: big}", "unknown key .*did you mean shape"),
    ):
        file.write_text(text)
        with pytest.raises(InvalidArgumentError, match=why):
            RedfishDriver(RedfishOptions(hosts_file=file))


async def test_a_place_for_seeds_that_cannot_be_written_is_told_at_the_start(tmp_path: Path) -> None:
    options = RedfishOptions(
        hosts=[RedfishHost(id="h", url=URL)],
        username="u",
        password_file=tmp_path / "p",
        state_file=tmp_path / "account.json",
        seed_directory=tmp_path / "missing",
        seed_url="https://seeds.example.org",
    )
    with pytest.raises(PreconditionError, match=r"seedDirectory: .*missing is no directory"):
        await RedfishDriver(options).start()
