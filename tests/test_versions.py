"""The release's number is the same wherever it is written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cloudgraft._version import __version__

ROOT = Path(__file__).resolve().parents[1]
NUMBER = r"(\d+\.\d+\.\d+)"
IMAGE = re.compile(rf"\bcloudgraft:{NUMBER}")
WRITTEN = {
    "pyproject.toml": rf'"cloudgraft-native=={NUMBER}"',
    "native/pyproject.toml": rf'^version = "{NUMBER}"',
    "native/Cargo.toml": rf'\A\[package\]\nname = "cloudgraft-native"\nversion = "{NUMBER}"',
    "native/Cargo.lock": rf'^name = "cloudgraft-native"\nversion = "{NUMBER}"',
    "deploy/helm/cloudgraft/Chart.yaml": rf"^(?:version|appVersion): {NUMBER}",
    "deploy/kustomization.yaml": rf"newTag: {NUMBER}",
    "deploy/liqo/kustomization.yaml": rf"newTag: {NUMBER}",
}


@pytest.mark.parametrize("file", WRITTEN)
def test_each_file_names_the_release(file: str) -> None:
    found = re.findall(WRITTEN[file], (ROOT / file).read_text("utf-8"), re.MULTILINE)
    assert set(found) == {__version__}


def test_manifests_and_pages_name_the_image_of_the_release() -> None:
    files = [ROOT / "deploy/Dockerfile", *(ROOT / "deploy").glob("**/*.yaml"), *(ROOT / "docs").glob("**/*.md")]
    found = {(path.relative_to(ROOT), tag) for path in files for tag in IMAGE.findall(path.read_text("utf-8"))}
    assert {tag for _, tag in found} == {__version__}, found


def test_interfaces_are_described_under_the_release() -> None:
    for name in ("discovery", "node-manager"):
        described = json.loads((ROOT / "docs/reference" / f"{name}.openapi.json").read_text("utf-8"))
        assert described["info"]["version"] == __version__
