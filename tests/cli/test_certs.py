"""`cloudgraft certs` from the outside: what it prints, what it writes, how it ends."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from cloudgraft.certs.authority import create_bundle
from cloudgraft.cli.certs import command
from cloudgraft.sdk.errors import InvalidArgumentError, PreconditionError


def _run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def _json(*arguments: str | Path) -> Any:
    result = _run(*arguments, "-o", "json")
    return json.loads(result.stdout)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    assert _run("init", tmp_path / "certs", "--host", "cloudgraft.kube-system.svc").exit_code == 0
    return tmp_path / "certs"


def test_init_prints_a_server_section_and_a_cloud_config_that_are_yaml(tmp_path: Path) -> None:
    result = _run("init", tmp_path / "certs", "--host", "cloudgraft.kube-system.svc", "--client-name", "Robot")
    assert result.exit_code == 0, result.output
    sections = result.stdout.split("# ")
    server = yaml.safe_load("# " + sections[1])["server"]
    cloud_config = yaml.safe_load("# " + sections[2])
    assert server["listen"] == "0.0.0.0:8086"
    assert server["tls"]["allowedClients"] == ["robot"]
    assert cloud_config["address"] == "cloudgraft.kube-system.svc:8086"
    for path in (server["tls"]["cert"], server["tls"]["key"], server["tls"]["clientCA"]):
        assert Path(path).is_file()
    for path in (cloud_config["cert"], cloud_config["key"], cloud_config["cacert"]):
        assert Path(path).is_file()
    assert "--cloud-provider=externalgrpc --cloud-config=cloud-config.yaml" in result.stdout


def test_init_without_hosts_is_for_this_machine_only(tmp_path: Path) -> None:
    answer = _json("init", tmp_path / "certs")
    assert answer["server"]["listen"] == "127.0.0.1:8086"
    assert answer["cloudConfig"]["address"] == "localhost:8086"
    shown = _json("show", tmp_path / "certs" / "server.crt")["certificates"][0]
    assert (shown["dnsNames"], shown["ipAddresses"]) == (["localhost"], ["127.0.0.1", "::1"])


def test_init_puts_an_ipv6_address_into_brackets(tmp_path: Path) -> None:
    answer = _json("init", tmp_path / "certs", "--host", "*.example.org", "--host", "2001:db8::1")
    assert answer["cloudConfig"]["address"] == "[2001:db8::1]:8086"


def test_init_twice_fails_and_changes_nothing(made: Path) -> None:
    before = {path: path.read_bytes() for path in made.iterdir()}
    result = _run("init", made)
    assert result.exit_code == 1
    assert "will not be overwritten; use `certs renew`" in str(result.exception)
    assert {path: path.read_bytes() for path in made.iterdir()} == before


@pytest.mark.parametrize("arguments", [["--host", "a:1"], ["--days", "0"], ["--client-name", "a b"]])
def test_init_with_bad_values_fails_and_makes_nothing(tmp_path: Path, arguments: list[str]) -> None:
    result = _run("init", tmp_path / "certs", *arguments)
    assert result.exit_code == 1
    assert isinstance(result.exception, InvalidArgumentError)
    assert not (tmp_path / "certs").exists()


def test_show_is_content_with_a_new_set(made: Path) -> None:
    result = _run("show", made, "--address", "cloudgraft.kube-system.svc:8086")
    assert result.exit_code == 0
    assert "The Go client will look for 'cloudgraft.kube-system.svc': found in" in result.stdout
    assert "server.crt" in result.stdout


def test_show_says_which_names_an_address_may_have(made: Path) -> None:
    result = _run("show", made)
    assert result.stdout.splitlines()[-1].endswith("It can use: cloudgraft.kube-system.svc, localhost, 127.0.0.1, ::1")


def test_show_fails_when_the_name_is_wrong_and_its_fix_works(made: Path) -> None:
    result = _run("show", made, "--address", "elsewhere:8086")
    assert result.exit_code == 1
    fix = next(line for line in result.stdout.splitlines() if line.startswith("  fix: "))
    words = fix.removeprefix("  fix: cloudgraft certs ").split()
    assert _run(*words).exit_code == 0
    assert _run("show", made, "--address", "elsewhere:8086").exit_code == 0


def test_show_fails_when_something_is_expired(tmp_path: Path) -> None:
    past = datetime.now(UTC) - timedelta(days=1)
    create_bundle(tmp_path, hosts=["localhost"], not_before=past - timedelta(days=1), not_after=past)
    result = _run("show", tmp_path, "-o", "json")
    answer = json.loads(result.stdout)
    assert result.exit_code == 1
    assert answer["ok"] is False
    assert [(Path(f["file"]).name, f["severity"]) for f in answer["findings"]] == [
        ("client.crt", "error"),
        ("server.crt", "error"),
    ]


def test_show_in_json_says_all(made: Path) -> None:
    answer = _json("show", made, "--address", "localhost:1")
    assert answer["serverName"] == "localhost"
    server = next(c for c in answer["certificates"] if c["for"] == "server")
    assert server["acceptedForServerName"] is True
    assert server["daysLeft"] == 364
    assert datetime.fromisoformat(server["notAfter"]) > datetime.now(UTC)


def test_show_of_nothing_fails(tmp_path: Path) -> None:
    result = _run("show", tmp_path / "nowhere")
    assert result.exit_code == 1
    assert "does not exist" in str(result.exception)


@pytest.mark.parametrize("verb", ["show", "renew"])
def test_path_that_cannot_be_looked_at_is_refused_in_one_line(verb: str, tmp_path: Path) -> None:
    result = _run(verb, tmp_path / ("x" * 300))
    assert isinstance(result.exception, PreconditionError)
    assert "File name too long" in str(result.exception)


def test_renew_replaces_and_tells_until_when(made: Path) -> None:
    before = (made / "server.crt").read_bytes()
    result = _run("renew", made, "--what", "server", "--days", "30")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Renewed {made / 'server.crt'}; it holds until ")
    assert (made / "server.crt").read_bytes() != before


def test_renew_warns_on_stderr_when_the_authority_ends_sooner(made: Path) -> None:
    result = _run("renew", made, "--days", "9999", "-o", "json")
    assert result.exit_code == 0
    assert result.stderr.startswith("Warning: the authority ends on ")
    assert len(json.loads(result.stdout)["warnings"]) == 1


def test_renew_of_nothing_fails_and_makes_nothing(tmp_path: Path) -> None:
    result = _run("renew", tmp_path / "nowhere")
    assert result.exit_code == 1
    assert not (tmp_path / "nowhere").exists()


def test_a_further_client_is_made_and_renewed_with_the_rest(made: Path) -> None:
    assert _run("client", made, "ops").stdout.endswith("Add ops to allowedClients in cloudgraft.yaml.\n")
    assert str(made / "ops.crt") in _json("renew", made)["renewed"]


def test_wrong_usage_is_exit_code_2() -> None:
    assert _run("renew").exit_code == 2
    assert _run("renew", ".", "--what", "ca").exit_code == 2


@pytest.mark.parametrize("verb", [None, "init", "client", "renew", "show"])
def test_every_help_has_an_example(verb: str | None) -> None:
    result = _run(*([verb] if verb else []), "--help")
    assert result.exit_code == 0
    assert "Example:\n" in result.stdout
    assert "cloudgraft certs " in result.stdout
