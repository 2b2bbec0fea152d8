"""`cloudgraft demo liqo`: the story happens as it is told, with the real discovery server, engine and driver."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cloudgraft.demo.liqo import play


@pytest.mark.thorough
@pytest.mark.timeout(300)  # a whole story, on a machine that may be busy
async def test_cost_decides_and_changes_its_mind_and_nothing_is_left() -> None:
    """The story checks itself at every step: each line is told only when it has happened."""
    told: list[tuple[str, str]] = []
    await play(lambda kind, line: told.append((kind, line)))
    nodes = [line for kind, line in told if kind == "node"]
    assert [re.findall(r"a slice of (\w+)", line) for line in nodes] == [["berlin"], ["paris"], ["berlin"]]
    assert told[-1] == ("end", "no node, no slice, no peering and no reservation is left behind")


@pytest.mark.thorough
@pytest.mark.timeout(300)  # a whole story, on a machine that may be busy
def test_it_is_one_command_whose_output_is_only_the_story(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cloudgraft.cli", "demo", "liqo"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("end ")
    assert list(tmp_path.iterdir()) == []
