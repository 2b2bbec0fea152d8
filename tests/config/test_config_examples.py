"""The configuration files that we show are valid."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cloudgraft.config import load

FILES = sorted((Path(__file__).parents[2] / "examples" / "config").glob("*.yaml"))
SECRETS = ("certs/server.crt", "certs/server.key", "certs/ca.crt", "certs/db-ca.crt", "secrets/db-password")


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_an_example_can_be_loaded(file: Path, tmp_path: Path) -> None:
    shutil.copy(file, tmp_path / file.name)
    for name in SECRETS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert load(tmp_path / file.name).groups()


def test_there_are_examples() -> None:
    assert [file.stem for file in FILES] == ["guarded", "replicas", "simulated"]
