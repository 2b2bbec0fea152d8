"""Mistakes of a first day that the parts beside the file's own schema find: told with their place, and all at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudgraft.app.wiring import assemble
from cloudgraft.config import ConfigError, parse
from cloudgraft.service.metrics import ServiceMetrics

ENGINE = """\
cluster: prod
clouds: {sim: {driver: simulated}}
nodeGroups: [{id: small, cloud: sim, maxSize: 5, machine: {shape: small}}]
"""


def wrong(more: str, base_dir: Path) -> list[str]:
    """What a start, and `--check`, would say."""
    with pytest.raises(ConfigError) as caught:
        assemble(parse(f"{ENGINE}{more}\n", base_dir, name="f"), ServiceMetrics())
    return str(caught.value).replace(str(base_dir), "D").splitlines()


def test_a_journal_with_a_name_that_no_file_can_have_is_told_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"{ENGINE}store: {{path: {'x' * 300}.db}}\n", tmp_path, name="f")
    [line] = str(caught.value).splitlines()
    assert line.startswith("f:4:15: store.path: cannot be used: …xxx")
    assert "File name too long" in line


def test_file_with_a_name_that_no_file_can_have_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"{ENGINE}server: {{tls: {{cert: {'x' * 300}.crt}}}}\n", tmp_path, name="f")
    [line] = [line for line in str(caught.value).splitlines() if "tls.cert:" in line]
    assert line.startswith("f:4:22: server.tls.cert: cannot be read: …xxx")
    assert "File name too long" in line


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ("server: {listen: 8386}", "server.listen"),
        ("server: {ops: 8386}", "server.ops"),
        ("admin: {listen: 8386}", "admin.listen"),
        ("dock: {listen: 8386}", "dock.listen"),
        ("nodeManager: {listen: 8386}", "nodeManager.listen"),
    ],
)
def test_a_bare_port_is_answered_with_an_address_that_works(section: str, key: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"{ENGINE}{section}\n", tmp_path, name="f")
    [problem] = caught.value.problems
    hint = "write 127.0.0.1:8386 for this host, 0.0.0.0:8386 for all addresses"
    assert (problem.key, problem.message, problem.suggestion) == (key, "is a port without a host", hint)


def test_a_bare_port_of_another_server_needs_its_host(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"{ENGINE}providers: [{{type: externalgrpc, address: 8086}}]\n", tmp_path, name="f")
    [problem] = caught.value.problems
    assert problem.suggestion == "write the host too, for example provider.example:8086"


def test_a_socket_with_too_long_a_path_is_told_with_the_key_that_changes_it(tmp_path: Path) -> None:
    [line] = wrong(f"store: {{path: {'x' * 120}.db}}", tmp_path)
    assert line.startswith("f:1:1: admin.listen: the path of the admin socket, D/xxx")
    assert "give it a shorter one" in line


def test_a_kind_of_event_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    lines = wrong("engine: {webhook: {url: 'https://alerts.example/x', kinds: [increase, guardd]}}", tmp_path)
    assert lines == ["f:4:71: engine.webhook.kinds[1]: there is no kind of event guardd (did you mean guard?)"]


def test_a_url_with_an_impossible_port_is_told_with_its_place(tmp_path: Path) -> None:
    [line] = wrong("engine: {webhook: {url: 'https://alerts.example:99999/hunter2'}}", tmp_path)
    assert line.startswith("f:4:25: engine.webhook.url: the webhook's URL must be of the form")
    assert "hunter2" not in line


def test_what_is_wrong_beside_the_engine_is_told_together(tmp_path: Path) -> None:
    more = f"admin: {{listen: 'unix:/{'y' * 130}'}}\nengine: {{webhook: {{url: 'https://a.example', kinds: [x]}}}}"
    assert [line.split(": ")[1] for line in wrong(more, tmp_path)] == ["admin.listen", "engine.webhook.kinds[0]"]


def test_a_shape_that_is_there_twice_is_told_once_and_where(tmp_path: Path) -> None:
    twice = ENGINE.replace("machine: {shape: small}", "shapes: [small, small], zones: [a, b]")
    with pytest.raises(ConfigError) as caught:
        parse(twice, tmp_path, name="f")
    assert str(caught.value) == (
        "f:3:66: nodeGroups[0].shapes[1]: small is there twice (each becomes a group, so name it once)"
    )


def test_gone_machines_are_kept_for_as_long_as_guards_count_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"{ENGINE}store: {{keepGone: 1h}}\nengine: {{nodeMemory: 25h}}\n", tmp_path, name="f")
    assert [line.split(": ")[1] for line in str(caught.value).splitlines()] == ["store.keepGone", "engine.nodeMemory"]


@pytest.mark.parametrize("limit", ["5m", "1h", "0s"])
def test_calls_are_refused_for_less_than_five_minutes_after_a_start(tmp_path: Path, limit: str) -> None:
    with pytest.raises(ConfigError, match=r"engine\.firstListTimeout: must be"):
        parse(f"{ENGINE}engine: {{firstListTimeout: {limit}}}\n", tmp_path, name="f")
