"""`cloudgraft completion`: what real shells complete, from the program and from a running server."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cloudgraft.cli import names
from cloudgraft.cli.completion import SHELLS
from cloudgraft.cli.main import cloudgraft
from tests.cli.command_tree import all_commands
from tests.cli.operator_rig import Operator, operating
from tests.engine.engine_rig import Rig
from tests.needs import needs_programs

PROGRAM = f"""#!/bin/sh
exec '{sys.executable}' -c 'import sys
sys.argv[0] = "cloudgraft"
from cloudgraft.cli.main import main
main()' "$@"
"""
BASH = """
source <(cloudgraft completion bash)
for line in "$@"; do
    IFS=' ' read -ra COMP_WORDS <<< "$line"
    [[ $line == *' ' ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
    _cloudgraft_completion cloudgraft "${COMP_WORDS[COMP_CWORD]}"
    echo "$line:" "${COMPREPLY[@]}"
done
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A directory with `cloudgraft` in it."""
    made = tmp_path / "bin" / "cloudgraft"
    made.parent.mkdir()
    made.write_text(PROGRAM)
    made.chmod(0o755)
    return made.parent


async def output_of(program: Path, *command: str, cwd: Path) -> list[str]:
    """The lines that a shell prints. It prints nothing else: what stands on the line must not be disturbed."""
    environment = {**os.environ, "PATH": f"{program}:{os.environ['PATH']}", "HOME": str(cwd)}
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert err == b"", err.decode()
    return [line for line in out.decode().splitlines() if line]


async def completed(program: Path, *lines: str, cwd: Path) -> list[str]:
    """What bash offers for the last word of each line."""
    printed = await output_of(program, "bash", "--norc", "-c", BASH, "bash", *lines, cwd=cwd)
    return [shown.removeprefix(f"{line}:").strip() for line, shown in zip(lines, printed, strict=True)]


@pytest.fixture
async def operator(tmp_path: Path) -> AsyncIterator[Operator]:
    async with operating(Rig(tmp_path)) as made:
        yield made


# -- the script --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_printed_and_the_help_says_how_to_install_it(shell: str) -> None:
    found = CliRunner().invoke(cloudgraft, ["completion", shell])
    assert (found.exit_code, f"{shell}_complete" in found.stdout) == (0, True)
    shown = CliRunner().invoke(cloudgraft, ["completion", "--help"]).stdout
    assert re.search(rf"{shell}.*:\n +.*cloudgraft completion {shell}\b.* >>? ~/", shown), shown


def test_another_shell_is_a_usage_error() -> None:
    found = CliRunner().invoke(cloudgraft, ["completion", "tcsh"])
    assert (found.exit_code, "bash" in found.stderr) == (2, True)


# -- in real shells ----------------------------------------------------------------------------------------------------


@needs_programs("bash")
async def test_bash_completes_commands_options_and_drivers(program: Path, tmp_path: Path) -> None:
    lines = ("cloudgraft conf", "cloudgraft db ch", "cloudgraft serve --che", "cloudgraft dock connect --driver si")
    found = await completed(program, *lines, cwd=tmp_path)
    assert found == ["conformance", "check", "--check", "simulated"]


@needs_programs("bash")
async def test_bash_completes_names_from_the_running_server(program: Path, operator: Operator) -> None:
    await operator.rig.provider.increase_size("g", 1)
    (machine,) = operator.rig.records()
    lines = (
        "cloudgraft status ",
        "cloudgraft pause --cloud s",
        f"cloudgraft orphans release {machine.name[:6]}",
        f"cloudgraft explain {machine.name[:6]}",
    )
    found = await completed(program, *lines, cwd=operator.config.parent)
    assert found == ["g", "sim", machine.name, machine.name]


@needs_programs("bash")
async def test_without_a_server_there_are_no_names_and_no_message(program: Path, tmp_path: Path) -> None:
    (tmp_path / "cloudgraft.yaml").write_text("cluster: x\n")
    lines = ("cloudgraft status ", "cloudgraft status --config nowhere.yaml ")
    assert await completed(program, *lines, cwd=tmp_path) == ["", ""]


@needs_programs("fish")
async def test_fish_completes_commands(program: Path, tmp_path: Path) -> None:
    script = "cloudgraft completion fish | source; complete -C 'cloudgraft conf'"
    (line,) = await output_of(program, "fish", "--no-config", "-c", script, cwd=tmp_path)
    assert line.startswith("conformance\t")


@needs_programs("zsh")
async def test_zsh_loads_the_script(program: Path, tmp_path: Path) -> None:
    script = "autoload -Uz compinit; compinit -u; source <(cloudgraft completion zsh); print ${_comps[cloudgraft]}"
    assert await output_of(program, "zsh", "-f", "-c", script, cwd=tmp_path) == ["_cloudgraft_completion"]


# -- every command -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "command"), all_commands().items())
def test_every_group_and_cloud_of_a_running_server_is_completed(words: str, command: click.Command) -> None:
    if not any("--admin" in option.opts for option in command.params):
        return  # it asks no server
    for parameter in command.params:
        kind = parameter.name or ""
        if kind in {"group", "cloud"}:
            assert parameter._custom_shell_complete is getattr(names, f"{kind}s"), f"{words}: {kind}"
