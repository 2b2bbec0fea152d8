"""A configuration of another host: the files that it names may be missing here, and those that are here are checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudgraft.config import ConfigError, load

CONFIG = """\
cluster: prod
server: {listen: '0.0.0.0:8086', tls: {cert: s.crt, key: s.key, clientCA: ca.crt, allowedClients: [a]}}
store: {path: nowhere/journal.db}
providers: [{type: memory}]
join: {template: kubeadm, caFile: ca.crt, valuesFile: values.yaml}
dock: {drivers: [{name: a, kind: Acme, apiVersion: acme.example/v1, tokenFile: token}], classesDir: classes}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cloudgraft.yaml"
    path.write_text(CONFIG)
    return path


def test_missing_files_are_problems_only_on_the_host_that_uses_them(file: Path) -> None:
    assert load(file, needs_files=False).store.path == file.parent / "nowhere" / "journal.db"
    with pytest.raises(ConfigError) as caught:
        load(file)
    keys = {problem.key for problem in caught.value.problems}
    assert keys >= {"server.tls.cert", "store.path", "join.valuesFile", "dock.drivers[0].tokenFile", "dock.classesDir"}


def test_files_that_are_there_are_checked(file: Path) -> None:
    (file.parent / "ca.crt").write_text("no certificate")
    (file.parent / "token").write_text("short")
    (file.parent / "values.yaml").write_text("- a list")
    (file.parent / "classes").write_text("no directory")
    with pytest.raises(ConfigError) as caught:
        load(file, needs_files=False)
    keys = [problem.key for problem in caught.value.problems]
    assert keys == ["join.caFile", "join.valuesFile", "dock.drivers[0].tokenFile", "dock.classesDir"]
