"""Commands that find a running server by its configuration file."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
import yaml
from click.testing import CliRunner, Result

from cloudgraft.certs.authority import create_bundle
from cloudgraft.certs.defaults import DEFAULT_HOSTS
from cloudgraft.cli.call import command
from cloudgraft.cli.server_file import admin_address, listening
from cloudgraft.config import parse
from cloudgraft.sdk.errors import InvalidArgumentError
from tests.client.counting import CountingServer

LEAST = "cluster: x\nproviders: [{type: memory}]\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This directory's file, without a server of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cloudgraft.yaml"


def call(*arguments: str) -> Result:
    return CliRunner().invoke(command, ["NodeGroups", *arguments])


# -- the autoscaler's port ---------------------------------------------------------------------------------------------


def test_call_finds_the_server_of_this_directory(here: Path) -> None:
    with CountingServer() as server:
        here.write_text(yaml.safe_dump({"server": {"listen": server.address}, "nodeGroups": "nonsense"}))
        assert call().exit_code == 0
        assert call("--config", str(here)).exit_code == 0
        here.write_text("server: {listen: '127.0.0.1:1'}\n")
        assert call("--address", server.address).exit_code == 0  # explicit options take precedence
        assert server.calls == {"NodeGroups": 3}


@pytest.mark.parametrize(
    ("content", "address"),
    [
        ("cluster: x", "127.0.0.1:8086"),
        ("server: {listen: '0.0.0.0:9'}", "127.0.0.1:9"),
        ("server: {listen: '[::]:9'}", "[::1]:9"),
        ("server: {listen: 'unix:/run/x.sock'}", "unix:/run/x.sock"),
        ("server: {listen: 'host.example:9'}", "host.example:9"),
    ],
)
def test_a_client_on_this_host_reaches_what_listens_everywhere(here: Path, content: str, address: str) -> None:
    here.write_text(content)
    assert listening(here).address == address


@pytest.mark.parametrize("content", ["server: {listen: '127.0.0.1:0'}", "server: {listen: 8086}"])
def test_a_file_without_a_fixed_port_says_what_to_give_instead(here: Path, content: str) -> None:
    here.write_text(content)
    found = call()
    assert (found.exit_code, found.stdout) == (1, "")
    assert "--address" in found.stderr


def test_a_server_with_tls_needs_the_files_of_a_client(here: Path, tmp_path: Path) -> None:
    made = create_bundle(tmp_path / "certs", hosts=DEFAULT_HOSTS)
    pair = [(made.server_key.read_bytes(), made.server_cert.read_bytes())]
    credentials = grpc.ssl_server_credentials(pair, made.ca_cert.read_bytes(), require_client_auth=True)
    with CountingServer(credentials=credentials) as server:
        tls = {"cert": str(made.server_cert), "key": str(made.server_key), "clientCA": str(made.ca_cert)}
        here.write_text(yaml.safe_dump({"server": {"listen": server.address, "tls": tls}}))
        for given in ([], ["--cert", str(made.client_cert)], ["--cacert", str(made.ca_cert)]):
            found = call(*given)
            assert found.exit_code == 2
            assert "speaks TLS: give --cert, --key and --cacert" in found.stderr
        files = ["--cert", str(made.client_cert), "--key", str(made.client_key), "--cacert", str(made.ca_cert)]
        assert call(*files).exit_code == 0
        here.write_text(yaml.safe_dump({"server": {"listen": server.address}}))
        assert "has no TLS" in call(*files).stderr


# -- the operators' socket ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        "",
        "store: {path: j.db}",
        "store: {path: /tmp/j.db}",
        "store: {postgresql: db/x, user: y}",
        "admin: {listen: 'unix:/run/x.sock'}",
    ],
)
def test_the_socket_is_where_the_server_itself_would_have_it(here: Path, more: str) -> None:
    content = f"{LEAST}{more}\n"
    here.write_text(content)
    assert admin_address(here) == parse(content, here.parent, name=str(here)).admin_address()


@pytest.mark.parametrize("content", ["admin: {listen: 5}", "store: {path: [x]}", "store: {path: ' '}"])
def test_a_file_that_does_not_say_where_names_the_keys(here: Path, content: str) -> None:
    here.write_text(content)
    with pytest.raises(InvalidArgumentError, match=r"admin\.listen must be unix:/path or host:port"):
        admin_address(here)
