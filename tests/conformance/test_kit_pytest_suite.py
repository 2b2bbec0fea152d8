"""The suite as an author uses it: a class, one test per check."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cloudgraft.conformance.checks import CHECKS

GOOD = """
from cloudgraft.conformance.pytest_suite import ProviderConformance
from cloudgraft.testing import MemoryGroup, MemoryOptions, MemoryProvider


class TestMine(ProviderConformance):
    def provider(self):
        return MemoryProvider(MemoryOptions(groups=(MemoryGroup(id="small"),)))
"""
BAD = """
import pytest
from cloudgraft.conformance import KitConfig
from cloudgraft.conformance.pytest_suite import ProviderConformance
from cloudgraft.sdk import NotFoundError
from cloudgraft.testing import MemoryGroup, MemoryOptions, MemoryProvider


class Strict(MemoryProvider):
    async def node_group_for_node(self, node):
        found = await super().node_group_for_node(node)
        if found is None:
            raise NotFoundError("I do not know this node")
        return found


class TestMine(ProviderConformance):
    release = "1.28"

    @pytest.fixture(scope="class")
    @classmethod
    def kit(cls):
        return KitConfig.model_validate({"group": "small", "patience": {"cleanup": "5s"}})

    def provider(self):
        return Strict(MemoryOptions(groups=(MemoryGroup(id="small"),)))
"""


def outcome(tmp_path: Path, text: str) -> tuple[int, str]:
    file = tmp_path / "test_mine.py"
    file.write_text(text)
    plain = ("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist", "-c", "/dev/null", "-rfs")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", *plain, f"--rootdir={tmp_path}", str(file)],
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
        cwd=tmp_path,
    )
    return ended.returncode, ended.stdout


@pytest.mark.thorough
def test_a_good_provider_gets_one_passed_test_for_each_check(tmp_path: Path) -> None:
    code, text = outcome(tmp_path, GOOD)
    assert code == 0, text
    assert "PytestRemovedIn" not in text
    assert all(f"test_conformance[{check.name}]" in text for check in CHECKS)
    assert "test_nothing_is_left_behind PASSED" in text
    assert "needs the author's help: give hooks.restart" in text


@pytest.mark.thorough
def test_a_mistake_is_one_failed_test_with_its_rule_its_reason_and_the_calls(tmp_path: Path) -> None:
    code, text = outcome(tmp_path, BAD)
    assert code == 1, text
    assert "test_conformance[foreign_nodes_belong_to_no_group] FAILED" in text
    for part in ("I do not know this node", "rule: ", "why: ", "fix: ", "NodeGroupForNode(node {"):
        assert part in text
