"""The parts of ``make e2e-join`` that need no machine."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from click.testing import CliRunner

from e2e.join.__main__ import main
from e2e.join.container_image import archive
from e2e.join.reports import Report, ReportedFile, Reports, check_cloud_init, report_of


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


@pytest.fixture
def reports() -> Iterator[Reports]:
    server = Reports()
    server.start()
    yield server
    server.stop()


def call(reports: Reports, path: str, data: bytes | None = None) -> bytes:
    method = "GET" if data is None else "PUT"
    request = urllib.request.Request(f"http://127.0.0.1:{reports.port}{path}", data=data, method=method)
    with urllib.request.urlopen(request, timeout=60.0) as answer:
        return bytes(answer.read())


def test_a_machine_gets_one_installer_after_another_and_the_last_one_again(reports: Reports) -> None:
    reports.answer("/m1.sh", "", "first", "second")
    for path in ("/m1.sh", "/unknown.sh"):
        with pytest.raises(HTTPError, match="503"):
            call(reports, path)
    assert [call(reports, "/m1.sh") for _ in range(3)] == [b"first", b"second", b"second"]


def test_the_files_of_a_report_have_their_owner_and_mode(reports: Reports) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo("etc/config")
        entry.size, entry.mode, entry.uname, entry.gname = 4, 0o600, "root", "adm"
        tar.addfile(entry, io.BytesIO(b"text"))
    assert reports.of("m1") is None
    call(reports, "/m1", buffer.getvalue())
    wanted = {"/etc/config": ReportedFile(text="text", mode=0o600, owner="root:adm")}
    assert reports.of("m1") == wanted == report_of(buffer.getvalue())


def cloud_init_says(schema: str = "Valid schema user-data", **status: Any) -> Report:
    texts = {
        "status.json": json.dumps({"status": "done", "errors": [], "recoverable_errors": {}, **status}),
        "schema": schema,
    }
    return {
        f"/run/report/{name}": ReportedFile(text=text, mode=0o644, owner="root:root") for name, text in texts.items()
    }


def test_cloud_init_is_believed_when_it_finds_fault() -> None:
    check_cloud_init(cloud_init_says())
    check_cloud_init(cloud_init_says(status="error", errors=["runcmd"]), status="error")
    for report in (
        cloud_init_says(status="error", errors=["runcmd"]),
        cloud_init_says(errors=["runcmd"]),
        cloud_init_says(recoverable_errors={"WARNING": ["no such key"]}),
        cloud_init_says("Invalid schema: user-data"),
    ):
        with pytest.raises(AssertionError, match="cloud-init"):
            check_cloud_init(report)
    with pytest.raises(AssertionError, match="done and not error"):
        check_cloud_init(cloud_init_says(), status="error")
