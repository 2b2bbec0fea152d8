"""The options of `exec` and `static` as a configuration file says them: camelCase, paths relative to the file."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pytest

from cloudgraft.config import ConfigError, Where, parse_options
from cloudgraft.drivers.exec.driver import ExecDriver
from cloudgraft.drivers.exec.options import ExecOptions
from cloudgraft.drivers.static.options import StaticOptions
from cloudgraft.sdk.driver import Idempotency, Ownership, ProviderIdBy
from cloudgraft.validation.document import read_yaml

T = TypeVar("T")

EXEC = """
create: [./lab.sh, --fast]
delete: "./lab.sh --name 'a b'"
list: ./lab.sh
shapes: [./shapes.sh]
workingDirectory: scripts
env: {REGION: north}
envFiles: {LAB_TOKEN: token.txt}
timeouts: {create: 5m}
concurrency: 3
grace: 1s
ownership: name
idempotency: unique_name
listDelay: 10s
completeList: false
providerID: "lab://{name}"
providerIDBy: kubelet
userDataLimit: 16384
"""
STATIC = """
machines:
- {id: h1, providerID: "metal://1", addresses: [10.0.0.1], labels: {rack: a}, vars: {bmc: b1}, varFiles: {pin: pin.txt}}
- {id: h2, group: gpus}
powerOn: ./on.sh
powerOff: [./off.sh]
powerState: ./state.sh
stateFile: taken.json
timeouts: {powerState: 5s}
powerOnTime: 3m
"""


def parsed(kind: type[T], text: str, base: Path) -> T:
    document = read_yaml(text, "config.yaml")
    found = document.find(())
    assert found is not None
    data = found.value
    assert isinstance(data, dict)
    return parse_options(kind, data, Where(document=document, base_dir=base, path=()))


def test_the_options_of_exec(tmp_path: Path) -> None:
    options = parsed(ExecOptions, EXEC, tmp_path)
    assert options.commands() == {
        "create": ("./lab.sh", "--fast"),
        "delete": ("./lab.sh", "--name", "a b"),
        "list": ("./lab.sh",),
        "shapes": ("./shapes.sh",),
    }
    assert options.working_directory == tmp_path / "scripts"
    assert options.env_files == {"LAB_TOKEN": tmp_path / "token.txt"}
    assert options.timeouts.create == timedelta(minutes=5)
    traits = ExecDriver(options).traits
    assert (traits.ownership, traits.idempotency) == (Ownership.NAME, Idempotency.UNIQUE_NAME)
    assert (traits.list_delay, traits.complete_list) == (timedelta(seconds=10), False)
    assert (traits.provider_id, traits.provider_id_by) == ("lab://{name}", ProviderIdBy.KUBELET)
    assert traits.user_data_limit == 16384
    assert "north" not in repr(options)


def test_the_options_of_static(tmp_path: Path) -> None:
    options = parsed(StaticOptions, STATIC, tmp_path)
    first, second = options.machines
    assert (first.provider_id, first.var_files) == ("metal://1", {"pin": tmp_path / "pin.txt"})
    assert (second.provider_id, second.group) == ("static://h2", "gpus")
    assert options.commands() == {"powerOn": ("./on.sh",), "powerOff": ("./off.sh",), "powerState": ("./state.sh",)}
    assert options.state_file == tmp_path / "taken.json"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("providerId: x", "did you mean providerID?"),
        ("idempotency: maybe", "idempotency"),
        ("timeouts: {create: 5}", "a duration needs a unit"),
        ("timeouts: {create: 0s}", "more than zero"),
        ("env: {CLOUDGRAFT_NAME: x}", "are set by cloudgraft itself"),
        ("list: []", "list: is empty"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, change: str, message: str) -> None:
    key = change.partition(":")[0]
    rest = "\n".join(line for line in EXEC.splitlines() if not line.startswith(f"{key}:"))
    with pytest.raises(ConfigError) as caught:
        parsed(ExecOptions, f"{rest}\n{change}\n", tmp_path)
    assert message in str(caught.value)
    assert "config.yaml" in str(caught.value)
