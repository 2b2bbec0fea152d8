"""Entry points are found without being imported, and a broken one disturbs nobody."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from cloudgraft.plugins.registry import Kind, Listing, Option, construct, extensions, find, list_all, options_of
from cloudgraft.sdk import BlockingDriver, InvalidArgumentError, Machine, MachineSpec, NotFoundError
from cloudgraft.sdk.errors import PreconditionError
from tests.plugins.fake_packages import DRIVER, write_package

DRIVERS = "cloudgraft.drivers"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("fake_")]:
        del sys.modules[name]


def listing(name: str) -> Listing:
    (found,) = [listing for listing in list_all() if listing.name == name and listing.kind is Kind.DRIVER]
    return found


def test_a_driver_is_listed_with_its_package_summary_and_options(site: Path) -> None:
    write_package(site, "fake-acme", group=DRIVERS, points={"acme": "fake_acme:AcmeDriver"}, code=DRIVER)
    assert listing("acme") == Listing(
        name="acme",
        kind=Kind.DRIVER,
        target="fake_acme:AcmeDriver",
        distribution="fake-acme",
        version="1.0",
        summary="Machines of ACME [the cloud].",
        options=(Option(name="tokenFile", is_required=True), Option(name="region", is_required=False)),
    )


def test_our_own_provider_is_there_too() -> None:
    (memory,) = [listing for listing in list_all() if listing.name == "memory"]
    assert (memory.kind, memory.distribution, memory.error) == (Kind.PROVIDER, "cloudgraft", "")


def test_nothing_is_imported_before_it_is_asked_for(site: Path) -> None:
    write_package(site, "fake-bomb", group=DRIVERS, points={"bomb": "fake_bomb:X"}, code="raise RuntimeError('boom')")
    assert "bomb" in [extension.name for extension in extensions(Kind.DRIVER)]
    assert find(Kind.DRIVER, "bomb").package == "fake-bomb 1.0"
    assert "fake_bomb" not in sys.modules


@pytest.mark.parametrize(
    ("target", "code", "reason"),
    [
        ("fake_bad:X", "raise RuntimeError('boom')", "cannot be imported: RuntimeError: boom"),
        ("fake_bad:X", "import sys; sys.exit(3)", "cannot be imported: SystemExit: 3"),
        ("fake_bad:X", "import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("fake_bad:X", "this is no Python", "SyntaxError"),
        ("fake_bad:X", "", "AttributeError"),
        ("no_such_module:X", "", "ModuleNotFoundError"),
        ("fake_bad:NotOne", DRIVER, "not derived from cloudgraft.sdk.Driver or cloudgraft.sdk.BlockingDriver"),
        ("fake_bad:Provider", DRIVER, "not derived from cloudgraft.sdk.Driver"),
        ("fake_bad:DRIVER", "DRIVER = 7", "not derived from"),
        ("fake_bad:Half", DRIVER, "lacks the methods create, delete"),
        ("fake_bad:BadOptions", DRIVER, "BadOptions.Options must be a dataclass, a pydantic model or dict"),
    ],
)
def test_one_that_cannot_be_used_says_why_and_the_others_are_listed(
    site: Path, target: str, code: str, reason: str
) -> None:
    write_package(site, "fake-bad", group=DRIVERS, points={"bad": target}, code=code)
    write_package(site, "fake-good", group=DRIVERS, points={"good": "fake_good:AcmeDriver"}, code=DRIVER)
    assert reason in listing("bad").error
    assert listing("bad").distribution == "fake-bad"
    assert listing("good").error == ""


def test_a_name_that_two_packages_offer_cannot_be_used(site: Path) -> None:
    for name in ("fake-one", "fake-two"):
        module = name.replace("-", "_")
        write_package(site, name, group=DRIVERS, points={"acme": f"{module}:AcmeDriver"}, code=DRIVER)
    errors = [listing.error for listing in list_all() if listing.name == "acme"]
    assert len(errors) == 2
    assert all("another package offers the same name" in error for error in errors)
    with pytest.raises(PreconditionError, match="uninstall one of the two"):
        find(Kind.DRIVER, "acme").load()


def test_the_error_for_an_unknown_name_lists_the_known_ones(site: Path) -> None:
    write_package(site, "fake-acme", group=DRIVERS, points={"acme": "fake_acme:AcmeDriver"}, code=DRIVER)
    with pytest.raises(NotFoundError, match="no installed package offers the driver 'acne'; did you mean 'acme'"):
        find(Kind.DRIVER, "acne")
    with pytest.raises(NotFoundError, match="there is: acme"):
        find(Kind.DRIVER, "zzz")
    with pytest.raises(NotFoundError, match="the provider 'acme'"):
        find(Kind.PROVIDER, "acme")


def test_an_object_is_made_with_its_options(site: Path) -> None:
    write_package(site, "fake-acme", group=DRIVERS, points={"acme": "fake_acme:AcmeDriver"}, code=DRIVER)
    cls = find(Kind.DRIVER, "acme").load()
    made: object = construct(cls, {"tokenFile": "/run/token"})
    assert vars(made)["options"].token_file == "/run/token"
    assert vars(made)["options"].region == "here"
    with pytest.raises(InvalidArgumentError, match="tokenFile") as caught:
        construct(cls, {"token": "hunter2"})
    assert "hunter2" not in str(caught.value)


class Plain(BlockingDriver):
    def create(self, spec: MachineSpec) -> Machine:
        raise NotImplementedError

    def delete(self, machine: Machine) -> None:
        raise NotImplementedError

    def list(self) -> Sequence[Machine]:
        return []


@dataclass
class OnlyLabels:
    labels: Mapping[str, str]


@pytest.mark.parametrize("settings", [None, OnlyLabels])
def test_a_driver_that_labels_nodes_has_settings_for_labels_and_taints(settings: type | None) -> None:
    class Labels(Plain):
        sets_node_labels = True
        MachineSettings = settings

    with pytest.raises(InvalidArgumentError, match=r"Labels\.sets_node_labels needs MachineSettings with the fields"):
        construct(Labels, {})


def test_machine_settings_of_another_kind_are_refused() -> None:
    class Odd(Plain):
        MachineSettings = int

    with pytest.raises(
        InvalidArgumentError, match=r"Odd\.MachineSettings must be a dataclass, a pydantic model or dict"
    ):
        construct(Odd, {})


def test_a_class_without_options_takes_none() -> None:
    assert isinstance(construct(Plain, {}), Plain)
    with pytest.raises(InvalidArgumentError, match="Plain takes no options, but got: a, b") as caught:
        construct(Plain, {"b": "hunter2", "a": 1})
    assert "hunter2" not in caught.value.message


def test_a_class_whose_options_are_a_dict_takes_them_as_they_are() -> None:
    class Loose(Plain):
        Options = dict
        MachineSettings = dict

        def __init__(self, options: dict[str, object]) -> None:
            self.options = options

    made = construct(Loose, {"region": "east"})
    assert isinstance(made, Loose)
    assert made.options == {"region": "east"}
    assert options_of(Loose) == ()
