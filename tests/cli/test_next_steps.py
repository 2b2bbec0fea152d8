"""Every "Next:" that a command prints works on a machine where only cloudgraft's core is installed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.cli.fresh_environment import ROOT, FreshEnvironment

SOURCES = ROOT / "src/cloudgraft"
# The commands whose steps are run below, by the function that prints them. One that is missing here fails a test.
COMMANDS = {
    "cli/new.py:_driver": ("cloudgraft new driver acme", "cloudgraft new driver acme-two --async"),
    "cli/new.py:_provider": ("cloudgraft new provider beta",),
    "cli/new.py:_receiver": ("cloudgraft new receiver",),
    "demo/view.py:print_summary": ("cloudgraft demo --plain",),
}
PRINTERS = {"next_steps", "_print_steps"}  # of cli/terminal.py, and of cli/new.py on top of it


def steps_of(printed: str) -> list[str]:
    """The commands below "Next:": indented lines. What stands far to the right of one is an explanation."""
    lines = printed.splitlines()
    start = next(number for number, line in enumerate(lines) if re.search(r"\b[Nn]ext:$", line))
    steps = []
    for line in lines[start + 1 :]:
        if not line.startswith("  "):
            break
        steps.append(re.split(r"\s{2,}", line.strip())[0])
    return steps


def printing_functions() -> set[str]:
    """Each function that prints steps: it calls one of the printers, or has the words in a text of its own."""
    found = set()
    for path in SOURCES.rglob("*.py"):
        if "ext:" not in (source := path.read_text()) and "next_steps" not in source:
            continue
        for function in ast.walk(ast.parse(source)):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) or function.name in PRINTERS:
                continue
            for node in ast.walk(function):
                is_call = isinstance(node, ast.Call) and getattr(node.func, "id", "") in PRINTERS
                is_text = isinstance(node, ast.Constant) and re.search(r"\b[Nn]ext:\s*$", str(node.value))
                if is_call or is_text:
                    found.add(f"{path.relative_to(SOURCES)}:{function.name}")
    return found


def test_every_command_that_prints_next_steps_is_run_below() -> None:
    assert printing_functions() == {*COMMANDS}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> FreshEnvironment:
    return FreshEnvironment(tmp_path_factory.mktemp("fresh"))


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("fresh")
@pytest.mark.parametrize("command", [command for commands in COMMANDS.values() for command in commands])
def test_the_next_steps_of_a_command_work_in_a_new_environment(
    fresh: FreshEnvironment, tmp_path: Path, command: str
) -> None:
    steps = steps_of(fresh.run(command, tmp_path))
    assert steps, "it names at least one"
    for step in steps:
        if (ROOT / step).is_dir():  # such as docs/: not a command, and it is there
            continue
        fresh.run(step, tmp_path)
