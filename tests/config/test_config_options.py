"""An author's options are checked like the rest of the file: all problems at once, each with its line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, field_validator
from pydantic.alias_generators import to_camel

from cloudgraft.config import Config, ConfigError, Where, parse, parse_options
from cloudgraft.config.sections.providers import EntryPointProvider
from cloudgraft.sdk.driver import Place, StateFile, WorkingDirectory
from cloudgraft.sdk.errors import InternalError, InvalidArgumentError
from cloudgraft.sdk.flaws import Flaws
from cloudgraft.validation.document import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    size_gb: int
    image_file: str = ""


@dataclass(frozen=True, kw_only=True)
class Options:
    url: str
    token_file: Path | None = None
    poll_every: timedelta = timedelta(seconds=30)
    disks: Sequence[Disk] = ()
    by_zone: Mapping[str, Disk] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    mode: Literal["fast", "slow"] = "slow"
    state: str = field(default="", init=False)


@dataclass(frozen=True)
class NoOptions:
    pass


class ModelOptions(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)

    user_name: str
    password: str
    key_path: Path | None = None

    @field_validator("password")
    @classmethod
    def _long(cls, value: str) -> str:
        if len(value) < 8:
            raise ValueError(f"too short: {value}")
        return value


def _config(options: str, base_dir: Path) -> tuple[EntryPointProvider, Config]:
    indented = options.replace("\n", "\n      ")
    text = f"cluster: a\nproviders:\n  - type: memory\n    options:\n      {indented}\n"
    config = parse(text, base_dir, name="f")
    [provider] = config.providers
    assert isinstance(provider, EntryPointProvider)
    return provider, config


def _read(kind: type, options: str, base_dir: Path) -> object:
    provider, config = _config(options, base_dir)
    return parse_options(kind, provider.options, config.where("providers", 0, "options"))


def _lines(kind: type, options: str, base_dir: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        _read(kind, options, base_dir)
    assert caught.value.__cause__ is None
    return str(caught.value).splitlines()


def test_a_dataclass_is_filled_from_camel_case_with_paths_and_durations(tmp_path: Path) -> None:
    options = _read(
        Options,
        "url: https://x\ntokenFile: secrets/t\npollEvery: 1m30s\n"
        "disks: [{sizeGb: 5, imageFile: a.img}]\nbyZone: {eu: {sizeGb: 6}}\nlabels: {a: b}\nmode: fast",
        tmp_path,
    )
    assert options == Options(
        url="https://x",
        token_file=tmp_path / "secrets" / "t",
        poll_every=timedelta(seconds=90),
        disks=[Disk(size_gb=5, image_file=str(tmp_path / "a.img"))],
        by_zone={"eu": Disk(size_gb=6)},
        labels={"a": "b"},
        mode="fast",
    )


def test_all_problems_of_the_options_are_told_at_once_with_their_lines(tmp_path: Path) -> None:
    assert _lines(
        Options,
        "ulr: x\npollEvery: 5\ndisks: [{sizeGb: much}, {size: 1}]\nbyZone: {eu: 7}\nmode: fats\nstate: x\n"
        "labels: {a: no}",
        tmp_path,
    ) == [
        "f:5:7: providers[0].options.ulr: unknown key (did you mean url?)",
        "f:5:7: providers[0].options.url: is missing",
        "f:6:18: providers[0].options.pollEvery: a duration needs a unit (for example 5s)",
        "f:7:24: providers[0].options.disks[0].sizeGb: must be a whole number, not a string",
        "f:7:31: providers[0].options.disks[1].sizeGb: is missing",
        "f:7:32: providers[0].options.disks[1].size: unknown key (did you mean sizeGb?)",
        "f:8:20: providers[0].options.byZone.eu: must be a mapping of keys to values, not a number",
        "f:9:13: providers[0].options.mode: must be one of fast, slow",
        (
            "f:10:7: providers[0].options.state: unknown key (known here: byZone, disks, labels, mode, pollEvery, "
            "tokenFile, url)"
        ),
        'f:11:19: providers[0].options.labels.a: must be a string, but YAML reads no as false (write "no")',
    ]


@dataclass(frozen=True, kw_only=True)
class Lab:
    """Every way to record a flaw, by the names that Python has for the fields."""

    boot_time: timedelta = timedelta(0)
    spare_hosts: int = -1
    base_url: str = ""
    disk_image: str = ""
    root_disk: Disk = Disk(size_gb=1)
    disks: Sequence[Disk] = ()
    my_labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        flaws = Flaws()
        flaws.expect_positive(boot_time=self.boot_time)
        flaws.expect_not_negative(spare_hosts=self.spare_hosts)
        flaws.expect(self.base_url, "base_url", "must not be empty")
        with flaws.at("disk_image"):
            raise InvalidArgumentError("disk_image: has no such file")
        flaws.tell(("root_disk", "size_gb"), "is too small")
        flaws.tell(("disks", 0, "image_file"), "has no such file")
        flaws.tell(("my_labels", "is_mine"), "is reserved")  # a key of the user's own: it stays as it is
        flaws.raise_any()


@dataclass(frozen=True, kw_only=True)
class Rack:
    the_lab: Lab


LAB = """\
bootTime: 0s
spareHosts: -1
baseUrl: ''
diskImage: x.img
rootDisk: {sizeGb: 1}
disks: [{sizeGb: 1, imageFile: y.img}]
myLabels: {is_mine: x}"""


def test_a_flaw_names_the_key_of_the_file_and_has_its_line(tmp_path: Path) -> None:
    flaws = [
        "bootTime: must be more than zero",
        "spareHosts: must not be negative",
        "baseUrl: must not be empty",
        "diskImage: has no such file",
        "rootDisk.sizeGb: is too small",
        "disks[0].imageFile: has no such file",
        "myLabels.is_mine: is reserved",
    ]
    for kind, text, prefix, first in (
        (Lab, LAB, "", 5),
        (Rack, "theLab:\n  " + LAB.replace("\n", "\n  "), "theLab.", 6),  # pydantic tells a section's own flaws
    ):
        found = _lines(kind, text, tmp_path)
        assert [line.split(": ", 1)[1] for line in found] == [f"providers[0].options.{prefix}{flaw}" for flaw in flaws]
        assert [int(line.split(":")[1]) for line in found] == [first + number for number in range(len(flaws))]


def test_a_duration_that_is_none_is_told_once(tmp_path: Path) -> None:
    assert _lines(Options, "url: x\npollEvery: soon", tmp_path) == [
        "f:6:18: providers[0].options.pollEvery: is not a duration (for example 5s, 1m30s or 250ms)"
    ]


def test_a_pydantic_model_is_filled_by_its_own_aliases_and_closed_to_others(tmp_path: Path) -> None:
    options = _read(ModelOptions, "userName: a\npassword: long enough\nkeyPath: k", tmp_path)
    assert isinstance(options, ModelOptions)
    assert (options.user_name, options.key_path) == ("a", tmp_path / "k")
    assert _lines(ModelOptions, "userName: a\npassword: long enough\nuser: x", tmp_path) == [
        "f:7:7: providers[0].options.user: unknown key (did you mean userName?)"
    ]


def test_an_authors_message_about_a_secret_is_not_repeated(tmp_path: Path) -> None:
    assert _lines(ModelOptions, "userName: a\npassword: hunter2", tmp_path) == [
        "f:6:17: providers[0].options.password: is not valid"
    ]


def test_a_dataclass_without_fields_takes_no_options(tmp_path: Path) -> None:
    assert _lines(NoOptions, "a: 1", tmp_path) == ["f:5:7: providers[0].options.a: unknown key (known here: none)"]
    where = Where(document=Document.without_file("program"), base_dir=tmp_path, path=("options",))
    assert parse_options(NoOptions, {}, where) == NoOptions()


@dataclass(frozen=True)
class Picky:
    size: int = 0

    def __post_init__(self) -> None:
        if self.size < 0:
            raise InvalidArgumentError("size must not be negative")


def test_what_an_authors_own_check_raises_is_told_at_the_options(tmp_path: Path) -> None:
    assert _lines(Picky, "size: -1", tmp_path) == ["f:5:7: providers[0].options: size must not be negative"]


def test_options_without_a_file_are_told_without_a_line(tmp_path: Path) -> None:
    where = Where(document=Document.without_file("program"), base_dir=tmp_path, path=("options",))
    with pytest.raises(ConfigError) as caught:
        parse_options(Options, {"ulr": "x"}, where)
    assert str(caught.value).splitlines() == [
        "program: options.ulr: unknown key (did you mean url?)",
        "program: options.url: is missing",
    ]


@dataclass(frozen=True)
class Placed:
    state_file: StateFile = None
    working_directory: WorkingDirectory = None


class PlacedModel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)

    state_file: StateFile = None
    working_directory: WorkingDirectory = None


@pytest.mark.parametrize("kind", [Placed, PlacedModel])
def test_places_are_filled_in_where_the_file_leaves_them_open(kind: type[Placed | PlacedModel], tmp_path: Path) -> None:
    where = Where(document=Document.without_file(), base_dir=tmp_path, path=())
    places = {Place.STATE_FILE: tmp_path / "s.db", Place.WORKING_DIRECTORY: tmp_path}
    filled = parse_options(kind, {"stateFile": None}, where, places)
    assert (filled.state_file, filled.working_directory) == (tmp_path / "s.db", tmp_path)
    said = parse_options(kind, {"stateFile": "own"}, where, places)
    assert (said.state_file, said.working_directory) == (tmp_path / "own", tmp_path)
    assert parse_options(kind, {}, where).state_file is None


class Opaque:
    pass


@dataclass
class Impossible:
    value: Opaque


def test_an_options_type_that_cannot_be_read_is_the_authors_bug(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="the options type Impossible cannot be read from a file"):
        _read(Impossible, "value: 1", tmp_path)
