"""A good file becomes a Config; a bad one is told completely, line by line."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from cloudgraft.config import ConfigError, load, parse
from cloudgraft.config.sections.providers import EntryPointProvider, ExternalGrpcProvider, PluginProvider
from scripts import configuration_page
from tests.config.problem_lines import MINIMAL, problem_lines

# -- good files -------------------------------------------------------------------------------------------------------


def test_the_least_file_has_safe_defaults(tmp_path: Path) -> None:
    config = parse(MINIMAL, tmp_path)
    server = config.server
    assert (server.listen, server.ops, server.tls, server.insecure) == ("127.0.0.1:8086", "127.0.0.1:8087", None, False)
    assert (server.deadline, server.grace) == (timedelta(seconds=4.5), timedelta(seconds=10))
    assert (server.force_options, config.log.level, config.log.format) == (False, 2, "console")
    [provider] = config.providers
    assert isinstance(provider, EntryPointProvider)
    assert provider.snapshot is not None
    assert provider.snapshot.refresh_every == timedelta(seconds=5)
    assert provider.snapshot.max_staleness == timedelta(minutes=5)


def test_the_example_of_the_reference_page_is_valid(tmp_path: Path) -> None:
    (tmp_path / "certs").mkdir()
    for name in ("server", "client", "ca"):
        (tmp_path / "certs" / f"{name}.crt").touch()
        (tmp_path / "certs" / f"{name}.key").touch()
    path = tmp_path / "cloudgraft.yaml"
    path.write_text(configuration_page.EXAMPLE)
    config = load(path)
    assert config.server.tls is not None
    assert config.server.tls.client_ca == tmp_path / "certs" / "ca.crt"
    other, office, memory = config.providers
    assert isinstance(other, ExternalGrpcProvider)
    assert isinstance(office, PluginProvider)
    assert isinstance(memory, EntryPointProvider)
    assert other.tls is not None
    assert other.tls.key == tmp_path / "certs" / "client.key"
    assert (office.command, office.working_directory) == (("python3", "office_plugin.py"), tmp_path)
    assert memory.snapshot is None
    assert config.names() == ("other", "office", "memory")
    assert [group.id for group in config.groups()] == ["lab-small-a", "lab-small-b"]
    assert list(config.clouds) == ["lab"]


def test_paths_are_relative_to_the_file_and_not_to_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "there" / "c.yaml").write_text(
        "cluster: a\nproviders: [{type: plugin, command: [./run, x/y], workingDirectory: ..}]"
    )
    monkeypatch.chdir(tmp_path / "there")
    [plugin] = load(Path("c.yaml")).providers
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert isinstance(plugin, PluginProvider)
    assert plugin.working_directory is not None
    assert plugin.working_directory.resolve() == tmp_path
    assert plugin.command == (str(tmp_path / "there" / "run"), "x/y")


def test_anchors_aliases_and_merges_work(tmp_path: Path) -> None:
    config = parse(
        """
cluster: prod
providers:
  - &first
    type: plugin
    name: one
    command: [a]
    snapshot: &snap {refreshEvery: 7s}
  - {<<: *first, name: two}
  - {<<: [{command: [b]}, *first], name: three, snapshot: *snap}
""",
        tmp_path,
    )
    assert [(p.name, p.command) for p in config.providers if isinstance(p, PluginProvider)] == [
        ("one", ("a",)),
        ("two", ("a",)),
        ("three", ("b",)),
    ]
    assert {p.snapshot.refresh_every for p in config.providers if isinstance(p, PluginProvider)} == {
        timedelta(seconds=7)
    }


def test_names_that_are_not_given_are_made_different(tmp_path: Path) -> None:
    text = "cluster: a\nproviders: [{type: memory}, {type: memory}, {type: memory, name: memory-2}, {type: memory}]"
    assert parse(text, tmp_path).names() == ("memory", "memory-3", "memory-2", "memory-4")


def test_null_turns_the_second_port_off_and_an_ipv6_loopback_is_fine_without_tls(tmp_path: Path) -> None:
    config = parse(MINIMAL + "server: {listen: '[::1]:0', ops: null}", tmp_path)
    assert (config.server.listen, config.server.ops) == ("[::1]:0", None)


@pytest.mark.parametrize("listen", ["localhost:1", "127.1.2.3:1", "unix:/run/x.sock"])
def test_without_tls_every_loopback_address_is_allowed(tmp_path: Path, listen: str) -> None:
    assert parse(MINIMAL + f"server: {{listen: {listen!r}}}", tmp_path).server.listen == listen


def test_insecure_must_be_said_in_so_many_words(tmp_path: Path) -> None:
    """Law 9."""
    assert parse(MINIMAL + "server: {listen: '0.0.0.0:1', insecure: true}", tmp_path).server.insecure


def test_a_config_is_frozen(tmp_path: Path) -> None:
    config = parse(MINIMAL, tmp_path)
    with pytest.raises(ValidationError):
        config.cluster = "other"  # type: ignore[misc]  # that is the point


def test_a_key_is_text_whatever_yaml_makes_of_it(tmp_path: Path) -> None:
    config = parse("cluster: a\nproviders: [{type: plugin, command: [a], env: {NO: x, 1: y}}]", tmp_path)
    [plugin] = config.providers
    assert isinstance(plugin, PluginProvider)
    assert plugin.env == {"NO": "x", "1": "y"}


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode())
    assert load(path).cluster == "prod"


# -- the command line above the file ----------------------------------------------------------------------------------


def test_overrides_stand_above_the_file_and_are_checked_with_it(tmp_path: Path) -> None:
    overrides: dict[str, object] = {"server.listen": "0.0.0.0:0", "server.insecure": True, "log.level": 5}
    config = parse(MINIMAL + "log: {level: 1}", tmp_path, overrides=overrides)
    assert (config.server.listen, config.server.insecure, config.log.level) == ("0.0.0.0:0", True, 5)
    assert problem_lines(MINIMAL, tmp_path, {"server.listen": "0.0.0.0", "log.level": 11}) == [
        "command line: server.listen: must be host:port (for example 127.0.0.1:8086)",
        "command line: log.level: must be at most 10",
    ]


# -- files ------------------------------------------------------------------------------------------------------------


def test_a_file_that_is_not_there_or_not_a_file(tmp_path: Path) -> None:
    for path, message in [
        (tmp_path / "nowhere.yaml", "no such file"),
        (tmp_path, "is a directory"),
        (tmp_path / "a\0b", "cannot be read: not a file name"),
    ]:
        with pytest.raises(ConfigError) as caught:
            load(path)
        assert str(caught.value).startswith(f"{path}: {message}")


def test_a_file_that_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(ConfigError, match="is larger than 1 MiB"):
        load(path)


@pytest.mark.parametrize(
    ("content", "place"), [(b"cluster: a\nx: b\xff", "2:5"), ("cluster: ä".encode("utf-16"), "1:1")]
)
def test_a_file_that_is_not_utf_8_is_told_with_its_place(tmp_path: Path, content: bytes, place: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value) == f"{path}:{place}: is not UTF-8 (save the file as UTF-8)"


# -- the reference page -----------------------------------------------------------------------------------------------


def test_the_reference_page_names_every_key() -> None:
    page = configuration_page.markdown()
    for key in ("clientCA", "allowedClients", "forceOptions", "maxStaleness", "workingDirectory", "startTimeout"):
        assert f"| `{key}` |" in page
    committed = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"
    assert committed.read_text().endswith(page)
