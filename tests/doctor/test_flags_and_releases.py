"""How a Deployment's flags and images are read, and what is known of the releases."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.doctor.releases import KNOWN, NEWEST, OLDEST, Flags, Release, needed_rights
from e2e.autoscaler import flags_for
from e2e.modules import AUTOSCALERS, minor
from scripts.doctor_page import findings_page

PAGE = Path(__file__).resolve().parent.parent.parent / "docs/reference/doctor.md"


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["./cluster-autoscaler", "--v=2"], {"v": ("2",)}),
        (["--cloud-provider", "externalgrpc", "--v", "4"], {"cloud-provider": ("externalgrpc",), "v": ("4",)}),
        (["--leader-elect", "--v=2"], {"leader-elect": ("true",), "v": ("2",)}),
        (["-v=4"], {"v": ("4",)}),
        (["--nodes=0:1:a", "--nodes=0:2:b"], {"nodes": ("0:1:a", "0:2:b")}),
        (["--max_nodes_total=7"], {"max-nodes-total": ("7",)}),
        (["--scale-down-enabled", "false"], {"scale-down-enabled": ("true",)}),  # as Go reads it: the word is lost
        (["--", "-", ""], {}),
        (["--cloud-config="], {"cloud-config": ("",)}),
    ],
)
def test_flags_are_read_as_go_reads_them(words: list[str], values: dict[str, tuple[str, ...]]) -> None:
    assert Flags.parse(words).values == values


def test_the_last_value_counts_and_defaults_are_known() -> None:
    flags = Flags.parse(["--v=1", "--v=5", "--max-node-provision-time=nonsense"])
    assert flags.text("v") == "5"
    assert flags.duration("max-node-provision-time") is None
    assert Flags.parse([]).duration("max-node-provision-time") == timedelta(minutes=15)
    assert flags.number("max-node-provision-time") is None


@pytest.mark.parametrize(
    ("image", "release"),
    [
        ("registry.k8s.io/autoscaling/cluster-autoscaler:v1.35.2", Release(1, 35, 2)),
        ("cluster-autoscaler:1.34", Release(1, 34, 0)),
        ("localhost:5000/cluster-autoscaler:v1.33.0-gke.1", Release(1, 33, 0)),
        ("cluster-autoscaler:v1.33.1@sha256:" + "0" * 64, Release(1, 33, 1)),
        ("localhost:5000/cluster-autoscaler", None),
        ("cluster-autoscaler:latest", None),
        ("cluster-autoscaler@sha256:" + "0" * 64, None),
        ("", None),
    ],
)
def test_a_release_is_read_from_the_tag_of_its_image(image: str, release: Release | None) -> None:
    assert Release.of_image(image) == release


def test_flags_that_a_release_was_run_with_are_known_to_it() -> None:
    """Those of the end-to-end matrix, which has started every one of them."""
    for release in AUTOSCALERS.values():
        for name in flags_for(release, {}):
            first, last = KNOWN.get(name, (0, 99))
            assert first <= minor(release.name)[1] <= last, f"--{name} in {release.name}"


def test_newer_releases_need_more_rights() -> None:
    old, attachments, devices = (
        set(needed_rights(Release(1, minor), with_devices=False)) for minor in (OLDEST[1], 32, NEWEST[1])
    )
    assert old < attachments < devices
    assert ("storage.k8s.io", "volumeattachments", "watch") in attachments - old
    assert ("resource.k8s.io", "resourceslices", "list") in devices - attachments
    assert set(needed_rights(Release(1, 33), with_devices=True)) == devices
    assert set(needed_rights(None, with_devices=False)) == old


def test_the_page_is_what_the_table_says() -> None:
    assert PAGE.read_text().endswith(findings_page())
