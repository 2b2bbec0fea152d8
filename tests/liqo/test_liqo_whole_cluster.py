"""A group of everything that a cluster shares has one machine at most, and a file that says more is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cloudgraft.cli.main import cloudgraft
from tests.cli.log_state import log_as_before

FILE = """\
cluster: home
clouds:
  remote:
    driver: liqo
    discovery: {address: "https://discovery.example:9010"}
    sizes: {S: {cpu: 2, memory: 4Gi}}
nodeGroups:
"""


def _check(directory: Path, *groups: str) -> Result:
    file = directory / "cloudgraft.yaml"
    file.write_text(FILE + "".join(f"  - {{{group}}}\n" for group in groups))
    with log_as_before():
        return CliRunner().invoke(cloudgraft, ["serve", "--config", str(file), "--check"])


@pytest.mark.parametrize("how", ["machine: {shape: all@turin}", 'shapes: ["all@turin"]', 'shapes: [S, "all@turin"]'])
def test_more_than_one_of_a_whole_cluster_is_refused_at_start(tmp_path: Path, how: str) -> None:
    done = _check(tmp_path, f"id: whole, cloud: remote, maxSize: 2, {how}", "id: s, cloud: remote, maxSize: 2")
    assert done.exit_code == 1
    told = done.stderr
    assert "cloudgraft.yaml:8:" in told
    assert "nodeGroups[0].maxSize: must not be more than 1: all@turin is everything that turin shares" in told
    assert "nodeGroups[1].machine.shape" in told, "all that is wrong is told at once"


def test_one_of_a_whole_cluster_and_many_of_a_size_are_good(tmp_path: Path) -> None:
    whole = "id: whole, cloud: remote, maxSize: 1, machine: {shape: all@turin}"
    unused = "id: unused, cloud: remote, maxSize: 0, machine: {shape: all@paris}"
    done = _check(tmp_path, whole, unused, 'id: near, cloud: remote, maxSize: 4, shapes: [S, "S@turin"]')
    assert (done.exit_code, done.exception) == (0, None)
