"""The bill of materials has what a package needs, under its conditions, and nothing else."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from scripts.bill_of_materials import Component, bill_of_materials, packages

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def _installed(site: Path, name: str, *lines: str) -> None:
    metadata = site / f"{name}-1.0.dist-info/METADATA"
    metadata.parent.mkdir()
    metadata.write_text("\n".join(["Metadata-Version: 2.4", f"Name: {name}", "Version: 1.0", *lines, ""]))


def test_what_is_needed_is_found_by_conditions_and_extras(tmp_path: Path) -> None:
    _installed(
        tmp_path,
        "ours",
        "License-Expression: Apache-2.0",
        "Requires-Dist: Some_Lib[fast]>=1",
        'Requires-Dist: native; extra == "native"',
        'Requires-Dist: tests; extra == "testing"',
        'Requires-Dist: old; python_version < "3"',
    )
    _installed(tmp_path, "some-lib", "License: MIT", 'Requires-Dist: deep; extra == "fast"')
    _installed(tmp_path, "deep", "Classifier: License :: OSI Approved :: BSD License")
    _installed(tmp_path, "native")
    _installed(tmp_path, "tests")
    found = {one.name: one for one in packages(tmp_path, "ours", ["native"])}
    assert sorted(found) == ["deep", "native", "ours", "some-lib"]
    assert [found[name].license for name in sorted(found)] == ["BSD License", "", "Apache-2.0", "MIT"]
    assert found["ours"].needs == ("pkg:pypi/native@1.0", "pkg:pypi/some-lib@1.0")
    assert [one.name for one in packages(tmp_path, "ours") if one.name == "native"] == []


def test_the_same_components_make_the_same_bytes() -> None:
    ours = Component(kind="pypi", name="ours", version="1", license="MIT", needs=("pkg:cargo/crate@2",))
    crate = Component(kind="cargo", name="crate", version="2", license="", needs=(), sha256="0" * 64)
    bill = bill_of_materials([ours, crate], root="ours", made_at=NOON)
    assert bill == bill_of_materials([crate, ours], root="ours", made_at=NOON)
    document = json.loads(bill)
    assert document["metadata"]["component"]["purl"] == "pkg:pypi/ours@1"
    assert [one["bom-ref"] for one in document["components"]] == ["pkg:cargo/crate@2"]
    assert document["components"][0]["hashes"] == [{"alg": "SHA-256", "content": "0" * 64}]
    changed = json.loads(bill_of_materials([ours], root="ours", made_at=NOON))
    assert changed["serialNumber"] != document["serialNumber"]
