"""The command line as a whole: help with examples, suggestions, and files that are found in this directory."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from cloudgraft.cli.main import VERBS, cloudgraft
from tests.cli.command_tree import all_commands

COMMANDS = all_commands()
GROUPS = [words for words, command in COMMANDS.items() if isinstance(command, click.Group)]
LEAVES = [words for words in COMMANDS if words not in GROUPS]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cloudgraft, arguments, prog_name="cloudgraft")


# -- help --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", LEAVES)
def test_the_help_of_every_command_has_an_example_of_it(words: str) -> None:
    found = run(*words.split(), "--help")
    assert found.exit_code == 0
    assert re.search(rf"^ +(.* \| )?cloudgraft {words}\b", found.stdout, re.MULTILINE), found.stdout


@pytest.mark.parametrize("arguments", [["-h"], ["--help"], ["help"], ["-h", "serve"]])
def test_the_help_of_the_whole_lists_every_verb(arguments: list[str]) -> None:
    found = run(*arguments)
    assert found.exit_code == 0
    assert all(re.search(rf"^  {verb} ", found.stdout, re.MULTILINE) for verb in VERBS)


def test_no_arguments_at_all_show_the_help_and_are_wrong_usage() -> None:
    found = run()
    assert (found.exit_code, "Commands:" in found.output) == (2, True)


@pytest.mark.parametrize("words", ["serve", "db check", "discovery prices set"])
def test_help_and_a_command_is_the_help_of_that_command(words: str) -> None:
    asked = run("help", *words.split())
    # Not -h: click remembers the names of the option from its first use, which may be another test's, without -h.
    assert (asked.exit_code, asked.stdout) == (0, run(*words.split(), "--help").stdout)


# -- suggestions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", GROUPS)
def test_a_misspelled_command_gets_a_suggestion(words: str) -> None:
    command = COMMANDS[words]
    assert isinstance(command, click.Group)
    for name in command.list_commands(click.Context(command)):
        found = run(*words.split(), f"{name}x")
        assert (found.exit_code, found.stdout) == (2, "")
        assert re.search(rf"[Dd]id you mean .*\b{name}\b", found.stderr), found.stderr


def test_a_word_that_is_like_no_command_gets_a_hint_instead_of_a_wrong_suggestion() -> None:
    found = run("xyzzy")
    assert (found.exit_code, "there is no command 'xyzzy': --help lists all commands" in found.stderr) == (2, True)


def test_a_misspelled_option_gets_a_suggestion() -> None:
    found = run("serve", "--listne", "x")
    assert (found.exit_code, "--listen" in found.stderr) == (2, True)


# -- the file in this directory ----------------------------------------------------------------------------------------


# The kit's file is not a server's, and what it makes are real machines: it is always named.
@pytest.mark.parametrize("words", sorted({*LEAVES, "dock"} - {"conformance"}))
def test_every_command_with_a_configuration_finds_it_in_this_directory(words: str) -> None:
    options = [option for option in COMMANDS[words].params if "--config" in option.opts]
    for option in options:
        assert isinstance(option, click.Option)
        assert "-c" in option.opts
        assert not option.required
        assert re.search(r"Default: \./[a-z]+\.yaml\.", option.help or ""), option.help


def test_there_are_commands_with_a_configuration() -> None:
    assert sum(any("--config" in option.opts for option in command.params) for command in COMMANDS.values()) > 20


CONFIG = """
cluster: x
clouds: {sim: {driver: simulated}}
nodeGroups: [{id: small, cloud: sim, maxSize: 5, machine: {shape: small}}]
"""
SERVERS = {
    "serve --check": ("cloudgraft.yaml", CONFIG),
    "node-manager --check": ("cloudgraft.yaml", f"{CONFIG}nodeManager: {{listen: '127.0.0.1:9009'}}\n"),
    "dock --check": ("cloudgraft.yaml", "cluster: x\ndock: {classes: {s: {kind: K, apiVersion: a.b/v1}}}\n"),
    "dock connect --check": (
        "driver.yaml",
        "address: 127.0.0.1:5000\nkind: K\napiVersion: a.b/v1\ndriver: simulated\n",
    ),
    "discovery serve --check": ("discovery.yaml", "listen: 127.0.0.1:9010\n"),
    "db upgrade": ("cloudgraft.yaml", CONFIG),
}


@pytest.mark.parametrize("words", SERVERS)
def test_a_file_in_this_directory_needs_no_option(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name, content = SERVERS[words]
    found = run(*words.split())
    assert (found.exit_code, f"there is no {name} in this directory" in found.stderr) == (2, True)
    (tmp_path / name).write_text(content)
    found = run(*words.split())
    assert found.exit_code == 0, found.output


def test_an_option_takes_precedence_over_the_file_in_this_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cloudgraft.yaml").write_text("nonsense")
    (tmp_path / "other.yaml").write_text(CONFIG)
    assert run("serve", "--check", "-c", "other.yaml").exit_code == 0
    assert run("db", "upgrade", "-c", "other.yaml").exit_code == 0
    assert run("db", "check", "--store", "journal.db").exit_code == 0
    both = run("db", "check", "--store", "journal.db", "-c", "other.yaml")
    assert (both.exit_code, "exclude each other" in both.stderr) == (2, True)
