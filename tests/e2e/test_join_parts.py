"""The parts of ``make e2e-join`` that need no machine."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from e2e.join.__main__ import main
from e2e.join.container_image import archive


def test_a_container_image_has_its_names_and_every_blob_under_its_digest() -> None:
    made = archive(b"a program", ["registry.example/a:1", "registry.example/b:1"])
    assert made == archive(b"a program", ["registry.example/a:1", "registry.example/b:1"])
    with tarfile.open(fileobj=io.BytesIO(made)) as tar:
        files = {entry.name: tar.extractfile(entry).read() for entry in tar}  # type: ignore[union-attr]
    blobs = {name.removeprefix("blobs/sha256/"): data for name, data in files.items() if name.startswith("blobs/")}
    assert all(hashlib.sha256(data).hexdigest() == digest for digest, data in blobs.items())
    index = json.loads(files["index.json"])
    names = [one["annotations"]["io.containerd.image.name"] for one in index["manifests"]]
    assert names == ["registry.example/a:1", "registry.example/b:1"]
    manifest = json.loads(blobs[index["manifests"][0]["digest"].removeprefix("sha256:")])
    (layer,) = manifest["layers"]
    with tarfile.open(fileobj=io.BytesIO(blobs[layer["digest"].removeprefix("sha256:")])) as tar:
        assert [(entry.name, entry.mode) for entry in tar] == [("waits", 0o755)]


def test_what_a_machine_lacks_is_named_and_counts_as_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("e2e.join.machine_image._PATH", "")
    done = CliRunner().invoke(main, [])
    assert done.exit_code == 3
    assert "not run: " in done.output
    assert "debootstrap" in done.output
