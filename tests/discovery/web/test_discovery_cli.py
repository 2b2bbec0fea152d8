"""`cloudgraft discovery` on a terminal. What the commands do to a server, the page about discovery servers shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from cloudgraft.cli.discovery import command
from cloudgraft.cli.discovery_clusters import _default
from cloudgraft.sdk.errors import CloudgraftError


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command, list(arguments))
    if isinstance(result.exception, CloudgraftError):  # what the entry point tells
        return 1, str(result.exception)
    return result.exit_code, result.output


@pytest.mark.parametrize(
    "part", ["serve", "agent", "clusters", "offers", "put", "delete", "prices set", "credentials set", "rotate-keys"]
)
def test_every_part_has_a_help_with_an_example(part: str) -> None:
    code, text = run(*part.split(), "--help")
    assert code == 0
    assert f"cloudgraft discovery {part}" in text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("offers",), "say what is needed"),
        (("offers", "--cpu", "much"), "is not a quantity"),
        (("offers", "--resource", "x"), "is not NAME=QUANTITY"),
        (("put", "turin"), "say what: --file FILE"),
        (("prices", "set", "turin", "--currency", "EUR", "--unit", "cpu"), "is not NAME=PRICE"),
        (("prices", "set", "turin", "--currency", "EUR", "--node", "-1"), "no amount of money"),
        (("prices", "set", "turin", "--currency", "EUR", "--until", "soon"), "is no time"),
        (("clusters", "--cert", "x"), "--cert and --key go together"),
    ],
)
def test_what_cannot_be_meant_is_a_matter_of_usage(arguments: tuple[str, ...], expected: str) -> None:
    code, text = run(*arguments)
    assert code == 2
    assert expected in text


def test_a_server_that_is_away_is_one_line_and_exit_code_1() -> None:
    code, text = run("clusters", "--server", "http://127.0.0.1:9")
    assert code == 1
    assert text.startswith("error: GET http://127.0.0.1:9/v1/clusters: cannot be reached")
    assert text.count("\n") == 1


def test_a_server_elsewhere_without_tls_is_refused() -> None:
    code, text = run("clusters", "--server", "http://192.0.2.1:9010")
    assert (code, "is not encrypted" in text) == (1, True)


def test_an_error_in_the_file_of_a_cluster_has_its_line(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("labels: {country: italy}\ncapacity: {cpu: many}\nmaxNode: 1\n")
    code, text = run("put", "turin", "--file", str(tmp_path / "c.yaml"))
    assert code == 1
    assert "c.yaml:2:" in text
    assert "c.yaml:3:1: maxNode: unknown key (did you mean maxNodes?)" in text


def test_files_are_checked_without_starting_anything(tmp_path: Path) -> None:
    (tmp_path / "d.yaml").write_text("listen: 127.0.0.1:0\n")
    (tmp_path / "k").write_text("{}")
    (tmp_path / "a.yaml").write_text("server: {address: http://127.0.0.1:9010}\nkubernetes: {kubeconfig: k}\n")
    assert run("serve", "--config", str(tmp_path / "d.yaml"), "--check")[0] == 0
    assert run("agent", "--config", str(tmp_path / "a.yaml"), "--check")[0] == 0
    (tmp_path / "d.yaml").write_text("listen: 127.0.0.1:0\nvault: {keyEnv: NO_SUCH_KEYS}\n")
    code, text = run("serve", "--config", str(tmp_path / "d.yaml"), "--check")
    assert (code, "NO_SUCH_KEYS holds no key" in text) == (1, True)


def test_the_server_is_where_the_file_in_this_directory_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert _default() == "http://127.0.0.1:9010"
    (tmp_path / "discovery.yaml").write_text("listen: 0.0.0.0:9443\ntls: {cert: x}\n")
    assert _default() == "https://127.0.0.1:9443"
